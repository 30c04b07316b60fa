"""Cells: a division of space into boxes, each small beside the distance of the points that it is predicted from."""

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aenp.nn.vecchia import APART, TILT

LEVELS = 20
"Halvings from the largest box to the size of the points' extent, and from there to the smallest box."
SIZE = 0.75
"The largest half diagonal of a cell, relative to the radius of the ball that holds its points."

LEAST = 1e-3
"The least factor of a place's weight in a cell, at its border."
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
    offset: float = 0.0,
    values: Float[Tensor, " points"] | float = 0.0,
) -> Iterator[Cell]:
    """The cells with places in them, each with the `count` points nearest to its middle.

    Boxes are halved along every axis, from a huge one around a point near the origin, until they are small beside the
    distance of their points. So cells are large in gaps between the points, and a place's cell does not depend on other
    places. With an `offset`, in extents of the points along every axis, borders lie elsewhere: with 2/3 and 4/3 by a
    third and two thirds of a box, in either order, for every box of up to twice the extent, as 1/3 = 1/4 + 1/16 + ….
    Points at the same place are told apart by their `values`, of about one.
    """
    extent = points.abs().max().clamp(min=torch.finfo(points.dtype).tiny)
    middle, tilt = (points.new_tensor(each[: points.shape[1]]) for each in (MIDDLE, TILT))
    points, places = (each - extent * (middle + offset) for each in (points, places))
    apart = APART * extent * values
    corners = torch.tensor(list(product((-1, 1), repeat=points.shape[1]))).to(points)
    stack = [(torch.zeros_like(points[0]), LEVELS, torch.arange(len(places), device=places.device))]
    while stack:
        centre, level, members = stack.pop()
        half = extent * 2.0**level
        difference = points - centre
        near = (difference.norm(dim=1) + difference @ tilt + apart).topk(count, largest=False, sorted=False)
        if half * len(centre) ** 0.5 <= SIZE * near.values.max() or level == -LEVELS:
            inside = 1 - ((places[members] - centre) / half).square()
            yield Cell(near.indices, members, inside.clamp(min=LEAST).prod(dim=1))
            continue
        side = torch.where(places[members] > centre, 1.0, -1.0)
        for corner in corners:
            inside = members[(side == corner).all(dim=1)]
            if len(inside):
                stack.append((centre + half / 2 * corner, level - 1, inside))
