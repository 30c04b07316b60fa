"""Cells: a place's cell is a matter of the points alone, whatever else is asked for and in whichever unit."""

import warnings

import pytest
import torch
from torch import Tensor

from aenp.nn.cells import cells, where_they_count

OFFSETS = (0.0, 2 / 3, 4 / 3)
SCENES = pytest.mark.parametrize("scene", ["even", "one far from the others", "on one side"])


def draw(scene: str, dim_x: int) -> tuple[Tensor, Tensor]:
    """Points and places."""
    points = torch.rand(200, dim_x, dtype=torch.float64, generator=torch.Generator().manual_seed(dim_x))
    if scene == "on one side":
        return points / 100 - 1, 2.4 + points[:3] / 100
    if scene == "one far from the others":
        points[0] = 100.0
    points = points - points.mean(dim=0)
    return points, points[1:40] + 0.01


def shares(points: Tensor, places: Tensor) -> Tensor:
    """How much each of the points, of 20 in a cell, has to do with each place."""
    out = points.new_zeros(len(places), len(points))
    for near, members, weights in where_they_count(list(cells(points, places, 20, OFFSETS)), len(places)):
        out[members.unsqueeze(1), near] += weights.unsqueeze(1)
    return out


@SCENES
@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_cells_do_not_depend_on_other_places_near_or_far(scene: str, dim_x: int) -> None:
    points, places = draw(scene, dim_x)
    expected, direction = shares(points, places), torch.tensor([1.0, -0.7, 0.4], dtype=torch.float64)[:dim_x]
    torch.testing.assert_close(shares(points, places[:2]), expected[:2], rtol=0, atol=1e-9)
    for away in (3.0, 1e3, 1e9):
        far = away * torch.stack([direction, -direction])
        torch.testing.assert_close(shares(points, torch.cat([places, far]))[:-2], expected, rtol=0, atol=1e-6)


@SCENES
@pytest.mark.parametrize("factor", [3.7, 1e-5])
def test_cells_do_not_depend_on_the_unit_of_length(scene: str, factor: float) -> None:
    points, places = draw(scene, 2)
    scaled = shares(factor * points, factor * places)
    torch.testing.assert_close(scaled, shares(points, places), rtol=0, atol=1e-9)


def test_places_and_points_may_have_gradients() -> None:
    """Which the number of halvings does not depend on, as torch would warn."""
    points, places = (each.requires_grad_() for each in draw("even", 2))
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sum(cell.weights.sum() for cell in cells(points, places, 20)).backward()  # type: ignore[union-attr]
    finally:
        torch.set_warn_always(False)
    assert points.grad is not None and places.grad is not None
