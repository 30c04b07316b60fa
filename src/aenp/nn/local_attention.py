"""Local attention: between points and the tokens of a grid around them, and among neighbouring tokens.

With spectral logits and values, as in `Spectral`: exactly translation equivariant. The cost is linear in the numbers of
points and of tokens.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Complex, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from aenp.nn.attention import Kernel, Mask
from aenp.nn.lattice import Lattice
from aenp.nn.spectral import turn

BLOCK = 64
"About how many tokens look for their neighbours together: their windows overlap, so that each is copied rarely."
SMALL = 256
"The largest number of tokens of which all pairs are compared: on a small grid one product is faster than a selection."
PAIRS = 2**14
"How many pairs of a point and a token near it are compared at a time, so that they stay in the cache."
ALL_PAIRS = 2**24
"The largest number of pairs that are compared at once, so that memory is linear in the points."


class Tokens(NamedTuple):
    """Tokens on a grid, as a local attention takes their positions; those of all tasks in one row."""

    phases: Complex[Tensor, "tokens heads pairs"]
    shape: tuple[int, ...]
    "The grid's, whose cells the tokens of a task fill in order."


class Points(NamedTuple):
    """Points among tokens, as a local attention takes their positions; those of all tasks in one row."""

    phases: Complex[Tensor, "points heads pairs"]
    near: Int[Tensor, "points near"]
    "The tokens around each point, counted through all tasks."
    weight: Float[Tensor, "points near"]
    "How much they are seen: 1 in the same place, falling to 0 where sight ends."
    bias: Float[Tensor, "batch points tokens"] | None
    "The logarithm of how much each point sees every token of its task, if all pairs are compared."

    def parts(self) -> list[slice]:
        """As many points at a time as are compared together."""
        step = max(1, PAIRS // self.near.shape[1])
        return [slice(first, first + step) for first in range(0, len(self.near), step)]


def in_a_row(h: Shaped[Tensor, "batch heads points size"]) -> Shaped[Tensor, "rows heads size"]:
    """The points of all tasks, one after the other."""
    return h.transpose(1, 2).flatten(0, 1)


def among(
    lattice: Lattice,
    x: Float[Tensor, "batch points dim_x"],
    phases: Complex[Tensor, "batch heads points pairs"],
    sight: int,
) -> Points:
    """Where points, relative to a lattice's origin, are among tokens in its cells: each sees (2 sight)^dim_x of them.

    The weights of these are Π_d (1 − 3 Δ_d² + 2 |Δ_d|³), with Δ the distance in cells over `sight`: they sum to
    sight^dim_x, and a token that comes into sight or goes out of it has no weight, so that predictions are smooth.
    """
    position = x / x.new_tensor(lattice.spacing)
    corner = position.floor()
    steps = torch.tensor(list(product(range(1 - sight, 1 + sight), repeat=x.shape[-1])), device=x.device)
    away = (steps - (position - corner).unsqueeze(-2)).abs() / sight
    cells = corner.unsqueeze(-2) + steps
    shape = cells.new_tensor(lattice.shape)
    inside = ((cells >= 0) & (cells < shape)).all(dim=-1)
    weight = (1 - away.square() * (3 - 2 * away)).prod(dim=-1) * inside
    strides = [math.prod(lattice.shape[d + 1 :]) for d in range(len(lattice.shape))]
    number = (cells.clamp(min=0).minimum(shape - 1) * cells.new_tensor(strides)).sum(dim=-1).long()
    near = number + math.prod(lattice.shape) * torch.arange(len(x), device=x.device)[:, None, None]
    weight, tokens, bias = weight.to(phases.real.dtype), math.prod(lattice.shape), None
    if tokens <= SMALL and len(x) * x.shape[1] * tokens <= ALL_PAIRS:
        seen = torch.where(weight > 0, weight, 1.0).log().masked_fill(weight <= 0, -math.inf)
        bias = seen.new_full((*seen.shape[:2], tokens), -math.inf).scatter_reduce(2, number, seen, "amax")
    return Points(in_a_row(phases), near.flatten(0, 1), weight.flatten(0, 1), bias)


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
        if context_x.bias is not None:
            return unrows(all_pairs(q, k, v, context_x.bias.mT, mask), x.phases, len(query))
        near, parts = context_x.near, context_x.parts()
        weight = context_x.weight if mask is None else context_x.weight * mask.view(-1, 1)
        logits = [dots(k[part], q[near[part]], weight[part]) for part in parts]
        with torch.no_grad():
            top = q.new_zeros(q.shape[:2])
            for part, some in zip(parts, logits, strict=True):
                index = near[part].flatten().unsqueeze(-1).expand(-1, q.shape[1])
                top.scatter_reduce_(0, index, some.flatten(0, 1), "amax")
        total, out = (-top).exp(), torch.zeros_like(q)
        for part, some in zip(parts, logits, strict=True):
            index, share = near[part].flatten(), weight[part].unsqueeze(-1) * (some - top[near[part]]).exp()
            total.index_add_(0, index, share.flatten(0, 1))
            out.index_add_(0, index, (share.unsqueeze(-1) * v[part].unsqueeze(1)).flatten(0, 1))
        return unrows(out / total.unsqueeze(-1), x.phases, len(query))


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
        if x.bias is not None:
            return unrows(all_pairs(q, k, v, x.bias, mask), x.phases, len(query))
        weight = x.weight if mask is None else x.weight * mask.flatten()[x.near]
        out = []
        for part in x.parts():
            logits = dots(q[part], k[x.near[part]], weight[part])
            top = logits.detach().amax(dim=1, keepdim=True).clamp(min=0)
            share = weight[part].unsqueeze(-1) * (logits - top).exp()
            total = (-top).exp().squeeze(1) + share.sum(dim=1)
            out.append((share.unsqueeze(-1) * v[x.near[part]]).sum(dim=1) / total.unsqueeze(-1))
        return unrows(torch.cat(out), x.phases, len(query))


def all_pairs(
    query: Float[Tensor, "all_queries heads size"],
    key: Float[Tensor, "all_keys heads size"],
    value: Float[Tensor, "all_keys heads size"],
    bias: Float[Tensor, "batch queries keys"],
    mask: Mask,
) -> Float[Tensor, "all_queries heads size"]:
    """The same sums over all keys of a task, with a further key of zeros for the 1 in the denominator."""
    q, k, v = (h.unflatten(0, (len(bias), -1)).transpose(1, 2) for h in (query, key, value))
    if mask is not None:
        bias = bias.masked_fill(~mask.unsqueeze(1), -math.inf)
    bias = pad(bias, [0, 1]).unsqueeze(1)
    out = scaled_dot_product_attention(q, pad(k, [0, 0, 0, 1]), pad(v, [0, 0, 0, 1]), attn_mask=bias)
    return in_a_row(out)


def rows(
    channels: Float[Tensor, "batch heads points size"], phases: Complex[Tensor, "rows heads pairs"]
) -> Float[Tensor, "rows heads size"]:
    """The channels of all tasks' points in a row, turned by their phases."""
    return turn(in_a_row(channels).unsqueeze(0), phases.unsqueeze(0)).squeeze(0)


