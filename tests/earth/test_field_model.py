"""FieldModel: what goes in as a table or a field comes out in the same units, on the target's own coordinates."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import aenp
import tiny
from aenp import cli
from aenp.earth import maps, prediction, sampling
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Frame, Variable
from aenp.earth.maps import map_prediction
from aenp.earth.output import write_prediction
from aenp.earth.sources import open_dataset
from aenp.likelihoods import NonNegative
from frames import frame

FRAME = frame(40.0, 50.0, -10.0, 10.0)
LATITUDES, LONGITUDES = np.arange(41.0, 46.0), np.arange(-4.0, 3.0)
GRID = {"latitude": LATITUDES, "longitude": LONGITUDES}
DAYS = pd.to_datetime(["2020-01-01", "2020-01-02"])
HIGH = xr.DataArray(
    100 * (np.arange(38.0, 53)[:, None] - 42) + np.zeros(27),
    coords={"lat": np.arange(38.0, 53), "lon": np.arange(-13.0, 14)},
    dims=("lat", "lon"),
    attrs={"units": "m"},
)
"A topography that rises to the north by 100 m per degree, out of the sea at 42 degrees."


@pytest.fixture(scope="module")
def model() -> FieldModel:
    torch.manual_seed(0)
    fixed_inputs = aenp.FixedInputs(2, domain=FRAME.domain)
    process = aenp.ConvCNP(2, 1, points_per_unit=4, channels=8, layers=3, fixed_inputs=fixed_inputs)
    return FieldModel(process, FRAME).eval()


def transformer(frame: Frame) -> FieldModel:
    """A small model of this frame, whose parameters are large enough to tell inputs apart."""
    torch.manual_seed(0)
    fixed_inputs = aenp.FixedInputs(len(frame.axes), domain=frame.domain)
    options = {"dim": 8, "heads": 2, "layers": 1, "dim_covariates": frame.kinds, "fixed_inputs": fixed_inputs}
    process = aenp.TNP(len(frame.axes), 1, attention="spectral", **options)
    with torch.no_grad():
        for parameter in process.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return FieldModel(process, frame).eval()


@pytest.fixture(scope="module")
def space_time() -> FieldModel:
    axes = [*FRAME.axes.values(), Axis("time", 4.0, 18262.0, 18262.0, 18627.0), Axis("elevation", 1000.0)]
    return transformer(Frame(axes, FRAME.variables))


@pytest.fixture(scope="module")
def two_variables() -> FieldModel:
    return transformer(Frame(list(FRAME.axes.values()), [*FRAME.variables, Variable("rain", 2.0, 0.5, "mm")]))


def stations(count: int = 12, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    places = {"lat": rng.uniform(40, 47, count), "lon": rng.uniform(-6, 4, count)}
    return pd.DataFrame(places | {"t2m": rng.normal(280, 5, count)})


def test_predictions_are_those_of_the_process_in_the_users_units(model: FieldModel) -> None:
    table = stations()
    result = model.predict(table, GRID)
    latitude, longitude = np.meshgrid(LATITUDES, LONGITUDES, indexing="ij")
    x = FRAME.x({"latitude": latitude, "longitude": longitude}).reshape(1, -1, 2)
    xc = torch.from_numpy(FRAME.x({"latitude": table["lat"], "longitude": table["lon"]}))[None]
    yc = torch.tensor((table["t2m"].to_numpy() - 280) / 5).float().view(1, -1, 1)
    task = aenp.Task(xc, yc, torch.from_numpy(x))
    both = [aenp.predict(model.process, task)]
    with model.process.equivariant():
        both.append(aenp.predict(model.process, task))
    mean, equivariant = (280 + 5 * each.mean.view(5, 7).numpy() for each in both)
    assert np.allclose(result["mean"], mean, rtol=0, atol=1e-3)
    assert np.allclose(result["std"], 5 * both[0].stddev.view(5, 7), rtol=1e-4)
    assert np.allclose(result["equivariant_mean"], equivariant, rtol=0, atol=1e-3)
    assert np.allclose(result["local_effect"], mean - equivariant, atol=1e-3)
    assert np.abs(result["local_effect"]).max() > 1e-2
    assert result["mean"].attrs["units"] == "K" and "CF-" in result.attrs["Conventions"]


def test_quantiles_are_those_of_the_process_in_the_users_units(model: FieldModel, two_variables: FieldModel) -> None:
    result = model.predict(stations(), GRID, quantiles=(0.05, 0.5, 0.95))
    assert result["quantiles"].dims == ("quantile", "latitude", "longitude")
    deviations = (result["quantiles"] - result["mean"]) / result["std"]
    for probability, expected in ((0.05, -1.6449), (0.5, 0.0), (0.95, 1.6449)):
        assert np.allclose(deviations.sel(quantile=probability), expected, atol=1e-2)
    assert result["quantiles"].attrs["units"] == "K" and "probability_of_zero" not in result
    table = stations().assign(rain=2.0)
    several = two_variables.predict(table, GRID, quantiles=[0.5], samples=2)
    for name in ("t2m", "rain"):
        assert np.allclose(several[f"{name}_quantiles"][0], several[f"{name}_mean"], rtol=1e-4)
        assert several[f"{name}_samples"].shape == (2, 5, 7)


class Smooth(aenp.CNP):
    """The exact predictions of a Gaussian process in the plane, with little noise."""

    def encode(self, task: aenp.Task) -> aenp.Task:
        return task

    def decode(self, state: aenp.Task, xt: torch.Tensor) -> torch.Tensor:
        def covariance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return torch.exp(-torch.cdist(a, b).square() / 2)

        known = covariance(state.xc, state.xc) + 1e-3 * torch.eye(state.xc.shape[1], dtype=torch.float64)
        cross = covariance(xt, state.xc)
        weights = torch.linalg.solve(known, cross.mT).mT
        variance = (1 - (weights * cross).sum(-1, keepdim=True)).clamp(min=1e-4)
        return torch.cat([weights @ state.yc.double(), torch.expm1(variance.sqrt() - 1e-3).log()], -1)


def test_samples_are_fields_that_differ_as_much_as_the_prediction_says() -> None:
    """They agree with the observations, and differ elsewhere, by the predicted standard deviation, smoothly."""
    model, table = FieldModel(Smooth(2, 1), FRAME), stations(3)
    result = model.predict(
        table, {"latitude": np.arange(30.0, 60.0, 3), "longitude": np.arange(-20.0, 20.0, 4)}, samples=200
    )
    samples = result["samples"]
    assert samples.dims == ("sample", "latitude", "longitude") and samples.sizes["sample"] == 200
    assert np.allclose(samples.std("sample"), result["std"], rtol=0.25, atol=0.3)
    assert np.allclose(samples.mean("sample"), result["mean"], atol=1.5)
    assert (samples.diff("longitude").std("sample") < 1.1 * result["std"].max()).all()
    there = model.predict(table, table[["lat", "lon"]], samples=5)
    assert np.allclose(there["samples"], table["t2m"], atol=0.5)


def test_samples_follow_their_seed_and_leave_that_of_torch_alone(model: FieldModel) -> None:
    state = torch.get_rng_state()
    first, again, other = (model.predict(stations(), GRID, samples=3, seed=seed)["samples"] for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert first.equals(again) and not np.allclose(first, other)
    assert not np.allclose(first[0], first[1])


def test_quantiles_and_samples_of_a_lazy_grid_are_lazy_and_the_same(model: FieldModel) -> None:
    asked = {"quantiles": (0.1, 0.9), "samples": 2}
    grid = xr.DataArray(np.zeros((5, 7)), coords=GRID, dims=tuple(GRID), name="z")
    whole, lazy = model.predict(stations(), grid, **asked), model.predict(stations(), grid.chunk(latitude=2), **asked)
    for name in asked:
        assert whole[name].chunks is None and lazy[name].chunks is not None
        assert np.allclose(lazy[name].compute(), whole[name], rtol=0, atol=1e-3)


def test_samples_of_a_large_grid_are_drawn_at_some_of_its_places(
    model: FieldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "CANDIDATES", 9)
    result = model.predict(stations(), {"latitude": [42.0], "longitude": np.linspace(-4, 4, 200)}, samples=2)
    assert np.isfinite(result["samples"]).all()


def test_a_table_of_quantiles_has_a_row_for_each_place(model: FieldModel, tmp_path: Path) -> None:
    result = model.predict(stations(), GRID, quantiles=(0.05, 0.5), samples=2)
    write_prediction(result, tmp_path / "p.csv")
    table = pd.read_csv(tmp_path / "p.csv")
    assert len(table) == 35 and {"quantile_0.05", "quantile_0.5", "sample_0", "sample_1"} <= set(table)
    assert np.allclose(table["quantile_0.05"], result["quantiles"][0].values.ravel(), rtol=1e-5)
    write_prediction(result, tmp_path / "p.nc")
    assert open_dataset(tmp_path / "p.nc")["samples"].shape == (2, 5, 7)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"quantiles": (0.0, 0.5)}, "different probabilities between 0 and 1; got"),
        ({"quantiles": (0.5, 0.5)}, "different probabilities between 0 and 1; got"),
        ({"samples": -1}, "samples must not be negative; got -1"),
    ],
)
def test_impossible_quantiles_and_samples_raise(model: FieldModel, asked: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.predict(stations(), GRID, **asked)  # type: ignore[arg-type]


def test_a_context_in_other_units_is_converted(model: FieldModel) -> None:
    celsius = stations().assign(t2m=lambda t: t["t2m"] - 273.15).rename(columns={"t2m": "t2m [°C]"})
    expected, result = (model.predict(table, GRID) for table in (stations(), celsius))
    assert np.allclose(result["mean"], expected["mean"], rtol=0, atol=1e-3) and result["mean"].attrs["units"] == "K"
    again = model.predict(model.observed(celsius), GRID, "value")
    assert np.allclose(again["mean"], expected["mean"], rtol=0, atol=1e-3)


def test_the_result_lies_on_the_targets_own_coordinates(model: FieldModel) -> None:
    expected = model.predict(stations(), GRID)["mean"]
    field = xr.DataArray(
        np.zeros((7, 5)), dims=("lon", "lat"), coords={"lon": LONGITUDES % 360, "lat": LATITUDES[::-1]}, name="z"
    )
    result = model.predict(stations(), field)["mean"]
    assert result.dims == ("lat", "lon") and result.lon.equals(field.lon) and result.lat.equals(field.lat)
    assert np.allclose(result.values[::-1], expected, rtol=0, atol=1e-3)

    places = expected.stack(place=("latitude", "longitude"))
    table = pd.DataFrame({"Lat": places.latitude, "Lon": places.longitude}, index=pd.Index(range(5, 40), name="site"))
    result = model.predict(stations(), table)["mean"]
    assert result.dims == ("site",) and result.site.values.tolist() == list(range(5, 40))
    assert np.array_equal(result["Lat"], table["Lat"]) and np.array_equal(result["Lon"], table["Lon"])
    assert np.allclose(result, places, rtol=0, atol=1e-3)

    result = model.predict(stations(), "41,45.5,-4,2,1")["mean"]
    assert np.allclose(result, expected, rtol=0, atol=1e-3)

    curved = xr.broadcast(expected.latitude, expected.longitude)
    curved = xr.Dataset(coords={"lat": (("i", "j"), curved[0].data), "lon": (("i", "j"), curved[1].data)})
    result = model.predict(stations(), curved)["mean"]
    assert np.allclose(result, expected, rtol=0, atol=1e-3) and result["lat"].equals(curved["lat"])
    assert result["lat"].attrs["units"] == "degrees_north" and result["lon"].attrs["units"] == "degrees_east"


def test_text_beside_the_places_is_kept(model: FieldModel, tmp_path: Path) -> None:
    table = pd.DataFrame({"station": ["a", None, "c"], "lat": [41.0, 42.0, 43.0], "lon": 1.0, "count": [1, 2, 3]})
    result = model.predict(stations(), table)
    assert result["station"].dims == ("index",) and "count" not in result.variables
    write_prediction(result, tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["station"].fillna("").tolist() == ["a", "", "c"]
    write_prediction(result, tmp_path / "p.nc")
    assert open_dataset(tmp_path / "p.nc")["station"].values.tolist() == ["a", "", "c"]


def test_files_give_the_same_as_their_content(model: FieldModel, tmp_path: Path) -> None:
    stations().to_csv(tmp_path / "stations.csv", index=False)
    xr.Dataset(coords=GRID).to_netcdf(tmp_path / "grid.nc")
    result = model.predict(tmp_path / "stations.csv", tmp_path / "grid.nc")
    assert np.allclose(result["mean"], model.predict(stations(), GRID)["mean"])
    for name in ("out.nc", "out.zarr"):
        write_prediction(result, tmp_path / name)
        again = open_dataset(tmp_path / name)
        assert again["mean"].equals(result["mean"]) and again["mean"].attrs == result["mean"].attrs
    write_prediction(result, tmp_path / "out.csv")
    assert len(pd.read_csv(tmp_path / "out.csv")) == 35


def test_each_time_is_predicted_from_its_own_observations(model: FieldModel) -> None:
    first, second = stations(seed=0), stations(8, seed=1)
    both = pd.concat([second.assign(time=DAYS[1]), first.assign(time=DAYS[0])])
    result = model.predict(both, GRID)["mean"]
    assert result.dims == ("time", "latitude", "longitude")
    for day, table in zip(DAYS, (first, second), strict=True):
        assert np.allclose(result.sel(time=day), model.predict(table, GRID)["mean"], rtol=0, atol=1e-3)
    rows = pd.DataFrame({"lat": [42.0, 42.0], "lon": [1.0, 1.0], "time": DAYS})
    assert np.allclose(model.predict(both, rows)["mean"], result.sel(latitude=42, longitude=1), rtol=0, atol=1e-2)
    text = rows.assign(time=["2020-01-01T00:00Z", "2021-01-01"])
    one = model.predict(both, text)["mean"]
    assert one.dims == ("index",) and np.isnan(one[1]) and np.isclose(one[0], result[0].sel(latitude=42, longitude=1))
    named = model.predict(both, GRID | {"valid_time": ["2020-01-02"]})["mean"]
    assert named.dims == ("valid_time", "latitude", "longitude") and np.allclose(named, result[1:])
    other = xr.Dataset(coords=GRID | {"time": DAYS[1:] + pd.Timedelta("1D")})
    with pytest.raises(ValueError, match="share no time"):
        model.predict(both, other)
    only = model.predict(both, xr.Dataset(coords=GRID | {"time": DAYS[1:]}))["mean"]
    assert np.allclose(only, result[1:])


def test_a_gridded_context_with_gaps_equals_its_values(model: FieldModel) -> None:
    values = np.full((5, 7), np.nan)
    values[1, 2], values[4, 0] = 281.0, 285.0
    field = xr.DataArray(values, dims=("latitude", "longitude"), coords=GRID, name="t2m")
    table = pd.DataFrame({"lat": [42.0, 45.0], "lon": [-2.0, -4.0], "t2m": [281.0, 285.0]})
    assert np.allclose(model.predict(field, GRID)["mean"], model.predict(table, GRID)["mean"])


def test_fields_with_valid_times_beside_their_own_are_context_and_target(model: FieldModel, tmp_path: Path) -> None:
    """As GRIB has them: the valid time counts, and the result keeps it."""
    values = np.random.default_rng(0).normal(280, 5, (2, 5, 7))
    field = xr.DataArray(values, dims=("time", *GRID), coords=GRID | {"time": DAYS}, name="t2m")
    tiny.write_grib(field, tmp_path / "field.grib")
    expected = model.predict(field, GRID)["mean"]
    valid = xr.Variable("time", DAYS, {"standard_name": "time"})
    forecast = field.assign_coords(time=DAYS - pd.Timedelta("6h"), valid_time=valid)
    day = forecast.isel(time=[1])
    for context in (tmp_path / "field.grib", forecast):
        for target, times in ((GRID, DAYS), (tmp_path / "field.grib", DAYS), (forecast, DAYS), (day, DAYS[1:])):
            result = model.predict(context, target)["mean"]
            name = "time" if target is GRID else "valid_time"
            assert result.chunks is None and np.array_equal(result[name], times)
            found = result.sortby(list(GRID)).values
            assert np.allclose(found, expected.sel(time=times), rtol=0, atol=1e-2)


def test_outside_the_training_box_there_is_no_local_effect(model: FieldModel) -> None:
    far = {"latitude": [-30.0, -29.0], "longitude": [100.0, 101.0]}
    table = stations().assign(lat=lambda t: t["lat"] - 72, lon=lambda t: t["lon"] + 102)
    result = model.predict(table, far)
    assert not result["in_domain"].any() and (result["local_effect"] == 0).all()
    widened = FieldModel(model.process, model.frame, spread=1.3).eval()
    assert (widened.predict(table, far)["local_effect"] == 0).all()
    assert model.predict(stations(), GRID)["in_domain"].all()


def test_chunks_change_nothing(model: FieldModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.predict(stations(), GRID)
    target = xr.DataArray(np.zeros((5, 7)), dims=("latitude", "longitude"), coords=GRID, name="z")
    lazy = model.predict(stations(), target.chunk(latitude=2, longitude=4))
    assert lazy["mean"].chunks == ((2, 2, 1), (4, 3))
    computed = lazy.compute(scheduler="threads", num_workers=4)
    assert np.allclose(computed["mean"], whole["mean"], rtol=0, atol=1e-3)
    assert np.allclose(computed["local_effect"], whole["local_effect"], atol=1e-3)
    days = xr.Dataset({"z": (("time", "latitude", "longitude"), np.zeros((2, 5, 7)))}, coords=GRID | {"time": DAYS})
    both = pd.concat([stations().assign(time=day) for day in DAYS])
    assert model.predict(both, days.chunk(time=1))["mean"].chunks == ((1, 1), (5,), (7,))
    monkeypatch.setattr(prediction, "CHUNK", 4)
    assert np.allclose(model.predict(stations(), GRID)["std"], whole["std"], rtol=1e-4)


@pytest.mark.parametrize("scheduler", ["threads", "synchronous"])
def test_a_lazy_prediction_is_switched_as_it_was_when_made(model: FieldModel, scheduler: str) -> None:
    target = xr.DataArray(np.zeros((5, 7)), dims=("latitude", "longitude"), coords=GRID, name="z").chunk(latitude=2)
    with model.process.equivariant():
        without = model.predict(stations(), target)
    assert (without.compute(scheduler=scheduler)["local_effect"] == 0).all()
    lazy = model.predict(stations(), target)
    with model.process.equivariant():
        assert np.abs(lazy.compute(scheduler=scheduler)["local_effect"]).max() > 1e-2
        assert not model.process.fixed_inputs.active
    assert model.process.fixed_inputs.active


def test_a_saved_model_predicts_the_same(model: FieldModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    again = FieldModel.load(tmp_path / "model.safetensors")
    assert again.predict(stations(), GRID).identical(model.predict(stations(), GRID))
    aenp.save(model.process, tmp_path / "process.safetensors")
    with pytest.raises(ValueError, match="holds a ConvCNP, not a FieldModel"):
        FieldModel.load(tmp_path / "process.safetensors")


def dated(table: pd.DataFrame) -> pd.DataFrame:
    """The stations with times and elevations."""
    return table.assign(time=DAYS[np.arange(len(table)) % 2], elevation=np.linspace(0, 900, len(table)))


def both(table: pd.DataFrame) -> pd.DataFrame:
    """The stations with rain."""
    return table.assign(rain=np.random.default_rng(3).normal(2, 0.5, len(table)))


def moments(
    model: FieldModel, table: pd.DataFrame, target: pd.DataFrame, names: list[str]
) -> torch.distributions.Distribution:
    """What the neural process itself predicts at the target, in its own units."""
    xc, xt = (
        torch.from_numpy(model.frame.x({"latitude": each["lat"], "longitude": each["lon"]} | dict(each)))[None]
        for each in (table, target)
    )
    yc = np.stack([v.y(table[name].to_numpy()) for v, name in zip(model.frame.variables, names, strict=True)], axis=-1)
    return aenp.predict(model.process, aenp.Task(xc, torch.from_numpy(yc).float()[None], xt))


def test_a_model_that_sees_time_and_elevation_predicts_from_all_observations(space_time: FieldModel) -> None:
    context, target = dated(stations()), dated(stations(5, seed=2)).drop(columns="t2m")
    expected = moments(space_time, context, target, ["t2m"])
    result = space_time.predict(context, target)
    assert result["mean"].dims == ("index",) and np.array_equal(result["time"], target["time"])
    assert np.allclose(result["mean"], 280 + 5 * expected.mean.view(5), rtol=0, atol=1e-3)
    assert np.allclose(result["std"], 5 * expected.stddev.view(5), rtol=1e-4)
    other = space_time.predict(context, target.assign(elevation=2000.0))
    assert not np.allclose(result["mean"], other["mean"], rtol=0, atol=1e-2)


def test_time_and_elevation_decide_what_is_in_the_domain(space_time: FieldModel) -> None:
    target = pd.DataFrame({"lat": 42.0, "lon": 1.0, "time": ["2020-06-01", "2021-06-01"], "elevation": 9000.0})
    assert space_time.predict(dated(stations()), target)["in_domain"].values.tolist() == [True, False]


def test_a_target_without_times_has_those_of_the_observations(space_time: FieldModel) -> None:
    result = space_time.predict(dated(stations()), GRID, elevation=HIGH)
    assert result["mean"].dims == ("time", "latitude", "longitude") and np.array_equal(result["time"], DAYS)
    later = space_time.predict(dated(stations()), GRID | {"time": ["2020-03-01"]}, elevation=HIGH)
    assert later["mean"].shape == (1, 5, 7) and np.isfinite(later["mean"]).all()


def test_missing_elevations_come_from_the_topography(space_time: FieldModel) -> None:
    """At sea they are zero; given ones are kept."""
    context = dated(stations())
    metres = np.maximum(100 * (LATITUDES - 42), 0)[:, None] + np.zeros(7)
    given = xr.Dataset(coords=GRID | {"elevation": (("latitude", "longitude"), metres)})
    from_topography = space_time.predict(context, GRID, elevation=HIGH)
    assert np.allclose(space_time.predict(context, given)["mean"], from_topography["mean"], rtol=0, atol=1e-3)
    above = space_time.predict(context, given.assign_coords(elevation=given.elevation + 3000), elevation=HIGH)
    assert not np.allclose(above["mean"], from_topography["mean"], rtol=0, atol=1e-2)
    own = context.assign(elevation=np.maximum(100 * (context["lat"] - 42), 0))
    without = space_time.predict(context.drop(columns="elevation"), given, elevation=HIGH)
    assert np.allclose(without["mean"], space_time.predict(own, given)["mean"], rtol=0, atol=1e-3)
    half = own.assign(elevation=own["elevation"].where(own.index % 2 == 0))
    assert np.allclose(space_time.predict(half, given, elevation=HIGH)["mean"], without["mean"], rtol=0, atol=1e-3)


def test_places_beyond_the_topography_come_out_as_nan(space_time: FieldModel) -> None:
    target = {"latitude": [45.0, 60.0], "longitude": [0.0]}
    result = space_time.predict(dated(stations()), target, elevation=HIGH)
    assert np.isnan(result["mean"][0, :, 0]).values.tolist() == [False, True]


def test_elevations_in_other_units_are_converted(space_time: FieldModel) -> None:
    context, target = dated(stations()), dated(stations(5, seed=1)).drop(columns="t2m")
    expected = space_time.predict(context, target)["mean"]
    kilometres = [
        table.assign(elevation=table["elevation"] / 1000).rename(columns={"elevation": "elevation [km]"})
        for table in (context, target)
    ]
    assert np.allclose(space_time.predict(*kilometres)["mean"], expected, rtol=0, atol=1e-3)


def test_a_centred_model_moves_with_the_level_of_its_context() -> None:
    torch.manual_seed(0)
    fixed_inputs = aenp.FixedInputs(2, domain=FRAME.domain)
    centred = FieldModel(
        aenp.PTTNP(2, 1, dim=16, heads=2, layers=2, fixed_inputs=fixed_inputs, values="centred"), FRAME
    )
    before, after = (centred.eval().predict(stations().assign(t2m=lambda t, k=k: t["t2m"] + k), GRID) for k in (0, 10))
    assert np.allclose(after["mean"], before["mean"] + 10, rtol=0, atol=1e-3)
    assert np.allclose(after["equivariant_mean"], before["equivariant_mean"] + 10, rtol=0, atol=1e-3)
    assert np.allclose(after["std"], before["std"], rtol=0, atol=1e-3)
    assert np.allclose(after["local_effect"], before["local_effect"], rtol=0, atol=1e-3)
    assert abs(before["local_effect"]).max() > 1e-3


@pytest.fixture(scope="module")
def on_grid() -> FieldModel:
    """A model that needs its places on a grid, every quarter of a degree."""
    torch.manual_seed(0)
    fixed_inputs = aenp.FixedInputs(2, domain=FRAME.domain)
    process = aenp.ConvCNP(2, 1, points_per_unit=16.0, on_grid=True, channels=8, layers=3, fixed_inputs=fixed_inputs)
    return FieldModel(process, FRAME).eval()


def at_nodes(table: pd.DataFrame, first: float = 0.0) -> pd.DataFrame:
    """The stations at the nearest of the nodes, every quarter of a degree, with their mean where there are several."""
    nodes = {name: first + ((table[name] - first) * 4).round() / 4 for name in ("lat", "lon")}
    return table.assign(**nodes).groupby(["lat", "lon"], as_index=False).mean()


def test_a_model_on_a_grid_moves_stations_to_the_nearest_nodes(on_grid: FieldModel) -> None:
    table = pd.concat([stations(), stations().assign(lat=lambda t: t["lat"] + 1e-3, t2m=280.0)])
    result, expected = (on_grid.predict(each, GRID) for each in (table, at_nodes(table)))
    assert len(at_nodes(table)) < len(table) and np.array_equal(result["mean"], expected["mean"])
    assert np.array_equal(result["std"], expected["std"]) and "comment" not in expected.attrs
    assert re.search(r"works on a 0\.25° × 0\.25° grid: .* by at most 0\.1\d+° × ", result.attrs["comment"])


def test_a_place_between_the_nodes_is_predicted_as_the_nearest(on_grid: FieldModel) -> None:
    """The grid goes through the context if that lies on one, and else it is that of the training region."""
    places = stations(9, seed=1).drop(columns="t2m")
    seen = at_nodes(stations())
    expected = on_grid.predict(seen, GRID | {"latitude": [41.25, 44.5], "longitude": [0.25, 1.0]})["mean"]
    near = pd.DataFrame({"lat": [41.2, 41.33, 44.4, 44.61], "lon": [0.3, 0.9, 0.2, 1.11]})
    assert np.array_equal(on_grid.predict(seen, near)["mean"], expected.values.ravel())
    scattered = on_grid.predict(stations(), places)["mean"]
    training = at_nodes(stations(), first=0.125)
    assert np.allclose(scattered, on_grid.predict(training, places)["mean"], rtol=0, atol=1e-3)


def test_locations_on_a_grid_are_not_moved(on_grid: FieldModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, also with the round-off of coordinates and with two values at one node."""
    table = pd.concat([at_nodes(stations()), at_nodes(stations()).head(2)]).astype({"lat": np.float32})
    shifted = table.assign(lat=table["lat"] + 0.1, lon=table["lon"] + 0.2)
    target = {"latitude": LATITUDES + 0.1, "longitude": (LONGITUDES + 0.2).astype(np.float32)}
    found = [on_grid.predict(table, GRID), on_grid.predict(shifted, target)]
    monkeypatch.setattr("aenp.earth.field_model.nodes_for", lambda *_: (None, {}))
    assert found[0].identical(on_grid.predict(table, GRID)) and found[1].identical(on_grid.predict(shifted, target))


