"""Set convolutions: from points to a grid and back, one dimension at a time."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from aenp.nn.lattice import Lattice, excess, largest_array

WIDE = 2**14
"The number of cells above which it pays to select those that matter."
SUMS = 2**24
"The largest number of values in the partial sums of some points over a part of the grid."


def distances(
    cell: Float[Tensor, "batch points dim_x"], offset: Float[Tensor, "batch points dim_x"], shape: Sequence[int]
) -> list[Float[Tensor, "batch points _"]]:
    """The distance in cells from each point to each cell of the grid, for each dimension."""
    indices = (torch.arange(count, device=cell.device, dtype=cell.dtype) for count in shape)
    return [(index - cell[..., d : d + 1]) - offset[..., d : d + 1] for d, index in enumerate(indices)]


def gaussian(square: Float[Tensor, "*shape"], scale: Float[Tensor, ""]) -> Float[Tensor, "*shape"]:
    """exp(scale · distance²), scale < 0, but no less than e⁻³⁰: numbers too small for float32 slow a CPU down."""
    return (square * scale).clamp_(min=-30).exp_()


def own_cells(lattice: Lattice, x: Float[Tensor, "batch points dim_x"]) -> Int[Tensor, "batch points 1"]:
    """The index of each point's own cell in the flattened grid."""
    cell, _ = lattice.locate(x, torch.float64)
    index = torch.zeros_like(cell[..., 0])
    for d, count in enumerate(lattice.shape):
        index = index * count + cell[..., d].clamp(0, count - 1)
    return index.long().unsqueeze(-1)


def points_to_grid(
    values: Float[Tensor, "batch points channels"], weights: Sequence[Float[Tensor, "batch points _"]]
) -> Float[Tensor, "batch *shape channels"]:
    """h(i, j, …) = Σ_n w_n(i) w_n(j) … values_n, as one product of matrices over the points."""
    if len(weights) == 1:
        return weights[0].mT @ values
    first = torch.einsum("bng,bnc->bngc", weights[0], values).flatten(2)
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
            _check_weights(values, lattice.shape)
            scale = -0.5 * (-2 * self.log_lengthscale).exp()
            away = distances(*lattice.locate(x, y.dtype), lattice.shape)
            weights = [gaussian(distance.square(), scale) for distance in away]
            # Half precision cannot hold what is divided by the density where that is small.
            with torch.autocast(values.device.type, enabled=False):
                grid = points_to_grid(values, weights)
        density, smoothed = grid.tensor_split([1], dim=-1)
        return torch.cat([density, smoothed / (density + 1e-6)], dim=-1)


def _check_weights(values: Float[Tensor, "batch points channels"], shape: Sequence[int]) -> None:
    """Raises an error if the weights of all points, and their products with the values, are too large."""
    batch, points, channels = values.shape
    widest = shape[0] if len(shape) == 1 else max(shape[0] * channels, math.prod(shape[1:]))
    size = batch * points * widest * values.dtype.itemsize
    if size > largest_array():
        raise ValueError(
            f"{batch} × {points} context points on a grid of {' × '.join(map(str, shape))} cells need "
            f"{excess(size)}. Give fewer, lower points_per_unit, or use on_grid=True for data on a lattice"
        )


class FromGrid(nn.Module):
    """f(x) = Σ_u h(u) ψ(x − u), where the channels are divided among several learned lengthscales.

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
        scales = -0.5 * (-2 * self.log_lengthscales).exp()
        cell, offset = lattice.locate(x, grid.dtype)
        values = GaussianRead.apply(*_in_reach(grid, cell, scales), offset, scales)
        # A Gaussian's sum over the lattice, so that a constant field is preserved.
        volume = (-scales / torch.pi) ** (x.shape[-1] / 2)
        sizes = torch.tensor([end - start for start, end in _shares(grid.shape[-1], len(scales))], device=x.device)
        return values * volume.repeat_interleave(sizes, output_size=grid.shape[-1])


def _in_reach(
    grid: Float[Tensor, "batch *shape channels"],
    cell: Float[Tensor, "batch points dim_x"],
    scales: Float[Tensor, " scales"],
) -> tuple[Float[Tensor, "batch *part channels"], Float[Tensor, "batch points dim_x"]]:
    """The part of a wide grid where a point's Gaussians exceed e⁻³⁰, and the points' cells relative to its corner."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or math.prod(grid.shape[1:-1]) < WIDE:
        return grid, cell
    reach = math.ceil(math.sqrt(30 / -scales.max().item()))
    parts, corner = [slice(None)], []
    for d, count in enumerate(grid.shape[1:-1]):
        first = min(max(int(cell[..., d].min()) - reach, 0), count - 1)
        parts.append(slice(first, max(int(cell[..., d].max()) + reach, first) + 1))
        corner.append(first)
    return grid[tuple(parts)], cell - cell.new_tensor(corner)


