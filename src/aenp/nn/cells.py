"""Cells: a division of space into boxes, each small beside the distance of the points that it is predicted from.

Half of these are all points of a ball around the box, the others lie beyond it, the farther the sparser.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aenp.nn.vecchia import distances, order

LEVELS = 20
"Halvings from the largest box to the size of the points' extent, and from there to the smallest box."
UNDIVIDED = 4
"A level whose boxes, with a corner near the origin, are never small beside the distance of their points."
SIZE = 0.75
"The largest half diagonal of a cell, relative to the radius of the ball with half as many points as it has."
SOME, CLOSE = 512, 50
"Number of points that tell the distance between neighbours, and how much closer than even these may be."
LEAST_PHASE = 1e-9
"The least phase that a point counts with, so that none is taken at any distance."

BLOCK = 2**20
"Distances that are computed at a time, few enough for any memory."
LEAST = 1e-3
"The least factor of a place's weight in a cell, at its border."
SHARE = 0.5
"The share of a place's largest weight that counts from zero, so that most places are predicted in one or two cells."
MIDDLE = (0.1371, 0.0923, 0.1719, 0.1153)
"Generic middle of the largest box, relative to the points' extent, so that a lattice has no places on borders."


class Cell(NamedTuple):
    """A box with places in it."""

    near: Int[Tensor, " count"]
    "Numbers of the points that it is predicted from."
    members: Int[Tensor, " members"]
    "Numbers of its places."
    weights: Float[Tensor, " members"]
    "Π_d (1 − u_d²) for a place at u ∈ [−1, 1]^d of the box: one at the middle, about zero at the border."


def cells(
    points: Float[Tensor, "points dim_x"],
    places: Float[Tensor, "places dim_x"],
    count: int,
    offset: float | Sequence[float] = 0.0,
    values: Float[Tensor, " points"] | None = None,
) -> Iterator[Cell]:
    """The cells with places in them, each with `count` points.

    A point at distance r from the middle of a box is taken if r φ^(1/2d) is among the smallest, with a φ between 0 and
    1 that is as good as random: all points nearer than some radius c, and beyond it a share (c/r)^2d of them. In d
    dimensions that makes as many points within c as beyond.

    Boxes are halved along one axis after the other, from a huge one around a point near the origin, until they are
    small beside the distance of their points. So cells are large in gaps between the points, and a place's cell does
    not depend on other places. With an `offset`, in extents of the points along every axis, borders lie elsewhere: with
    2/3 and 4/3 by a third and two thirds of a box, in either order, for every box of up to twice the extent, as
    1/3 = 1/4 + 1/16 + ….
    Several offsets give the cells of as many divisions. Points at the same place are told apart by their `values`, of
    about one.
    """
    values = points.new_zeros(len(points)) if values is None else values
    dim, rows = points.shape[1], max(1, BLOCK // len(points))
    extent = points.abs().max().clamp(min=torch.finfo(points.dtype).tiny ** 0.4)  # whose square is a number
    thinned = _phases(points, values).clamp(min=LEAST_PHASE) ** (0.5 / dim)
    boxes = extent * (points.new_tensor(MIDDLE[:dim]) + points.new_tensor(offset).reshape(-1, 1))
    members = torch.arange(len(places), device=places.device).repeat(len(boxes))
    which = torch.arange(len(boxes), device=places.device).repeat_interleave(len(places))
    farthest = ((places.abs().max() + boxes.abs().max()) / extent).detach().clamp(max=2.0**LEVELS)
    steps = dim * (LEVELS + max(UNDIVIDED, math.ceil(farthest.log2())))
    for step in range(steps, -1, -1):
        half = extent * 2.0 ** ((step + torch.arange(dim)) // dim - LEVELS).to(points)
        apart = (distances(some, points) for some in boxes.split(rows))
        radii, near = map(torch.cat, zip(*(_of_box(each, thinned, count) for each in apart), strict=True))
        small = (half.norm() <= SIZE * radii) | (step == 0)
        for number in small.nonzero()[:, 0]:
            here = members[which == number]
            inside = 1 - ((places[here] - boxes[number]) / half).square()
            yield Cell(near[number], here, inside.clamp(min=LEAST).prod(dim=1))
        further = ~small[which]
        members, which = members[further], which[further]
        if not len(members):
            return
        axis = -step % dim
        above = places[members, axis] > boxes[which, axis]
        numbers, which = (2 * which + above).unique(return_inverse=True)
        boxes = boxes[numbers // 2]
        boxes[:, axis] += half[axis] * (numbers % 2 - 0.5).to(points)


def _of_box(
    apart: Float[Tensor, "boxes points"], thinned: Float[Tensor, " points"], count: int
) -> tuple[Float[Tensor, " boxes"], Int[Tensor, "boxes count"]]:
    """The radius of the ball around each box that holds half of `count` points, and the points that it is given."""
    radii = apart.topk(-(-count // 2), largest=False, sorted=False).values.amax(dim=1)
    return radii, apart.mul_(thinned).topk(count, largest=False, sorted=False).indices


def _phases(points: Float[Tensor, "points dim_x"], values: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """Numbers between 0 and 1, as good as random, with places in units of the median distance to the nearest other.

    On a lattice those of neighbours differ by the same numbers, so that they are spread more evenly than at random.
    Some of the points, as good as random too, tell the distance.
    """
    every = torch.ones_like(values, dtype=torch.bool)[None]
    even = points.square().sum(dim=1).mean().sqrt() * len(points) ** (-1 / points.shape[1])
    even = torch.where(even > 0, even, 1.0)
    numbers = order(points[None] / even, values[None], every)[0].topk(min(SOME, len(points)), largest=False).indices
    nearest = distances(points[numbers], points).topk(min(2, len(points)), largest=False).values[:, -1].median()
    return order(points[None] / torch.maximum(nearest, even / CLOSE), values[None], every)[0]


def where_they_count(found: list[Cell], places: int) -> list[Cell]:
    """Cells of several divisions, each with those places alone whose weight is more than a share of their largest."""
    largest, kept = found[0].weights.new_zeros(places), []
    for cell in found:
        largest[cell.members] = torch.maximum(largest[cell.members], cell.weights)
    for near, members, weights in found:
        beyond = weights - SHARE * largest[members]
        some = beyond > 0
        if some.any():
            kept.append(Cell(near, members[some], beyond[some]))
    return kept
