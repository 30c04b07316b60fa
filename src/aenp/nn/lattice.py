"""Lattice: a regular grid laid around each task, anchored on its context."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

LARGEST = 9e8
"The largest size of one array in bytes: a model holds up to five of them at a time."
GRADIENTS = 4
"How many times smaller it is with gradients, for which every layer keeps its inputs."


@dataclass(frozen=True, eq=False)
class Lattice:
    """A box of cells for each task: cell i has its centre at origin + spacing · i, and is in the box for i < size.

    A batch shares one array shape; the cells of a task beyond its own box are masked.

    Args:
        origin: the centre of cell 0, `(batch, 1, dim_x)`, in the coordinates' own dtype.
        spacing: distance between cells in each dimension.
        size: number of cells of each task's box, `(batch, dim_x)`.
        shape: the array's shape, at least every size.
        nodal: a coarser grid is made of every second cell, not of blocks of two.
    """

    origin: Float[Tensor, "batch 1 dim_x"]
    spacing: Sequence[float]
    size: Float[Tensor, "batch dim_x"]
    shape: tuple[int, ...]
    nodal: bool = False

    @classmethod
    def around(
        cls,
        anchor: Float[Tensor, "batch 1 dim_x"],
        points: Float[Tensor, "batch points dim_x"],
        mask: Bool[Tensor, "batch points"] | None,
        spacing: Sequence[float],
        margin: int,
        stride: int,
        nodal: bool = False,
    ) -> "Lattice":
        """The box that holds `points` and `margin` cells more on each side.

        One of its cells has its centre at the anchor, and the anchor's cell begins a block of `stride` cells; the
        box is made of whole blocks. So everything about it moves with the anchor. If `nodal`, the box begins and ends
        `stride` times a whole number of cells from the anchor, and turns with the data about it too.
        """
        cells = (points - anchor) / anchor.new_tensor(spacing)
        lower, upper = cells, cells
        if mask is not None:
            lower = torch.where(mask.unsqueeze(-1), cells, torch.inf)
            upper = torch.where(mask.unsqueeze(-1), cells, -torch.inf)
        # The tolerance keeps points that lie on the lattice from deciding by round-off whether a cell is added.
        below = (margin - lower.amin(dim=1) - 1e-3).ceil().clamp(max=1e9)
        above = (margin + upper.amax(dim=1) - 1e-3).ceil().clamp(max=1e9)
        empty = below + above < 0  # no point at all: one block
        first = torch.where(empty, 0, -(below / stride).ceil() * stride)
        last = (above / stride).ceil() * stride if nodal else ((above + 1) / stride).ceil() * stride - 1
        size = torch.where(empty, 0 if nodal else stride - 1, last) - first + 1
        origin = anchor + first.unsqueeze(1) * anchor.new_tensor(spacing)
        shape = largest_size(size)
        if torch.compiler.is_compiling():
            size = fitting(size, shape)
        return cls(origin, spacing, size, shape, nodal)

    def locate(
        self, x: Float[Tensor, "batch points dim_x"], dtype: torch.dtype
    ) -> tuple[Float[Tensor, "batch points dim_x"], Float[Tensor, "batch points dim_x"]]:
        """The cell nearest each point and the point's offset from its centre, in cells.

        The two parts are split in the coordinates' own dtype, so that little precision is lost in the model's.
        """
        position = (x - self.origin) / self.origin.new_tensor(self.spacing)
        cell = position.round()
        return cell.to(dtype), (position - cell).to(dtype)

    def check_on(self, x: Float[Tensor, "batch points dim_x"], mask: Bool[Tensor, "batch points"] | None) -> None:
        """Raises an error if a point that counts lies between cells."""
        off = self.locate(x, torch.float64)[1].abs().amax(dim=-1)
        worst = (off if mask is None else off * mask).max().item()
        if worst > 0.25:
            raise ValueError(
                f"on_grid=True needs points on a lattice of spacing {list(self.spacing)}; some are {worst:.2f} of a "
                "cell off. Check points_per_unit, or use on_grid=False"
            )

    def check_size(self, numbers: int, dtype: torch.dtype, remedy: str = "Lower points_per_unit") -> None:
        """Raises an error if arrays of the grid are too large, or its cells too small for the coordinates' dtype."""
        size = len(self.size) * math.prod(self.shape) * numbers * dtype.itemsize
        if size > largest_array():
            extent = " × ".join(f"{n * step:.6g}" for n, step in zip(self.shape, self.spacing, strict=True))
            raise ValueError(
                f"the grid would need {len(self.size)} × {' × '.join(map(str, self.shape))} cells to hold all its "
                f"points, an extent of {extent}: {excess(size)}. {remedy}, or split tasks of far-apart points"
            )
        if torch.compiler.is_compiling():
            return
        far = self.origin.abs().amax(dim=(0, 1))
        if bool((far * torch.finfo(far.dtype).eps > far.new_tensor(self.spacing)).any()):
            raise ValueError(
                f"{far.dtype} cannot resolve the cells of the grid, {min(self.spacing):.3g} wide, where xc and xt "
                f"are about {far.max().item():.3g}: shift them towards zero, or give them as float64"
            )

    def mask(self, stride: int, dtype: torch.dtype) -> Float[Tensor, "batch *shape 1"]:
        """1 in each task's own box and 0 beyond it, for blocks of `stride` cells."""
        dim_x = len(self.shape)
        mask = torch.ones(len(self.size), *[1] * dim_x, dtype=torch.bool, device=self.size.device)
        for d, count in enumerate(self.shape):
            inside = torch.arange(0, count, stride, device=self.size.device) < self.size[:, d : d + 1]
            mask = mask & inside.view(-1, *[1] * d, inside.shape[1], *[1] * (dim_x - d - 1))
        return mask.unsqueeze(-1).to(dtype)

    def centres(self, stride: int) -> Float[Tensor, "batch *shape dim_x"]:
        """The centres of the blocks of `stride` cells, or of every `stride`-th cell, in the user's coordinates."""
        return self.origin.view(-1, *[1] * len(self.shape), len(self.shape)) + self.offsets(stride)

    def offsets(self, stride: int) -> Float[Tensor, "*shape dim_x"]:
        """The same relative to the origin, for all tasks alike."""
        middle = 0.0 if self.nodal else (stride - 1) / 2
        axes = [
            (torch.arange(0, count, stride, device=self.origin.device, dtype=self.origin.dtype) + middle) * step
            for count, step in zip(self.shape, self.spacing, strict=True)
        ]
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def largest_array() -> float:
    """The largest size of one array in bytes."""
    return LARGEST / GRADIENTS if torch.is_grad_enabled() else LARGEST


