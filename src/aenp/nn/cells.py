"""Cells: a division of space into boxes, each small beside the distance of the points that it is predicted from."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aenp.nn.vecchia import APART, TILT, distances

LEVELS = 20
"Halvings from the largest box to the size of the points' extent, and from there to the smallest box."
UNDIVIDED = 4
"A level whose boxes, with a corner near the origin, are never small beside the distance of their points."
SIZE = 0.75
"The largest half diagonal of a cell, relative to the radius of the ball that holds its points."

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
    "Numbers of the points nearest to its middle."
    members: Int[Tensor, " members"]
    "Numbers of its places."
    weights: Float[Tensor, " members"]
    "Π_d (1 − u_d²) for a place at u ∈ [−1, 1]^d of the box: one at the middle, about zero at the border."


def cells(
    points: Float[Tensor, "points dim_x"],
    places: Float[Tensor, "places dim_x"],
    count: int,
    offset: float | Sequence[float] = 0.0,
    values: Float[Tensor, " points"] | float = 0.0,
) -> Iterator[Cell]:
    """The cells with places in them, each with the `count` points nearest to its middle.

    Boxes are halved along one axis after the other, from a huge one around a point near the origin, until they are
    small beside the distance of their points. So cells are large in gaps between the points, and a place's cell does
    not depend on other places. With an `offset`, in extents of the points along every axis, borders lie elsewhere: with
    2/3 and 4/3 by a third and two thirds of a box, in either order, for every box of up to twice the extent, as
    1/3 = 1/4 + 1/16 + ….
    Several offsets give the cells of as many divisions. Points at the same place are told apart by their `values`, of
    about one.
    """
    dim, rows, extent = (
        points.shape[1],
        max(1, BLOCK // len(points)),
        points.abs().max().clamp(min=torch.finfo(points.dtype).tiny),
    )
    middle, tilt = (points.new_tensor(each[:dim]) for each in (MIDDLE, TILT))
    lift = points @ tilt + APART * extent * values
    boxes = extent * (middle + points.new_tensor(offset).reshape(-1, 1))
    members = torch.arange(len(places), device=places.device).repeat(len(boxes))
    which = torch.arange(len(boxes), device=places.device).repeat_interleave(len(places))
    farthest = ((places.abs().max() + boxes.abs().max()) / extent).detach().clamp(max=2.0**LEVELS)
    steps = dim * (LEVELS + max(UNDIVIDED, math.ceil(farthest.log2())))
    for step in range(steps, -1, -1):
        half = extent * 2.0 ** ((step + torch.arange(dim)) // dim - LEVELS).to(points)
        apart = (distances(some, points) - (some @ tilt).unsqueeze(1) + lift for some in boxes.split(rows))
        radii, near = map(
            torch.cat, zip(*(each.topk(count, largest=False, sorted=False) for each in apart), strict=True)
        )
        small = (half.norm() <= SIZE * radii.amax(dim=1)) | (step == 0)
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