def _shares(channels: int, parts: int) -> list[tuple[int, int]]:
    """The first channel of each part and the one after its last."""
    ends = [channels * (k + 1) // parts for k in range(parts)]
    return list(zip([0, *ends], ends, strict=False))


def _moment(grid: Tensor, weights: list[Tensor], d: int, factor: Tensor) -> Tensor:
    """Σ_u w · factor · h(u), with the factor in dimension d."""
    return grid_to_points(grid, [*weights[:d], weights[d] * factor, *weights[d + 1 :]])


class GaussianRead(torch.autograd.Function):
    """values_n = Σ_u exp(scale · |x_n − u|²) h(u), where each scale has its share of the channels.

    Computed for a few tasks at a time, whose weights stay in the cache, or for some points of one task, and once more
    in the backward pass: memory is linear in the numbers of points and of cells.
    """

    @staticmethod
    def forward(ctx: Any, grid: Tensor, cell: Tensor, offset: Tensor, scales: Tensor) -> Tensor:
        ctx.save_for_backward(grid, cell, offset, scales)
        values = grid.new_empty(*cell.shape[:2], grid.shape[-1])
        for rows, some in GaussianRead._parts(grid, cell, scales):
            squares = [away.square() for away in distances(cell[rows, some], offset[rows, some], grid.shape[1:-1])]
            for scale, (start, end) in zip(scales, _shares(grid.shape[-1], len(scales)), strict=True):
                weights = [gaussian(square, scale) for square in squares]
                values[rows, some, start:end] = grid_to_points(grid[rows, ..., start:end], weights)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        grid, cell, offset, scales = ctx.saved_tensors
        to_grid, to_scales = torch.zeros_like(grid), torch.zeros_like(scales)
        to_offset = torch.zeros_like(offset)
        for rows, some in GaussianRead._parts(grid, cell, scales):
            away = distances(cell[rows, some], offset[rows, some], grid.shape[1:-1])
            squares = [distance.square() for distance in away]
            for k, (start, end) in enumerate(_shares(grid.shape[-1], len(scales))):
                part, part_gradient = grid[rows, ..., start:end], gradient[rows, some, start:end]
                weights = [gaussian(square, scales[k]) for square in squares]
                to_grid[rows, ..., start:end] += points_to_grid(part_gradient, weights)
                for d in range(len(away)):
                    # dw/dscale = w · distance², and dw/dx = −2 · scale · w · distance
                    to_scales[k] += (_moment(part, weights, d, squares[d]) * part_gradient).sum()
                    if ctx.needs_input_grad[2]:
                        slope = (_moment(part, weights, d, away[d]) * part_gradient).sum(dim=-1)
                        to_offset[rows, some, d] -= 2 * scales[k] * slope
        return to_grid, None, to_offset if ctx.needs_input_grad[2] else None, to_scales

    @staticmethod
    def _parts(grid: Tensor, cell: Tensor, scales: Tensor) -> list[tuple[slice, slice]]:
        """Tasks whose weights fit in the cache together, with all their points or as many as there is room for."""
        (tasks, points), (first, *others) = cell.shape[:2], grid.shape[1:-1]
        step = max(1, 2**17 // (points * max(grid.shape[1:-1])))
        some = max(1, SUMS // (max(first, math.prod(others)) * -(-grid.shape[-1] // len(scales))))
        return [
            (slice(task, task + step), slice(point, point + some))
            for task in range(0, tasks, step)
            for point in range(0, points, some)
        ]
