"""CNP: the conditional neural process with a deep set, a baseline without symmetry."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aenp.likelihoods import Likelihood
from aenp.nn.mlp import MLP
from aenp.process import NeuralProcess, Symmetry
from aenp.task import Task


class CNPState(NamedTuple):
    """A context as a CNP represents it."""

    r: Float[Tensor, "batch dim"]


class CNP(NeuralProcess):
    """θ(x) = MLP([r, x]) with r = mean_n MLP([x_n, y_n, 1]), or zero for an empty context.

    Args:
        dim_x: input dimension.
        dim_y: output dimension.
        dim: size of the representation r and of the hidden layers.
        layers: number of hidden layers of the encoder and of the decoder.
        likelihood: a heteroscedastic Normal by default.
    """

    family = "cnp"
    symmetries = ("none",)

    def __init__(
        self, dim_x: int, dim_y: int, dim: int = 128, layers: int = 3, likelihood: Likelihood | None = None
    ) -> None:
        super().__init__(dim_x, dim_y, likelihood)
        self.point = MLP(dim_x + dim_y + 1, dim, width=dim, hidden=layers)
        self.head = MLP(dim + dim_x, self.num_params, width=dim, hidden=layers)

    @property
    def symmetry(self) -> Symmetry:
        return "none"

    def encode(self, task: Task) -> CNPState:
        y = task.yc.to(self.dtype)
        points = self.point(torch.cat([task.xc.to(self.dtype), y, torch.ones_like(y[..., :1])], dim=-1))
        return CNPState(masked_mean(points, task))

    def decode(self, state: CNPState, xt: Float[Tensor, "batch target dim_x"]) -> Float[Tensor, "batch target params"]:
        r = state.r.unsqueeze(1).expand(-1, xt.shape[1], -1)
        return self.head(torch.cat([r, xt.to(self.dtype)], dim=-1))


def masked_mean(values: Float[Tensor, "*batch context dim"], task: Task) -> Float[Tensor, "*batch dim"]:
    """The mean over the context points that count, the second to last dimension; zero where there are none."""
    if task.context_mask is None:
        return values.sum(dim=-2) / max(values.shape[-2], 1)
    mask = task.context_mask.view(task.batch_size, *[1] * (values.ndim - 3), -1, 1)
    return torch.where(mask, values, 0.0).sum(dim=-2) / mask.sum(dim=-2).clamp(min=1)