def unrows(
    out: Float[Tensor, "rows heads size"], phases: Complex[Tensor, "rows heads pairs"], batch: int
) -> Float[Tensor, "batch heads points size"]:
    """The channels of each task's points, turned back."""
    turned = turn(out.unsqueeze(0), phases.conj().unsqueeze(0)).squeeze(0)
    return turned.unflatten(0, (batch, -1)).transpose(1, 2)


def dots(
    a: Float[Tensor, "points heads size"],
    b: Float[Tensor, "points near heads size"],
    weight: Float[Tensor, "points near"],
) -> Float[Tensor, "points near heads"]:
    """Logits of each point and the tokens around it; 0 where these have no weight, so that they do not even scale."""
    logits = (a.unsqueeze(1) * b).sum(dim=-1) / math.sqrt(a.shape[-1])
    return logits.masked_fill((weight == 0).unsqueeze(-1), 0.0)


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
        mask: Mask,
    ) -> Float[Tensor, "batch heads tokens size"]:
        sides, batch = block_sides(x.shape), len(query)
        around, nothing = beyond(x.shape, sides, self.reach), [0] * len(sides)
        turned = [rows(h, x.phases).unflatten(0, (batch, -1)) for h in (query, key, value)]
        q, k, v = (blocks(h, x.shape, sides, n) for h, n in zip(turned, (nothing, around, around), strict=True))
        there = (query.new_ones(batch, query.shape[2]).bool() if mask is None else mask)[:, :, None, None]
        # A softmax over nothing is NaN: what is not there may see all that is near, and is never seen itself.
        seen = blocks(there, x.shape, sides, around).mT | ~blocks(there, x.shape, sides, nothing)
        out = scaled_dot_product_attention(q, k, v, attn_mask=seen & self._near(sides, around).to(seen.device))
        return unrows(unblocks(out, x.shape, sides).flatten(0, 1), x.phases, batch)

    @staticmethod
    def numbers(shape: Sequence[int], reach: int, dim: int) -> int:
        """How many numbers for each token the largest array holds, the keys or the mask of all blocks."""
        sides = block_sides(shape)
        around = math.prod([side + 2 * width for side, width in zip(sides, beyond(shape, sides, reach), strict=True)])
        return max(around, math.ceil(dim * around / math.prod(sides)))

    def _near(self, sides: Sequence[int], around: Sequence[int]) -> Bool[Tensor, "queries keys"]:
        """Which cells of a block and around it are within reach of which of its cells."""
        queries = torch.cartesian_prod(*[torch.arange(side) for side in sides]).view(-1, len(sides))
        spans = [torch.arange(-width, side + width) for side, width in zip(sides, around, strict=True)]
        keys = torch.cartesian_prod(*spans).view(-1, len(sides))
        return (keys - queries.unsqueeze(1)).abs().le(self.reach).all(dim=-1)


