"""Set convolutions: from points to a grid and back, one dimension at a time."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aenp.nn.lattice import Lattice


def squared_distances(
    lattice: Lattice, x: Float[Tensor, "batch points dim_x"], dtype: torch.dtype
) -> list[Float[Tensor, "batch points cells"]]:
    """(x_d − cell_d)² in cells, for each dimension d."""
    cell, offset = lattice.locate(x, dtype)
    squares = []
    for d, count in enumerate(lattice.shape):
        index = torch.arange(count, device=x.device, dtype=dtype)
        squares.append(((index - cell[..., d : d + 1]) - offset[..., d : d + 1]).square())
    return squares


def gaussian_weights(
    squares: Sequence[Float[Tensor, "batch points _"]], lengthscale: Float[Tensor, ""]
) -> list[Float[Tensor, "batch points _"]]:
    """exp(−distance² / 2ℓ²) for each dimension, with ℓ in cells; the kernel is their product.

    No less than e⁻³⁰: numbers below the normal range of float32 would slow a CPU down many times.
    """
    scale = -0.5 / lengthscale.square()
    return [(torch.minimum(square, -30 / scale.detach()) * scale).exp() for square in squares]


def own_cells(lattice: Lattice, x: Float[Tensor, "batch points dim_x"]) -> Int[Tensor, "batch points 1"]:
    """The number of each point's own cell in the flattened grid."""
    cell, _ = lattice.locate(x, torch.float64)
    index = torch.zeros_like(cell[..., 0])
    for d, count in enumerate(lattice.shape):
        index = index * count + cell[..., d].clamp(0, count - 1)
    return index.long().unsqueeze(-1)


def points_to_grid(
    values: Float[Tensor, "batch points channels"], weights: Sequence[Float[Tensor, "batch points _"]]
) -> Float[Tensor, "batch *shape channels"]:
    """h(i, j, …) = Σ_n w_n(i) w_n(j) … values_n, as one product of matrices over the points."""
    first = torch.einsum("bng,bnc->bngc", weights[0], values).flatten(2)
    if len(weights) == 1:
        return first.sum(dim=1).unflatten(1, (weights[0].shape[-1], -1))
    rest = weights[1]
    for weight in weights[2:]:
        rest = (rest.unsqueeze(-1) * weight.unsqueeze(-2)).flatten(2)
    grid = (first.transpose(1, 2) @ rest).unflatten(1, (weights[0].shape[-1], -1)).movedim(2, -1)
    return grid.unflatten(2, [weight.shape[-1] for weight in weights[1:]])


def grid_to_points(
    grid: Float[Tensor, "batch *shape channels"], weights: Sequence[Float[Tensor, "batch points _"]]
) -> Float[Tensor, "batch points channels"]:
    """values_n = Σ_{i, j, …} w_n(i) w_n(j) … h(i, j, …), one dimension after the other."""
    values = weights[0] @ grid.flatten(2)
    for weight in weights[1:]:
        values = torch.einsum("bng,bngr->bnr", weight, values.unflatten(2, (weight.shape[-1], -1)))
    return values


class ToGrid(nn.Module):
    """h⁰(u) = Σ_n ψ(u − x_n), h(u) = Σ_n y_n ψ(u − x_n) / h⁰(u): the density of the context and its smoothed outputs.

    Args:
        on_grid: the context lies on the lattice; each point goes to its own cell, instead of ψ being a Gaussian.
    """

    def __init__(self, on_grid: bool) -> None:
        super().__init__()
        self.on_grid = on_grid
        if not on_grid:
            self.log_lengthscale = nn.Parameter(torch.zeros(()))

    def forward(
        self,
        lattice: Lattice,
        x: Float[Tensor, "batch points dim_x"],
        y: Float[Tensor, "batch points dim_y"],
        mask: Tensor | None,
    ) -> Float[Tensor, "batch *shape channels"]:
        values = torch.cat([torch.ones_like(y[..., :1]), y], dim=-1)
        if mask is not None:
            values = values * mask.unsqueeze(-1)
        if self.on_grid:
            cells = own_cells(lattice, x).expand(-1, -1, values.shape[-1])
            empty = values.new_zeros(len(values), math.prod(lattice.shape), values.shape[-1])
            grid = empty.scatter_add(1, cells, values).unflatten(1, lattice.shape)
        else:
            squares = squared_distances(lattice, x, y.dtype)
            grid = points_to_grid(values, gaussian_weights(squares, self.log_lengthscale.exp()))
        density, smoothed = grid.tensor_split([1], dim=-1)
        return torch.cat([density, smoothed / (density + 1e-6)], dim=-1)


class FromGrid(nn.Module):
    """f(x) = Σ_u h(u) ψ(x − u), where the channels share out several learned lengthscales.

    Args:
        on_grid: the targets lie on the lattice; each reads its own cell, instead of ψ being a Gaussian.
        lengthscales: number of lengthscales; they start between half a cell and four cells.
    """

    def __init__(self, on_grid: bool, lengthscales: int) -> None:
        super().__init__()
        self.on_grid = on_grid
        if not on_grid:
            self.log_lengthscales = nn.Parameter(torch.linspace(-0.7, 1.4, lengthscales))

    def forward(
        self,
        lattice: Lattice,
        grid: Float[Tensor, "batch *shape channels"],
        x: Float[Tensor, "batch points dim_x"],
    ) -> Float[Tensor, "batch points channels"]:
        if self.on_grid:
            return grid.flatten(1, -2).gather(1, own_cells(lattice, x).expand(-1, -1, grid.shape[-1]))
        squares = squared_distances(lattice, x, grid.dtype)
        parts = []
        for part, log in zip(grid.tensor_split(len(self.log_lengthscales), dim=-1), self.log_lengthscales, strict=True):
            lengthscale = log.exp()
            # A Gaussian's sum over the lattice, so that a constant field comes out as it went in.
            volume = (2.5066282746310002 * lengthscale) ** x.shape[-1]
            parts.append(grid_to_points(part, gaussian_weights(squares, lengthscale)) / volume)
        return torch.cat(parts, dim=-1)
