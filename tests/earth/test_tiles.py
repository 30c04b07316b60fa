"""Tiles: a wide context is seen in windows as wide as in training, and what they predict is joined smoothly."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import aenp
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Frame, Variable
from aenp.earth.tiles import FEWEST, Tiles
from exact_gp import ExactGP

RNG = np.random.default_rng(0)
WIDE = RNG.uniform((0.0, 0.0), (10.0, 3.0), (400, 2))


def gp(window: float | None) -> FieldModel:
    """A model that knows the field exactly, with correlations over two degrees, a quarter of a tile."""
    axes = [Axis(name, 4.0, 0.0, 0.0, 40.0, window) for name in ("latitude", "longitude")]
    return FieldModel(ExactGP(), Frame(axes, [Variable("t2m", 280.0, 5.0, "K")])).eval()


def stations(number: int, side: float, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    where = {"latitude": rng.uniform(0, side, number), "longitude": rng.uniform(0, side, number)}
    wave = np.sin(where["latitude"] / 3) * np.cos(where["longitude"] / 3)
    return pd.DataFrame(where | {"t2m": 280 + 5 * wave + rng.normal(0, 0.1, number)})


def test_weights_sum_to_one_everywhere_and_change_linearly() -> None:
    tiles = Tiles.over(WIDE, [2.0, 4.0])
    assert len(tiles.centres[0]) > 5 and len(tiles.centres[1]) == 1 and np.diff(tiles.centres[0]).max() <= 1.0
    at = np.stack([np.linspace(-3, 13, 500), np.zeros(500)], axis=1)
    weights = np.zeros((len(tiles.centres[0]), 500))
    for (number, _), rows, share in tiles.shares(at):
        weights[number, rows] = share
    assert np.allclose(weights.sum(axis=0), 1) and weights.min() >= 0
    assert np.abs(np.diff(weights, axis=1)).max() < 1.1 * (16 / 500) / np.diff(tiles.centres[0]).min()
    for (number, _), rows in tiles.nearest(at):
        assert np.allclose(weights[number, rows], weights[:, rows].max(axis=0))


def test_every_place_counts_only_in_tiles_that_see_its_neighbours() -> None:
    tiles = Tiles.over(WIDE, [2.0, 1.0])
    for tile, rows, _ in tiles.shares(WIDE):
        seen = tiles.seen(tile, WIDE)
        assert seen[rows].all() and seen.sum() >= FEWEST
    gap = np.array([[0.0, 0.0], [0.1, 0.0], [6.0, 0.0], [6.1, 0.0]])
    apart = Tiles.over(gap, [4.0, 4.0])
    assert all(apart.seen(tile, gap).any() for tile, _, _ in apart.shares(WIDE)) and len(apart.centres[0]) == 3


def test_a_tile_without_observations_sees_the_nearest() -> None:
    """In a gap of many tiles a model would else predict the mean in training, whatever was observed around it."""
    gap = np.array([[0.0, 0.0], [0.5, 0.0], [40.0, 0.0]])
    tiles = Tiles.over(gap, [4.0, 4.0])
    middle = len(tiles.centres[0]) // 2 - 1
    assert tiles.centres[0][middle] < 20 and tiles.seen((middle, 0), gap).tolist() == [False, True, False]


def test_tiles_move_with_the_context() -> None:
    shift = np.array([3.25, -7.5])
    here, there = Tiles.over(WIDE, [2.0, 1.0]), Tiles.over(WIDE + shift, [2.0, 1.0])
    for one, other, by in zip(here.centres, there.centres, shift, strict=True):
        assert np.allclose(one + by, other)


def test_a_context_that_fits_into_one_tile_is_predicted_as_without_tiles() -> None:
    table = stations(60, 9.0)
    whole, tiled = (gp(window).predict(table, "0,40,0,40,1", samples=2) for window in (None, 8.0))
    assert tiled.identical(whole)


def test_wide_maps_in_tiles_are_close_to_the_whole_and_smooth() -> None:
    """Where a tile is wide beside the correlations, as it should be, nothing is lost; and no border shows."""
    table = stations(500, 40.0)
    target = {"latitude": np.arange(0, 40, 0.25), "longitude": [17.3]}
    whole, tiled = (gp(window).predict(table, target) for window in (None, 10.0))
    assert float(abs(tiled["mean"] - whole["mean"]).max()) < 0.3
    excess = tiled["std"] / whole["std"]
    assert float(excess.min()) > 0.99 and float(excess.mean()) < 1.1 and float(excess.max()) < 1.4
    steps = [float(abs(each["mean"].diff("latitude")).max()) for each in (tiled, whole)]
    assert steps[0] < 1.2 * steps[1]


def test_tiles_make_no_difference_to_other_targets_or_chunks() -> None:
    table, model = stations(300, 40.0), gp(8.0)
    grid = xr.DataArray(np.zeros((9, 9)), {"latitude": np.arange(0, 36, 4), "longitude": np.arange(0, 36, 4)}, name="z")
    whole = model.predict(table, grid, quantiles=(0.1,))
    lazy = model.predict(table, grid.chunk(latitude=4), quantiles=(0.1,)).compute()
    xr.testing.assert_allclose(lazy, whole)
    xr.testing.assert_allclose(
        model.predict(table, grid[3:5, 2:4], quantiles=(0.1,)), whole.isel(latitude=[3, 4], longitude=[2, 3])
    )


def test_samples_agree_across_the_borders_of_tiles() -> None:
    """Neighbours on either side of a border differ no more than others do, and samples spread as predicted."""
    table = stations(40, 40.0)
    line = {"latitude": np.linspace(1, 39, 153), "longitude": [20.0]}
    result = gp(8.0).predict(table, line, samples=40)
    step = result["samples"].diff("latitude").std("sample")
    assert float(step.max()) < 0.25 * float(result["std"].max())
    assert 0.6 < float((result["samples"].std("sample") / result["std"]).mean()) < 1.2


def test_a_fitted_model_knows_its_windows_and_predicts_wide_maps_in_bounded_memory() -> None:
    """A lattice over the whole map would exceed the limit of a model's memory."""
    torch.manual_seed(0)
    field = xr.DataArray(
        RNG.normal(280, 5, (4, 40, 40)),
        {
            "time": pd.date_range("2020-01-01", periods=4),
            "latitude": np.arange(40) / 100,
            "longitude": np.arange(40) / 100,
        },
        name="t2m",
    )
    model = aenp.fit(field, steps=1)
    assert np.isclose(model.frame.axes["latitude"].window, 0.32)
    far = pd.DataFrame({"latitude": np.linspace(0, 40, 12), "longitude": np.linspace(0, 60, 12), "t2m": 280.0})
    places = far[["latitude", "longitude"]] + 0.01
    assert np.isfinite(model.predict(far, places)["mean"]).all()
    axes = [Axis(each.name, each.unit, each.origin, each.low, each.high) for each in model.frame.axes.values()]
    whole = FieldModel(model.process, Frame(axes, model.frame.variables))
    with pytest.raises(ValueError, match="cells"):
        whole.predict(far, places)