@pytest.mark.parametrize(
    ("context", "target", "topography", "message"),
    [
        (dated(stations()).drop(columns="time"), GRID, HIGH, "DataFrame has no time, which the model"),
        (dated(stations()).drop(columns="elevation"), GRID, None, "DataFrame lacks elevations, which the model"),
        (dated(stations()), GRID, None, "dict lacks elevations, which the model"),
        (dated(stations()), {"latitude": [60.0], "longitude": [0.0]}, HIGH, "dict has no known elevation"),
        (dated(stations()), dated(stations()).assign(time=pd.NaT), None, "DataFrame has no known time"),
        (
            dated(stations()).assign(lat=60.0, elevation=np.nan), GRID, HIGH,
            "DataFrame has places that the topography does not cover",
        ),
    ],
)  # fmt: skip
def test_missing_times_and_elevations_raise(
    space_time: FieldModel, context: object, target: object, topography: xr.DataArray | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        space_time.predict(context, target, elevation=topography)


def test_the_map_of_several_variables_has_a_row_for_each(
    two_variables: FieldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the observations of each."""
    context = both(stations())
    context.loc[context.index[2:], "rain"] = np.nan
    panels = drawn(two_variables.predict(context, GRID), two_variables.observed(context), monkeypatch)
    assert len({axis.get_position().y0 for axis in panels}) == 2 and len(panels) % 2 == 0
    firsts = panels[0], panels[len(panels) // 2]
    assert [axis.get_ylabel() for axis in firsts] == ["t2m, latitude [°]", "rain, latitude [°]"]
    assert [len(axis.collections[1].get_offsets()) for axis in firsts] == [len(stations()), 2]


def drawn(prediction: xr.Dataset, observed: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The panels of a map, without their colour bars."""
    figures: dict[Path, Figure] = {}
    monkeypatch.setattr(maps, "save_figure", lambda figure, file: figures.setdefault(file, figure) and file)
    figure = figures[map_prediction(prediction, observed, Path("map.png"))]
    pyplot.close(figure)
    return [axis for axis in figure.axes if axis.get_title()]


def test_a_map_of_an_exact_model_has_no_local_effect(model: FieldModel, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = FieldModel(aenp.ConvCNP(2, 1, points_per_unit=4, channels=8, layers=3), FRAME)
    titles = [
        [axis.get_title() for axis in drawn(each.predict(stations(), GRID), each.observed(stations()), monkeypatch)]
        for each in (exact, model)
    ]
    assert titles[0] == ["prediction", "standard deviation"] == titles[1][:2] and len(titles[1]) == 4


@pytest.mark.parametrize("target", ["41,41.5,-4,2,1", "41,45,2,2.5,1", "41,41.5,2,2.5,1"])
def test_a_map_of_one_row_or_place_shows_every_value(
    target: str, model: FieldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prediction = model.predict(stations(), target)
    for axis in drawn(prediction, model.observed(stations()), monkeypatch):
        dots = axis.collections[0]
        assert dots.get_array().size == prediction["mean"].size == len(dots.get_offsets())
        assert np.ptp(axis.get_xlim()) > 0.5 and np.ptp(axis.get_ylim()) > 0.5


def test_a_map_shows_observations_in_the_colours_of_the_prediction(
    model: FieldModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, effect = (drawn(model.predict(stations(), GRID), model.observed(stations()), monkeypatch)[k] for k in (0, 3))
    image, dots = field.collections
    assert np.array_equal(dots.get_array(), stations()["t2m"])
    assert dots.get_clim() == image.get_clim() and dots.get_cmap() == image.get_cmap()
    assert len(effect.collections[1].get_facecolors()) == 0


def test_a_map_of_valid_times_shows_the_first(model: FieldModel, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = pd.concat([stations().assign(time=day) for day in DAYS])
    target = xr.Dataset(coords=GRID | {"time": DAYS - pd.Timedelta("6h"), "valid_time": ("time", DAYS)})
    panels = drawn(model.predict(observed, target), model.observed(observed), monkeypatch)
    assert len(panels) == 4 and len(panels[0].collections[1].get_offsets()) == len(stations())


@pytest.fixture
def predict_words(on_grid: FieldModel, tmp_path: Path) -> tuple[object, ...]:
    """A command line that predicts and draws."""
    on_grid.save(tmp_path / "model.safetensors")
    stations().to_csv(tmp_path / "stations.csv", index=False)
    files = {"weights": "model.safetensors", "context": "stations.csv", "out": "p.nc", "plot": "map.png"}
    options = [word for name, file in files.items() for word in (f"--{name}", tmp_path / file)]
    return "predict", "--target", "41,45,-4,2,1", *options


def test_the_command_reports_that_locations_were_moved(
    predict_words: tuple[object, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["aenp", *map(str, predict_words)])
    cli.main()
    printed, told = capsys.readouterr()
    assert len(printed.splitlines()) == 2
    moved = r"aenp: this model works on a \S+° × \S+° grid: locations were moved to its nodes, by at most \S+° × \S+°\n"
    assert re.fullmatch(moved, told)


def test_weights_may_be_the_directory_of_a_run(
    predict_words: tuple[object, ...], call: Callable[..., str], tmp_path: Path
) -> None:
    assert "p.nc" in call(*predict_words, "--weights", tmp_path)


def test_a_coast_needs_a_map(
    predict_words: tuple[object, ...], call: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call(*predict_words[:-2], "--coast", tmp_path / "coast.nc")
    assert "--coast draws coastlines on a map, but there is none; add --plot" in capsys.readouterr().err


def test_what_a_map_needs_is_read_before_the_prediction(
    predict_words: tuple[object, ...],
    call: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(FieldModel, "predict", lambda *_: pytest.fail("predicted too early"))
    (tmp_path / "coast.nc").write_text("nothing but text")
    with pytest.raises(SystemExit, match="2"):
        call(*predict_words, "--coast", tmp_path / "coast.nc")
    assert "coast.nc is not NetCDF" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "stations.csv"), "--out .*stations.csv would overwrite --context; choose another path"),
        (("--out", "../{}/stations.csv"), "--out .*stations.csv would overwrite --context; choose another path"),
        (("--out", "grid.nc", "--target", "grid.nc"), "--out .*grid.nc would overwrite --target"),
        (("--out", "high.nc", "--elevation", "high.nc"), "--out .*high.nc would overwrite --elevation"),
        (("--plot", "coast.png", "--coast", "coast.png"), "--plot .*coast.png would overwrite --coast"),
        (("--out", "p.nc", "--plot", "p.nc"), "--plot .*p.nc would overwrite --out"),
        (("--out", "p.png"), r"p.png is no name for a prediction; choose one that ends in .nc, .nc4, .csv, .zarr"),
        (("--out", "p"), "p is no name for a prediction"),
        (("--out", "model.safetensors"), "model.safetensors is no name for a prediction"),
    ],
)
def test_a_prediction_never_replaces_what_it_is_made_of(
    options: tuple[str, ...],
    message: str,
    predict_words: tuple[object, ...],
    call: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    words = [word if word.startswith("--") else tmp_path / word.format(tmp_path.name) for word in options]
    with pytest.raises(SystemExit, match="2"):
        call(*predict_words, *words)
    assert re.search(message, capsys.readouterr().err)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_map_that_fails_leaves_the_prediction(
    predict_words: tuple[object, ...], call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(maps, "save_figure", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    with pytest.raises(SystemExit, match="2"):
        call(*predict_words)
    assert open_dataset(tmp_path / "p.nc")["mean"].shape == (5, 7) and not (tmp_path / "map.png").exists()


def test_the_coast_of_a_map_is_read_around_the_target(tmp_path: Path) -> None:
    HIGH.rename("topo").to_netcdf(tmp_path / "high.nc")
    coast = maps.read_coast(tmp_path / "high.nc", {"latitude": [44.0, 45.0], "longitude": [359.0, 360.0]}, stations())
    assert coast.latitude.values.tolist() == [43.0, 44.0, 45.0, 46.0] and coast.sizes["longitude"] == 4


def test_a_field_of_two_variables_equals_its_values(two_variables: FieldModel) -> None:
    values = {name: (("latitude", "longitude"), mean + np.zeros((5, 7))) for name, mean in (("t2m", 281), ("rain", 1))}
    field = xr.Dataset(values, coords=GRID)
    table = field.to_dataframe().reset_index()
    expected = two_variables.predict(table, GRID)
    assert np.allclose(two_variables.predict(field, GRID)["rain_mean"], expected["rain_mean"], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "observed"), [("space_time", dated), ("two_variables", both)])
def test_saved_models_of_further_axes_and_variables_predict_the_same(
    name: str, observed: Callable[[pd.DataFrame], pd.DataFrame], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    model = request.getfixturevalue(name)
    model.save(tmp_path / "model.safetensors")
    again = FieldModel.load(tmp_path / "model.safetensors")
    assert again.frame.configuration() == model.frame.configuration()
    first, second = (each.predict(observed(stations()), GRID, elevation=HIGH) for each in (model, again))
    assert second.identical(first)


def test_places_without_coordinates_come_out_as_nan(model: FieldModel) -> None:
    table = pd.DataFrame({"lat": [42.0, np.nan], "lon": [1.0, 1.0]})
    assert np.isnan(model.predict(stations(), table)["mean"]).values.tolist() == [False, True]


def test_a_new_process_can_load_any_model(model: FieldModel, tmp_path: Path) -> None:
    """Though it has not imported the class."""
    model.save(tmp_path / "model.safetensors")
    code = f"import aenp; print(type(aenp.load({str(tmp_path / 'model.safetensors')!r})).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "FieldModel\n"


def test_a_model_without_symmetry_has_no_equivariant_part() -> None:
    process = aenp.PTTNP(2, 1, symmetry="none", dim=8, heads=2, layers=1, pseudo_tokens=4)
    assert set(FieldModel(process, FRAME).predict(stations(), GRID)) == {"mean", "std", "in_domain"}


@pytest.mark.parametrize(
    ("context", "target", "message"),
    [
        (stations().rename(columns={"t2m": "t2m [mm]"}), GRID, "'mm' and 'K' differ and cannot be converted"),
        (stations(), {"latitude": [1.0]}, "needs a latitude and a longitude"),
        (stations(), "36,47,170,-170,5", "ends west of where it begins; across the date line, write 36,47,170,190,5"),
        (stations().drop(columns="lon"), GRID, "has no longitude"),
        (stations().assign(t2m=lambda t: t["t2m"] - 273.15), GRID, "values are about .* Check variable and units"),
        (stations().assign(t2m="warm"), GRID, "column t2m has the value 'warm', which is not a number"),
        (stations().assign(t2m="warm", other=280.0), GRID, "column t2m has the value 'warm'"),
        (stations(), "50,58,-10", "a grid is south,north,west,east,step"),
        (stations(), {"latitude": [], "longitude": []}, "no place to predict at"),
        (stations(), pd.DataFrame({"latitude": [], "longitude": []}, dtype=object), "predict at: it is empty"),
        (stations(), stations().assign(mean="a"), "has mean, which is a name in the prediction too: rename it"),
        (stations(), stations().rename_axis("in_domain"), "has in_domain, which is a name in the prediction too"),
    ],
)
def test_invalid_arguments_raise(model: FieldModel, context: object, target: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.predict(context, target)


def test_units_of_rain_are_checked_where_it_rains() -> None:
    frame = Frame(list(FRAME.axes.values()), [Variable("rain", 0.0, 3.0, low=0.0)])
    model = FieldModel(aenp.CNP(2, 1, likelihood=NonNegative()), frame)
    rain = stations().assign(rain=[0.0, 0.0] + 5 * [3000.0, 4000.0]).drop(columns="t2m")
    with pytest.raises(ValueError, match=r"values are about 3500; the model .* rain of 0 ± 3\. Check"):
        model.predict(rain, GRID)
    for fine in ([0.0] * 12, [0.0] * 11 + [90.0]):  # a shower at one station is no other unit
        assert np.isfinite(model.predict(rain.assign(rain=fine), GRID)["mean"]).all()


def test_a_grid_across_the_date_line_is_predicted_in_one_piece(model: FieldModel) -> None:
    east = stations().assign(lon=lambda t: t["lon"] % 360 - 180)
    west = stations().assign(lon=lambda t: t["lon"] + 180)
    results = [model.predict(table, "41,45,176,182,1")["mean"] for table in (east, west)]
    assert results[0].shape == (5, 7) and np.allclose(*results, rtol=0, atol=1e-3)


ODD = """
import aenp, numpy as np
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Frame, Variable

frame = Frame([Axis("latitude", 4.0), Axis("longitude", 4.0)], [Variable("t2m", 280.0, 5.0)])
model = FieldModel(aenp.CNP(2, 1), frame)
grid = {"latitude": [1.0], "longitude": [1.0]}
for odd in (
    lambda: model.predict({"lat": [1.0], "lon": [1.0], "t2m": [280.0]}, grid),
    lambda: model.predict([280.0], grid),
    lambda: model.predict(np.ones((2, 3)), grid),
    lambda: Axis("latitude", "6"),
    lambda: Axis("latitude", 6.0, low=[1.0], high=2.0),
    lambda: Variable("t2m", "280", 5.0),
):
    try:
        odd()
    except ValueError as error:
        print(error)
"""


def test_unsupported_types_raise() -> None:
    """As users meet them, without the checks of types that tests have."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", ODD], capture_output=True, text=True, check=True)
    neither = "the given {} is neither a table nor a field; give a pandas DataFrame, an xarray object or a file"
    assert done.stdout.splitlines() == [
        *(neither.format(kind) for kind in ("dict", "list", "ndarray")),
        "latitude: unit must be a number; got '6'",
        "latitude: low must be a number; got [1.0]",
        "t2m: mean must be a number; got '280'",
    ]
