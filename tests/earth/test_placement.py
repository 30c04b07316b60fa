"""Placement: the next station is where it tells most about the targets."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import aenp
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Covariate, Frame, Variable
from aenp.earth.interpolation import around
from aenp.earth.placement import WIDTH, low_and_high, nearest_covariance
from exact_gp import FRAME, ExactGP, drawn, gp_model

GRID = "41,49,-9,9,2"


def station(latitude: float, longitude: float) -> pd.DataFrame:
    return pd.DataFrame({"latitude": [latitude], "longitude": [longitude], "t2m": [280.0]})


def test_a_station_goes_into_the_gap_and_not_beside_others() -> None:
    """One gap among stations, a place beside one of them, and a corner with few places around."""
    context = pd.concat([station(y, x) for y in (41.0, 43.0) for x in (-8.0, -6.0, -4.0, -2.0)])
    candidates = pd.DataFrame({"latitude": [43.1, 46.0, 50.0], "longitude": [-4.1, 4.0, 10.0]})
    found = gp_model().suggest(context, candidates, 2, target="44,48,2,6,1")
    assert found[["latitude", "longitude"]].to_numpy().tolist()[0] == [46.0, 4.0]
    assert found.index.tolist() == [1, 2] and found["reduction"].is_monotonic_increasing
    assert 10 < found["reduction"].iloc[0] < 100


def variance(context: pd.DataFrame, further: pd.DataFrame) -> float:
    """The sum of the variances on the grid, which for this model does not depend on what is observed."""
    grown = pd.concat([context, further.assign(t2m=280.0)], join="inner")
    return float((gp_model().predict(grown, GRID)["std"] ** 2).sum())


def test_suggested_stations_beat_random_ones_and_those_of_the_largest_variance() -> None:
    sums: dict[str, list[float]] = {"suggested": [], "random": [], "largest": []}
    for seed in range(6):
        context = drawn(1, 12, seed).drop(columns="time")
        found = gp_model().suggest(context, GRID, 3)
        sums["suggested"].append(variance(context, found))
        places = gp_model().predict(context, GRID)["std"].to_dataframe().reset_index()
        sums["random"].append(variance(context, places.sample(3, random_state=seed)))
        sums["largest"].append(variance(context, places.nlargest(3, "std")))
        before = variance(context, found.iloc[:0])
        assert np.isclose(found["reduction"].iloc[-1], 100 * (1 - sums["suggested"][-1] / before), rtol=0.01)
    means = {name: np.mean(values) for name, values in sums.items()}
    assert means["suggested"] < 0.97 * means["largest"] and means["suggested"] < 0.95 * means["random"]


@pytest.mark.filterwarnings("ignore:.*outside the box of the training data")
def test_a_model_that_learns_the_scales_from_the_context_is_not_misled() -> None:
    """What a new station is taken to observe must not tell that the field is smooth: none goes beside another."""
    nearest: dict[str, list[float]] = {"suggested": [], "random": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        context = pd.DataFrame(rng.uniform((41, -6), (49, 6), (6, 2)), columns=["latitude", "longitude"])
        context["t2m"] = 280 + np.sin(context["longitude"]) + rng.normal(size=6) / 2
        places = pd.DataFrame(
            [(y, x) for y in np.arange(41, 50) for x in np.arange(-6, 7, 1.5)], columns=context.columns[:2]
        )
        model = around(context.rename(columns={"t2m": "value"}))
        found = model.suggest(context, places, 6)
        for name, each in {"suggested": found, "random": places.sample(6, random_state=seed)}.items():
            known = pd.concat([context, each])[["latitude", "longitude"]].to_numpy() * (1.0, 0.7)
            gaps = np.linalg.norm(places.to_numpy()[:, None] * (1.0, 0.7) - known, axis=2).min(axis=1)
            nearest[name].append(np.square(gaps).mean())
    assert np.mean(nearest["suggested"]) < 0.8 * np.mean(nearest["random"])


def test_a_candidate_that_is_there_twice_tells_nothing_the_second_time() -> None:
    context = drawn(1, 12).drop(columns="time")
    places = pd.DataFrame({"latitude": [45.0, 45.0, 42.0], "longitude": [0.0, 0.0, 8.0]})
    found = gp_model().suggest(context, places, 3, target="44,46,-1,1,1")
    further = np.diff(found["reduction"], prepend=0.0)
    assert found["longitude"].iloc[0] == 0 and (further >= 0).all() and further[1:].max() < further[0] / 10


def test_giving_the_candidates_as_target_changes_nothing() -> None:
    """Also for a network, whose answers in one direction are not those in the other."""
    model, context = aenp.pretrained("era5-2d/pttnp-approx"), drawn(1, 8).drop(columns="time")
    context[["latitude", "longitude"]] = np.random.default_rng(0).uniform((38, 8), (46, 17), (8, 2))
    places = "38,46,8,17,2.5"
    pd.testing.assert_frame_equal(model.suggest(context, places, 3), model.suggest(context, places, 3, target=places))


def test_times_with_other_stations_count_too() -> None:
    """Where a first time has many stations, a second has none: the new one goes there, and tells both as it should."""
    west, east = (drawn(1, 40, seed).assign(time=day) for seed, day in ((0, "2020-01-01"), (1, "2020-01-02")))
    context = pd.concat([west[west["longitude"] < 0], east[east["longitude"] > -5]])
    both, one = (gp_model().suggest(table, GRID, 3) for table in (context, context[context["time"] == "2020-01-01"]))
    assert (one["longitude"] > -1).all() and both["longitude"].min() < -1
    sums = np.zeros(2)
    for _, table in context.drop(columns="time").groupby(context["time"]):
        sums += variance(table, both), variance(table, both.iloc[:0])
    assert np.isclose(both["reduction"].iloc[-1], 100 * (1 - sums[0] / sums[1]), rtol=0.2)


def test_more_targets_than_can_be_imagined_are_drawn_from() -> None:
    context = drawn(1, 12).drop(columns="time")
    few, many = (gp_model().suggest(context, GRID, 3, target=f"41,49,-9,9,{step}") for step in (0.75, 0.25))
    assert np.allclose(few["reduction"], many["reduction"], rtol=0.15)


def test_where_nearly_all_values_are_the_same_the_others_count() -> None:
    """Of a Normal, of rain that is rare, of a sky that is nearly always covered."""
    mean, std = np.array([1.0, 0.2, 0.9]), np.array([2.0, 1.0, 0.2])
    low, high = low_and_high(np.array([-1.0, 0.0, 1.0]), np.array([3.0, 0.0, 1.0]), mean, std)
    assert np.allclose(low, [-1, 0, 0.9 - WIDTH * 0.2]) and np.allclose(high, [3, 0.2 + WIDTH, 1])


def test_answers_become_a_covariance() -> None:
    """That is symmetric, has no negative eigenvalue, and leaves what is a covariance as it is."""
    matrix = np.random.default_rng(0).normal(size=(6, 6))
    found = nearest_covariance(matrix)
    assert np.allclose(found, found.T) and np.linalg.eigvalsh(found).min() > -1e-12
    assert np.allclose(nearest_covariance(matrix @ matrix.T), matrix @ matrix.T)


def test_several_times_count_together(tmp_path: Path) -> None:
    """Two times with the same stations ask for the same place as one; a map shows it."""
    context = drawn(2, 12)
    one, both = (gp_model().suggest(table, GRID, 2) for table in (context[context["time"] == "2020-01-01"], context))
    assert np.allclose(one, both, rtol=1e-3)
    gp_model().suggest(context, GRID, 1, plot=tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 10_000


def test_means_in_one_pass_are_those_of_each_prediction() -> None:
    """Also for contexts of different sizes, and for models on a grid, which move stations to it."""
    torch.manual_seed(0)
    convcnp = aenp.ConvCNP(2, 1, points_per_unit=4, channels=8, layers=3, on_grid=True)
    tables = [gp_model().observed(drawn(1, count, seed=count)) for count in (5, 9)]
    places = pd.DataFrame({"latitude": [42.0, 44.0, 47.0], "longitude": [-6.0, 1.0, 3.0]})
    for model in (gp_model(), FieldModel(convcnp, FRAME, spread=1.3)):
        found = model.means(tables, places)
        each = [model.predict(table, places.assign(time=table["time"].iloc[0]), "value")["mean"] for table in tables]
        assert np.allclose(found, np.stack(each), rtol=0, atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*outside the box of the training data")
def test_wide_regions_are_seen_in_tiles_as_predictions_are() -> None:
    """A further station, here in the middle or beyond all others, changes the tiles that see it alone."""
    axes = [Axis(name, 4.0, 0.0, 0.0, 40.0, 8.0) for name in ("latitude", "longitude")]
    model = FieldModel(ExactGP(), Frame(axes, [Variable("t2m", 280.0, 5.0, "K")])).eval()
    where = np.random.default_rng(0).uniform(0, 40, (60, 2))
    table = model.observed(pd.DataFrame(where, columns=["latitude", "longitude"]).assign(t2m=280.0 + where[:, 0]))
    further = [station(20.0, 20.0), station(30.0, 50.0)]
    tables = [table, *(pd.concat([table, each.rename(columns={"t2m": "value"})]) for each in further)]
    places = pd.DataFrame(np.random.default_rng(1).uniform(0, 40, (40, 2)), columns=["latitude", "longitude"])
    places.loc[0] = 20.5
    found = model.means(tables, places)
    predicted = np.stack([model.predict(each, places, "value")["mean"].values for each in tables])
    assert np.allclose(found, predicted, rtol=0, atol=1e-3)
    far = np.abs(places - 20.0).max(axis=1) > 12
    assert np.allclose(found[0, far], found[1, far]) and (np.abs(found[1] - found[0]) > 1).any()
    best = model.suggest(table, {"latitude": [20.0], "longitude": [-30.0, 20.0]}, 1, target="17,23,17,23,2")
    assert best["longitude"].tolist() == [20.0]


def test_impossible_numbers_raise() -> None:
    with pytest.raises(ValueError, match="number must be from 1 to 2, the number of candidates; got 3"):
        gp_model().suggest(drawn(1, 5), {"latitude": [42.0], "longitude": [0.0, 1.0]}, 3)


def test_a_station_may_be_suggested_where_there_is_one() -> None:
    context = drawn(1, 5).drop(columns="time")
    assert len(gp_model().suggest(context, context, 5)) == 5


def test_the_command_writes_the_table_and_the_map(tmp_path: Path, call: Callable[..., str]) -> None:
    context, files = drawn(1, 12).drop(columns="time"), [tmp_path / name for name in ("new.csv", "map.png", "land.nc")]
    context.to_csv(tmp_path / "stations.csv", index=False)
    torch.manual_seed(0)
    model = FieldModel(aenp.TNP(2, 1, attention="spectral", dim=8, heads=2, layers=1), FRAME).eval()
    model.save(tmp_path / "model.safetensors")
    axes = {"latitude": np.arange(38.0, 53.0), "longitude": np.arange(-12.0, 13.0)}
    land = (axes["longitude"] > 0) * np.ones((len(axes["latitude"]), 1))
    xr.DataArray(land, axes, name="lsm").to_netcdf(files[2])
    words = "--weights", tmp_path / "model.safetensors", "--candidates", GRID, "--number", 2, "--target", "44,48,2,6,1"
    written = "--out", files[0], "--plot", files[1], "--coast", files[2]
    printed = call("suggest", tmp_path / "stations.csv", *words, *written)
    table = pd.read_csv(files[0], index_col="station")
    pd.testing.assert_frame_equal(table, model.suggest(context, GRID, 2, target="44,48,2,6,1"))
    assert str(table.round(3)) in printed and f"{files[0]}\n{files[1]}\n" in printed
    assert files[1].stat().st_size > 10_000


@pytest.mark.parametrize(
    ("option", "file", "message"),
    [("--out", "stations.csv", "would overwrite --context"), ("--coast", "land.nc", "add --plot")],
)
def test_the_command_refuses_files_that_contradict_each_other(
    option: str, file: str, message: str, capsys: pytest.CaptureFixture[str], call: Callable[..., str]
) -> None:
    with pytest.raises(SystemExit):
        call("suggest", "stations.csv", "--weights", "x", "--candidates", GRID, option, file)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("candidates", "target"), [("41,61,-9,9,4", None), ("41,49,-9,9,4", "41,61,-9,9,4")])
def test_a_warning_tells_of_places_far_from_the_training_data(candidates: str, target: str | None) -> None:
    """Those a unit of x or more outside its box; a little outside is no reason."""
    what = "candidates" if target is None else "targets"
    with pytest.warns(UserWarning, match=f"10 of 30 {what} are over 4° outside the box of the training data"):
        gp_model().suggest(drawn(1, 12), candidates, 1, target)
    with warnings.catch_warnings(action="error"):
        gp_model().suggest(drawn(1, 12), "39,51,-12,12,4", 1)


def test_a_covariate_that_candidates_lack_is_asked_for_or_taken_from_the_topography() -> None:
    process = aenp.TNP(2, 1, attention="spectral", dim=8, heads=2, layers=1, dim_covariates=1)
    frame = Frame(list(FRAME.axes.values()), FRAME.variables, covariates=[Covariate("elevation", 500.0, 300.0, "m")])
    model, context = FieldModel(process, frame).eval(), drawn(1, 8).assign(elevation=100.0)
    with pytest.raises(ValueError, match=r"elevation is not known at 41, -9 .*; add a column .* topography as `elev"):
        model.suggest(context, GRID, 1)
    axes = {"latitude": [30.0, 60.0], "longitude": [-20.0, 20.0]}
    topography = xr.DataArray(np.full((2, 2), 0.7), axes, name="z", attrs={"units": "km"})
    assert len(model.suggest(context, GRID, 1, elevation=topography)) == 1
