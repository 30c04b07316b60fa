"""Interpolation without training: near the truth, honest, indifferent to units, and it says when it is in doubt."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import aenp
from aenp.earth import points
from aenp.earth.interpolation import arc, doubts
from aenp.models.krigingnp import is_constant

SLOPE = 3.0


def field(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    return 280 + 5 * np.sin(latitude / 2) * np.cos(longitude / 3)


def stations(count: int = 60, seed: int = 0, west: float = 0.0, noise: float = 0.1) -> pd.DataFrame:
    """Noisy values of a smooth field at random places of 10° × 10°."""
    rng = np.random.default_rng(seed)
    latitude, longitude = 40 + 10 * rng.random(count), 10 * rng.random(count)
    value = field(latitude, longitude) + noise * rng.standard_normal(count)
    return pd.DataFrame({"latitude": latitude, "longitude": (west + longitude + 180) % 360 - 180, "t2m [K]": value})


def test_a_map_in_one_call_is_near_the_truth_and_knows_its_errors() -> None:
    result = aenp.interpolate(stations())
    assert set(result) == {"mean", "std", "in_domain"} and result["mean"].attrs["units"] == "K"
    assert result["mean"].ndim == 2 and max(result["mean"].shape) == 100
    truth = field(*np.meshgrid(result["latitude"], result["longitude"], indexing="ij"))
    error = np.where(result["in_domain"], result["mean"].transpose("latitude", "longitude") - truth, np.nan)
    assert np.sqrt(np.nanmean(error**2)) < 0.5
    assert 0.7 < np.nanmean(abs(error) < 2 * result["std"].transpose("latitude", "longitude")) <= 1


def test_predictions_do_not_depend_on_the_units() -> None:
    kelvin = stations()
    fahrenheit = kelvin.rename(columns={"t2m [K]": "t2m"}).assign(t2m=lambda table: 1.8 * table["t2m"] - 459.67)
    one, other = aenp.interpolate(kelvin, "42,48,2,8,1"), aenp.interpolate(fahrenheit, "42,48,2,8,1")
    np.testing.assert_allclose(other["mean"], 1.8 * one["mean"] - 459.67, atol=0.02)
    np.testing.assert_allclose(other["std"], 1.8 * one["std"], rtol=0.01)


def test_the_date_line_is_no_border() -> None:
    """The same stations elsewhere on the same circle of latitude have the same map."""
    near, far = aenp.interpolate(stations(), "42,48,2,8,1"), aenp.interpolate(stations(west=175), "42,48,177,183,1")
    np.testing.assert_allclose(far["mean"], near["mean"], atol=0.01)
    assert bool(far["in_domain"].all())


def test_each_time_is_predicted_from_its_own_observations() -> None:
    days = [stations(20, seed).assign(time=f"2020-01-0{seed + 1}") for seed in range(2)]
    both = aenp.interpolate(pd.concat(days), "42,48,2,8,2")
    assert both.sizes["time"] == 2
    alone = aenp.interpolate(days[1].drop(columns="time"), "42,48,2,8,2")
    np.testing.assert_allclose(both["mean"].isel(time=1), alone["mean"], atol=0.05)


def test_few_points_have_wider_intervals_than_many() -> None:
    """Beyond what is known of the field, the scale itself is uncertain."""
    few, many = (aenp.interpolate(stations(count), "44,46,4,6,0.5", quantiles=(0.01, 0.99)) for count in (6, 100))
    assert few["std"].mean() > 3 * many["std"].mean()
    assert few["quantiles"].sizes["quantile"] == 2


def test_a_field_with_gaps_is_a_context_too() -> None:
    axes = {"latitude": np.arange(40, 50, 0.5), "longitude": np.arange(0.0, 10, 0.5)}
    whole = xr.DataArray(field(*np.meshgrid(*axes.values(), indexing="ij")), axes, list(axes), name="t2m")
    hidden = (abs(whole.latitude - 45) < 1) & (abs(whole.longitude - 5) < 1)
    filled = aenp.interpolate(whole.where(~hidden), whole)
    assert float(abs(filled["mean"] - whole).where(hidden).max()) < 0.5


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        (lambda table: table.head(2), "there are 2 observations"),
        (lambda table: table.assign(longitude=table["longitude"] / 50), "nearly on a line"),
        (lambda table: table.assign(**12 * (table[["latitude", "longitude"]] - [45, 5])), "span 1.*°, where the globe"),
        (lambda table: table.assign(**{"t2m [K]": SLOPE * table["latitude"]}), "a plane explains 100 %"),
        (lambda table: table.assign(**{"t2m [K]": 7.0}), "all values are 7, .* the standard deviations are a guess"),
    ],
    ids=["few", "line", "wide", "plane", "constant"],
)
def test_observations_unlike_those_in_training_are_warned_of(
    change: Callable[[pd.DataFrame], pd.DataFrame], doubt: str
) -> None:
    with pytest.warns(UserWarning, match=doubt):
        aenp.interpolate(change(stations()), "44,46,4,6,1")


def test_the_time_with_the_fewest_observations_is_in_doubt_too() -> None:
    days = pd.concat([stations(60).assign(time=1), stations(2).assign(time=2)]).rename(columns={"t2m [K]": "value"})
    assert ["there are 2" in doubt for doubt in doubts(days)] == [True]


def test_three_observations_on_a_line_are_in_doubt() -> None:
    table = pd.DataFrame({"latitude": [40.0, 41, 42], "longitude": [1.0, 2, 3], "value": [1.0, 5, 2]})
    assert ["nearly on a line" in doubt for doubt in doubts(table)] == [True]


@pytest.mark.filterwarnings("ignore:all values are")
def test_constant_observations_are_predicted_without_claiming_to_be_exact() -> None:
    """Their deviation by round-off is no scale of the field, and no plane explains it; in another unit it scales."""
    table = stations().assign(**{"t2m [K]": 280.1})
    found = aenp.interpolate(table, "42,48,2,8,2")
    np.testing.assert_allclose(found["mean"], 280.1, atol=1e-3)
    assert float(found["std"].min()) > 1e-3
    other = aenp.interpolate(table.assign(**{"t2m [K]": 280.1e-6}), "42,48,2,8,2")
    np.testing.assert_allclose(1e6 * other["std"], found["std"], rtol=1e-4)
    zeros = aenp.interpolate(table.assign(**{"t2m [K]": 0.0}), "42,48,2,8,2")
    assert not zeros["mean"].any() and float(zeros["std"].min()) > 0


@pytest.mark.parametrize(("offset", "scale"), [(1e9, 1.0), (300.0, 1e-6)])
def test_a_large_offset_does_not_cost_precision(offset: float, scale: float) -> None:
    column, where = "t2m [K]", "44,46,4,6,1"
    table = stations()
    moved = aenp.interpolate(table.assign(**{column: offset + scale * (table[column] - 280)}), where)
    expected = aenp.interpolate(table.assign(**{column: table[column] - 280}), where)
    assert moved["mean"].dtype == float
    np.testing.assert_allclose((moved["mean"] - offset) / scale, expected["mean"], atol=1e-3)
    np.testing.assert_allclose(moved["std"] / scale, expected["std"], rtol=1e-3)


def test_values_in_single_precision_may_differ_by_its_round_off() -> None:
    values = np.nextafter(np.float32(280.1), np.float32([0, 500]))
    assert is_constant(values) and not is_constant(values.astype(float)) and is_constant(np.array([3, 3]))


@pytest.mark.parametrize("pole", [90, -90])
def test_the_default_grid_ends_at_the_poles(pole: int) -> None:
    table = stations().assign(latitude=lambda table: np.sign(pole) * (table["latitude"] + 39.9))
    table["longitude"] *= 10
    assert abs(aenp.interpolate(table)["latitude"]).max() == 90


def test_ordinary_observations_raise_no_doubt() -> None:
    observed = stations().rename(columns={"t2m [K]": "value"})
    assert not list(doubts(observed))


@pytest.mark.parametrize(
    ("longitudes", "expected"),
    [([1, 5, 3], (1, 5)), ([-179, 179], (179, 181)), ([0, 90, 180], (0, 180)), ([7], (7, 7))],
)
def test_the_shortest_arc(longitudes: list[float], expected: tuple[float, float]) -> None:
    np.testing.assert_allclose(arc(np.array(longitudes, float)), expected)


def test_the_command_writes_a_file_and_a_map(call: Callable[..., str], tmp_path: Path) -> None:
    stations(30).to_csv(tmp_path / "stations.csv", index=False)
    words = "interpolate", tmp_path / "stations.csv", "--target", "42,48,2,8,0.5", "--out", tmp_path / "p.nc"
    told = call(*words, "--plot", tmp_path / "map.png", "--quantiles", "0.05", "0.95")
    assert str(tmp_path / "p.nc") in told and (tmp_path / "map.png").stat().st_size > 10_000
    with xr.open_dataset(tmp_path / "p.nc") as written:
        assert written["quantiles"].sizes["quantile"] == 2


def test_a_command_that_would_write_nothing_ends_with_an_error(
    call: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("interpolate", tmp_path / "stations.csv")
    assert "nothing to write; give --out" in capsys.readouterr().err


@pytest.mark.parametrize("longitude", [3.117, -3.117, 0.0, 179.999])
def test_stations_on_one_meridian_have_an_arc_without_width(longitude: float) -> None:
    west, east = arc(np.array([longitude, longitude]))
    assert west == east == pytest.approx(longitude)


@pytest.mark.filterwarnings("ignore")  # of a globe that is not flat, and of different values
def test_the_default_grid_goes_around_the_globe_once() -> None:
    everywhere = pd.DataFrame({"latitude": 0.0, "longitude": np.arange(-180.0, 180.0, 5), "t2m": 280.0})
    longitude = aenp.interpolate(everywhere)["longitude"].values
    assert 340 < np.ptp(longitude) < 360


@pytest.mark.filterwarnings("ignore:.*different values")
def test_elevations_do_not_tell_places_apart() -> None:
    """Two values of a place become their mean, with a column of elevations or without."""
    twice = pd.concat([stations(20), stations(20, noise=1.0)[:5]], ignore_index=True)
    twice["latitude"], twice["longitude"] = (
        np.r_[twice[name][:20], twice[name][:5]] for name in ("latitude", "longitude")
    )
    plain = aenp.interpolate(twice, "41,49,1,9,2")
    xr.testing.assert_allclose(aenp.interpolate(twice.assign(elevation=np.arange(25.0)), "41,49,1,9,2"), plain)


def test_observations_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read, tables = points.check_columns, []
    monkeypatch.setattr(points, "check_columns", lambda table, where: (tables.append(table), read(table, where)))
    aenp.interpolate(stations(10), "42,48,2,8,3")
    assert len(tables) == 1
