"""Local attention: between points and the tokens of a grid around them, and among neighbouring tokens.

With spectral logits and values, as in `Spectral`: exactly translation equivariant. The cost is linear in the numbers of
points and of tokens.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from aenp.nn.attention import Kernel, Mask
from aenp.nn.lattice import Lattice
from aenp.nn.spectral import turn

BLOCK = 64
"About how many tokens look for their neighbours together: their windows overlap, so that each is copied rarely."


class Tokens(NamedTuple):
    """Tokens on a grid, as a local attention takes their positions."""

    phases: Complex[Tensor, "batch heads tokens pairs"]
    shape: tuple[int, ...]
    "The grid's, whose cells the tokens fill in order."


class Points(NamedTuple):
    """Points among tokens, as a local attention takes their positions."""

    phases: Complex[Tensor, "batch heads points pairs"]
    rows: Int[Tensor, "near rows"]
    "The tokens around each point of each task, counted through all tasks."
    weight: Float[Tensor, "near rows 1"]
    "How much they are seen: 1 in the same place, falling to 0 at the distance of one cell."


def among(lattice: Lattice, x: Float[Tensor, "batch points dim_x"], phases: Tensor) -> Points:
    """Where points, relative to a lattice's origin, are among tokens in its cells: each sees the 2^dim_x around it.

    The weights of these are Π_d (1 − 3 Δ_d² + 2 |Δ_d|³), with Δ the distance in cells: they sum to one, and a token
    that comes into sight or goes out of it has no weight, so that predictions are smooth.
    """
    position = x / x.new_tensor(lattice.spacing)
    corner = position.floor()
    steps = torch.tensor(list(product((0, 1), repeat=x.shape[-1])), device=x.device)
    away = (steps - (position - corner).unsqueeze(-2)).abs()
    cells = corner.unsqueeze(-2) + steps
    shape = cells.new_tensor(lattice.shape)
    inside = ((cells >= 0) & (cells < shape)).all(dim=-1)
    weight = (1 - away.square() * (3 - 2 * away)).prod(dim=-1) * inside
    strides = [math.prod(lattice.shape[d + 1 :]) for d in range(len(lattice.shape))]
    number = (cells.clamp(min=0).minimum(shape - 1) * cells.new_tensor(strides)).sum(dim=-1).long()
    first = math.prod(lattice.shape) * torch.arange(len(x), device=x.device)
    rows = (number + first[:, None, None]).flatten(0, 1).T.contiguous()
    return Points(phases, rows, weight.to(phases.dtype.to_real()).flatten(0, 1).T.unsqueeze(-1))


class ReadPoints(Kernel):
    """out(i) = Σ_j w_ij e^{logit(i, j)} v_j / (1 + Σ_j w_ij e^{logit(i, j)}): a token i reads the points j around it.

    The 1 stands for nothing being there: without points the result is zero, and it grows with them.
    """

    def forward(
        self,
        query: Float[Tensor, "batch heads tokens size"],
        key: Float[Tensor, "batch heads points size"],
        value: Float[Tensor, "batch heads points size"],
        x: Tokens,
        context_x: Points,
        mask: Mask,
    ) -> Float[Tensor, "batch heads tokens size"]:
        q, k, v = rows(query, x.phases), rows(key, context_x.phases), rows(value, context_x.phases)
        weight = context_x.weight if mask is None else context_x.weight * mask.flatten().unsqueeze(-1)
        logits = torch.stack([dots(k, q.index_select(0, near)) for near in context_x.rows])
        index = context_x.rows.flatten()
        with torch.no_grad():
            top = q.new_zeros(q.shape[:2])
            top = top.scatter_reduce(0, index.unsqueeze(-1).expand(-1, q.shape[1]), logits.flatten(0, 1), "amax")
        share = weight * (logits - top.index_select(0, index).view_as(logits)).exp()
        total = (-top).exp().index_add(0, index, share.flatten(0, 1))
        out = torch.zeros_like(q)
        for near, part in zip(context_x.rows, share, strict=True):
            out = out.index_add(0, near, part.unsqueeze(-1) * v)
        return unrows(out / total.unsqueeze(-1), x.phases)


class ReadTokens(Kernel):
    """The same for a point i that reads the tokens j around it."""

    def forward(
        self,
        query: Float[Tensor, "batch heads points size"],
        key: Float[Tensor, "batch heads tokens size"],
        value: Float[Tensor, "batch heads tokens size"],
        x: Points,
        context_x: Tokens,
        mask: Mask,
    ) -> Float[Tensor, "batch heads points size"]:
        q, k, v = rows(query, x.phases), rows(key, context_x.phases), rows(value, context_x.phases)
        weight = x.weight if mask is None else x.weight * mask.flatten()[x.rows].unsqueeze(-1)
        logits = torch.stack([dots(q, k.index_select(0, near)) for near in x.rows])
        top = logits.detach().amax(dim=0).clamp(min=0)
        share = weight * (logits - top).exp()
        parts = (part.unsqueeze(-1) * v.index_select(0, near) for near, part in zip(x.rows, share, strict=True))
        total = (-top).exp() + share.sum(dim=0)
        return unrows(sum(parts, torch.zeros_like(q)) / total.unsqueeze(-1), x.phases)


def rows(channels: Float[Tensor, "batch heads points size"], phases: Tensor) -> Float[Tensor, "rows heads size"]:
    """The channels turned by the phases, one row for each point of each task."""
    return turn(channels, phases).transpose(1, 2).flatten(0, 1)


def unrows(out: Float[Tensor, "rows heads size"], phases: Tensor) -> Float[Tensor, "batch heads points size"]:
    """The channels of each task's points, turned back by the phases."""
    return turn(out.unflatten(0, (len(phases), -1)).transpose(1, 2), phases.conj())


