"""The plain formulations that the library's own are measured against."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

import aenp
from aenp.nn.pairwise import PairwiseMLP


class PlainPairwise(nn.Module):
    """The paper's attention as it is written: every pair's dot products and difference, through an MLP, at once."""

    def __init__(self, kernel: PairwiseMLP) -> None:
        super().__init__()
        self.mlp = kernel.mlp

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, x: Tensor, context_x: Tensor, mask: Tensor | None
    ) -> Tensor:
        dots = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).permute(0, 2, 3, 1)
        differences = x.unsqueeze(2) - context_x.unsqueeze(1)
        logits = self.mlp(torch.cat([dots, differences], dim=-1)).permute(0, 3, 1, 2)
        if mask is not None:
            logits = logits.masked_fill(~mask[:, None, None], -torch.inf)
        return logits.softmax(-1) @ value


def plain_formula(model: aenp.TNP) -> aenp.TNP:
    """The same model with the plain formulation in place of the library's."""
    for block in (*model.self_attention, *model.cross_attention):
        block.attention.kernel = PlainPairwise(block.attention.kernel)
    return model


@torch.no_grad()
def plain_chain(
    model: aenp.NeuralProcess, task: aenp.Task, num_samples: int
) -> Float[Tensor, "samples batch target dim_y"]:
    """Coherent samples as they are defined: one target after another, in random order."""
    grown = aenp.Task.stack([task.with_targets(task.xt)] * num_samples)
    samples = torch.empty(len(grown), task.xt.shape[1], task.dim_y)
    for n in torch.randperm(task.xt.shape[1]).tolist():
        x = grown.xt[:, n : n + 1]
        samples[:, n : n + 1] = y = model(grown.xc, grown.yc, x).sample()
        xc, yc = torch.cat([grown.xc, x], dim=1), torch.cat([grown.yc, y], dim=1)
        grown = aenp.Task(xc, yc, grown.xt)
    return samples.unflatten(0, (num_samples, -1))