def excess(size: float) -> str:
    """The message for an array of this many bytes, which is above the limit."""
    without = f" ({LARGEST / 1e9:g} GB without gradients, as in aenp.predict)" if torch.is_grad_enabled() else ""
    return f"arrays of {size / 1e9:.3g} GB, but the limit is {largest_array() / 1e9:.3g} GB{without}"


def largest_size(size: Tensor) -> tuple[int, ...]:
    return tuple(int(n) for n in size.amax(dim=0).tolist())


# torch.compile takes an array's shape from the inputs it compiles for, and `fitting` checks all later inputs.
largest_size._dynamo_marked_constant = True  # type: ignore[attr-defined]


@torch.library.custom_op("aenp::fitting", mutates_args=())
def fitting(size: Tensor, shape: Sequence[int]) -> Tensor:
    """The sizes unchanged; raises an error if they exceed the compiled shape."""
    if bool((size > size.new_tensor(shape)).any()):
        raise ValueError(
            f"the model was compiled for a grid of {' × '.join(map(str, shape))} cells, but these inputs need "
            f"{' × '.join(map(str, largest_size(size)))}; compile it for the largest extent, or call it uncompiled"
        )
    return size.clone()


@fitting.register_fake
def _(size: Tensor, shape: Sequence[int]) -> Tensor:
    return torch.empty_like(size)


def lattice_anchor(
    mean: Float[Tensor, "batch 1 dim_x"],
    x: Float[Tensor, "batch points dim_x"],
    mask: Bool[Tensor, "batch points"] | None,
    spacing: Sequence[float],
    always: bool = False,
) -> Float[Tensor, "batch 1 dim_x"]:
    """The context's mean, moved onto the context's own lattice in each dimension in which it has one.

    The points lie on a lattice of the given spacing if their phases φ_n = 2π x_n / spacing agree, that is, if
    |mean_n exp(i φ_n)| = 1; `always` assumes this. Either way the anchor moves with the points, whatever
    their order.
    """
    if x.shape[1] == 0:
        return mean
    steps = mean.new_tensor(spacing)
    angle = 2 * math.pi * (x - mean) / steps
    weight = torch.ones_like(x[..., :1]) if mask is None else mask.unsqueeze(-1).to(x.dtype)
    count = weight.sum(dim=1, keepdim=True).clamp(min=1)
    cosine = (weight * angle.cos()).sum(dim=1, keepdim=True) / count
    sine = (weight * angle.sin()).sum(dim=1, keepdim=True) / count
    on_lattice = cosine.square() + sine.square() > (0 if always else 1 - 1e-5)
    # The nearest node; round-off must not decide where the mean is halfway between two, so ties lie at an irrational
    # offset instead, where the mean of points on a lattice cannot be.
    tie = math.sqrt(2) - 1.05
    phase = torch.remainder(torch.atan2(sine, cosine) / (2 * math.pi) + tie, 1) - tie
    return mean + torch.where(on_lattice, phase * steps, 0.0)