def dots(a: Float[Tensor, "rows heads size"], b: Float[Tensor, "rows heads size"]) -> Float[Tensor, "rows heads"]:
    return (a * b).sum(dim=-1) / math.sqrt(a.shape[-1])


class Window(Kernel):
    """Each token attends to those up to `reach` cells away in every dimension, itself included.

    The tokens are divided into blocks. Those of a block attend together to its cells and those within reach of it, with
    a mask for what is near each: the result does not depend on the blocks.

    Args:
        reach: number of cells.
    """

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    def forward(
        self,
        query: Float[Tensor, "batch heads tokens size"],
        key: Float[Tensor, "batch heads tokens size"],
        value: Float[Tensor, "batch heads tokens size"],
        x: Tokens,
        context_x: Tokens,
        mask: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch heads tokens size"]:
        sides = block_sides(x.shape)
        turned = turn(query, x.phases), turn(key, x.phases), turn(value, x.phases)
        q, k, v = (
            blocks(h, x.shape, sides, reach) for h, reach in zip(turned, (0, self.reach, self.reach), strict=True)
        )
        there = mask[:, None, :, None]
        # A softmax over nothing is NaN: what is not there may see all that is near, and is never seen itself.
        seen = blocks(there, x.shape, sides, self.reach).mT | ~blocks(there, x.shape, sides, 0)
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen & self._near(sides).to(seen.device))
        return turn(unblocks(out, x.shape, sides), x.phases.conj())

    @staticmethod
    def copies(shape: Sequence[int], reach: int) -> int:
        """How many times as large as the grid the arrays of all blocks and what is around them are, rounded up."""
        sides = block_sides(shape)
        return math.ceil(math.prod(side + 2 * reach for side in sides) / math.prod(sides))

    def _near(self, sides: Sequence[int]) -> Bool[Tensor, "queries keys"]:
        """Which cells of a block and around it are within reach of which of its cells."""
        queries = torch.cartesian_prod(*[torch.arange(side) for side in sides]).view(-1, len(sides))
        keys = torch.cartesian_prod(*[torch.arange(side + 2 * self.reach) for side in sides]).view(-1, len(sides))
        return (keys - self.reach - queries.unsqueeze(1)).abs().le(self.reach).all(dim=-1)


def block_sides(shape: Sequence[int]) -> list[int]:
    """The sides of equal blocks of about 64 cells that cover an array of this shape with little beyond it."""
    side = round(BLOCK ** (1 / len(shape)))
    return [math.ceil(count / math.ceil(count / side)) for count in shape]


def blocks(
    h: Tensor,  # Shaped[Tensor, "batch heads tokens size"]
    shape: Sequence[int],
    sides: Sequence[int],
    reach: int,
) -> Tensor:
    """The cells of each block and those within reach, `(batch · blocks, heads, cells, size)`; beyond are zeros."""
    dim_x = len(shape)
    h = h.unflatten(2, tuple(shape))
    around = [(reach, reach + -count % side) for count, side in zip(shape, sides, strict=True)]
    h = pad(h, [0, 0, *(width for pair in reversed(around) for width in pair)])
    for d, side in enumerate(sides):
        h = h.unfold(2 + d, side + 2 * reach, side)
    # (batch, heads, *blocks, size, *cells) → (batch, *blocks, heads, *cells, size)
    order = [0, *range(2, 2 + dim_x), 1, *range(3 + dim_x, 3 + 2 * dim_x), 2 + dim_x]
    h = h.permute(order)
    return h.flatten(2 + dim_x, 1 + 2 * dim_x).flatten(0, dim_x)


def unblocks(
    h: Float[Tensor, "blocks heads cells size"], shape: Sequence[int], sides: Sequence[int]
) -> Float[Tensor, "batch heads tokens size"]:
    """The tokens of the grid in order, from blocks of cells."""
    dim_x = len(shape)
    counts = [math.ceil(count / side) for count, side in zip(shape, sides, strict=True)]
    h = h.unflatten(2, tuple(sides)).unflatten(0, (-1, *counts))
    # (batch, *blocks, heads, *cells, size) → (batch, heads, blocks, cells, blocks, cells, …, size)
    pairs = [axis for d in range(dim_x) for axis in (1 + d, 2 + dim_x + d)]
    h = h.permute(0, 1 + dim_x, *pairs, 2 + 2 * dim_x)
    for d, count in enumerate(shape):
        h = h.flatten(2 + d, 3 + d).narrow(2 + d, 0, count)
    return h.flatten(2, 1 + dim_x)
