"""PairwiseMLP: the paper's translation-equivariant attention."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.nn.attention import Mask
from aenp.nn.mlp import MLP


class PairwiseMLP(nn.Module):
    """logit(q, k) = MLP([q_1·k_1/√d, …, q_H·k_H/√d, x_q − x_k]) ∈ R^H (appendix B.3 of the paper)."""

    def __init__(self, dim_x: int, heads: int, width: int = 128) -> None:
        super().__init__()
        self.mlp = MLP(heads + dim_x, heads, width=width)

    def forward(
        self,
        query: Float[Tensor, "batch heads queries size"],
        key: Float[Tensor, "batch heads keys size"],
        value: Float[Tensor, "batch heads keys size"],
        x: Float[Tensor, "batch queries dim_x"],
        context_x: Float[Tensor, "batch keys dim_x"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries size"]:
        dots = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).permute(0, 2, 3, 1)
        differences = x.unsqueeze(2) - context_x.unsqueeze(1)
        logits = self.mlp(torch.cat([dots, differences], dim=-1)).permute(0, 3, 1, 2)
        if mask is None:
            return logits.softmax(-1) @ value
        some = mask.any(dim=1)[:, None, None, None]
        allowed = mask[:, None, None, :] | ~some
        return logits.masked_fill(~allowed, -torch.inf).softmax(-1) @ value * some
