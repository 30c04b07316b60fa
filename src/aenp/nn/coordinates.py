"""Coordinates: absolute positions as networks take them, scaled to a box and with Fourier features."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

Domain = Sequence[Sequence[float | None] | None]
"One (lower, upper) for each dimension; None in place of a bound or of an interval means unbounded."

Box = list[tuple[float, float]]
"A domain with infinities for what is unbounded."


def box_of(domain: Domain | None, dim_x: int) -> Box:
    """The domain, checked, with infinities for what is unbounded."""
    intervals = [None] * dim_x if domain is None else list(domain)
    if len(intervals) != dim_x:
        raise ValueError(f"domain needs one (lower, upper) for each of {dim_x} dimensions; got {domain}")
    box = []
    for interval in intervals:
        bounds = (None, None) if interval is None else interval
        if not hasattr(bounds, "__len__") or len(bounds) != 2:
            raise ValueError(f"each dimension of the domain needs (lower, upper) or None; got {interval}")
        lower, upper = (sign * math.inf if b is None else float(b) for sign, b in zip((-1, 1), bounds, strict=True))
        if not lower <= upper:
            raise ValueError(f"each interval of the domain needs lower ≤ upper; got {interval}")
        box.append((lower, upper))
    return box


def scaled(x: Float[Tensor, "*points dim_x"], box: Box) -> Float[Tensor, "*points dim_x"]:
    """Each bounded dimension mapped from the box to [−1, 1], in the coordinates' own dtype."""
    columns = []
    for d, (lower, upper) in enumerate(box):
        column = x[..., d]
        if math.isfinite(lower) and math.isfinite(upper):
            column = (2 * column - (lower + upper)) / ((upper - lower) or 1.0)
        elif math.isfinite(lower) or math.isfinite(upper):
            column = column - (lower if math.isfinite(lower) else upper)
        columns.append(column)
    return torch.stack(columns, dim=-1)


def frequencies(dim_x: int, fourier: int) -> Float[Tensor, "dim_x fourier"]:
    """k · π/2 for k = 1 … fourier, the same in each dimension."""
    return torch.arange(1, fourier + 1) * (math.pi / 2) * torch.ones(dim_x, 1)


def with_waves(
    z: Float[Tensor, "*points dim_x"], frequencies: Float[Tensor, "dim_x fourier"]
) -> Float[Tensor, "*points features"]:
    """z beside the sines and cosines of z times each frequency."""
    angles = (z.unsqueeze(-1) * frequencies).flatten(-2)
    return torch.cat([z, angles.sin(), angles.cos()], dim=-1)


class Coordinates(nn.Module):
    """x scaled to the domain, with 2 · fourier waves for each dimension: how a model without symmetry sees a place."""

    waves: Tensor

    def __init__(self, dim_x: int, domain: Domain | None, fourier: int) -> None:
        super().__init__()
        if fourier < 0:
            raise ValueError(f"fourier, the number of coefficients, must not be negative; got {fourier}")
        self.box, self.size = box_of(domain, dim_x), dim_x * (1 + 2 * fourier)
        self.register_buffer("waves", frequencies(dim_x, fourier), persistent=False)

    def forward(self, x: Float[Tensor, "*points dim_x"], dtype: torch.dtype) -> Float[Tensor, "*points size"]:
        return with_waves(scaled(x, self.box).to(dtype), self.waves.to(dtype))