def block_sides(shape: Sequence[int]) -> list[int]:
    """The sides of equal blocks of about 64 cells that cover an array of this shape with little beyond it.

    A small array is one block.
    """
    if math.prod(shape) <= SMALL:
        return list(shape)
    side = round(BLOCK ** (1 / len(shape)))
    return [math.ceil(count / math.ceil(count / side)) for count in shape]


def beyond(shape: Sequence[int], sides: Sequence[int], reach: int) -> list[int]:
    """How many cells around a block are within reach of it; none in a dimension that has one block."""
    return [reach if side < count else 0 for count, side in zip(shape, sides, strict=True)]


def blocks(
    h: Shaped[Tensor, "batch tokens heads size"], shape: Sequence[int], sides: Sequence[int], around: Sequence[int]
) -> Shaped[Tensor, "blocks heads cells size"]:
    """The cells of each block and those around it, with zeros beyond the grid."""
    if list(sides) == list(shape):
        return h.transpose(1, 2)
    dim_x = len(shape)
    h = h.unflatten(1, tuple(shape))
    ends = [(width, width + -count % side) for count, side, width in zip(shape, sides, around, strict=True)]
    h = pad(h, [0, 0, 0, 0, *(width for pair in reversed(ends) for width in pair)])
    for d, (side, width) in enumerate(zip(sides, around, strict=True)):
        h = h.unfold(1 + d, side + 2 * width, side)
    # (batch, *blocks, heads, size, *cells) → (batch, *blocks, heads, *cells, size)
    return h.movedim(2 + dim_x, -1).flatten(2 + dim_x, -2).flatten(0, dim_x)


def unblocks(
    h: Float[Tensor, "blocks heads cells size"], shape: Sequence[int], sides: Sequence[int]
) -> Float[Tensor, "batch tokens heads size"]:
    """The tokens of each grid in order, from blocks of cells."""
    dim_x = len(shape)
    counts = [math.ceil(count / side) for count, side in zip(shape, sides, strict=True)]
    h = h.unflatten(2, tuple(sides)).unflatten(0, (-1, *counts))
    # (batch, *blocks, heads, *cells, size) → (batch, blocks, cells, blocks, cells, …, heads, size)
    pairs = [axis for d in range(dim_x) for axis in (1 + d, 2 + dim_x + d)]
    h = h.permute(0, *pairs, 1 + dim_x, 2 + 2 * dim_x)
    for d, count in enumerate(shape):
        h = h.flatten(1 + d, 2 + d).narrow(1 + d, 0, count)
    return h.flatten(1, dim_x)
