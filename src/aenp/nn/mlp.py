"""MLP: the pointwise network that every model uses."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn


class MLP(nn.Sequential):
    """x ↦ W_3 σ(W_2 σ(W_1 x + b_1) + b_2) + b_3 on the last dimension, with `hidden` hidden layers of size `width`."""

    def __init__(self, dim_in: int, dim_out: int, width: int = 64, hidden: int = 2) -> None:
        sizes = [dim_in] + [width] * hidden
        layers: list[nn.Module] = []
        for size, following in pairwise(sizes):
            layers += [nn.Linear(size, following), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], dim_out))

    def forward(self, x: Float[Tensor, "*points dim_in"]) -> Float[Tensor, "*points dim_out"]:
        return super().forward(x)

    @property
    def dtype(self) -> torch.dtype:
        first = self[0]
        assert isinstance(first, nn.Linear)
        return first.weight.dtype
