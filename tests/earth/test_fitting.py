"""fit: from a field or a table to a model in the user's units."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from aenp.earth import fitting, training_data
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit
from aenp.earth.frame import Frame
from aenp.earth.training_data import prepare
from aenp.evaluation.metrics import crps
from aenp.likelihoods import Normal, Robust

TIMES = pd.date_range("2020-01-01", periods=20)


def field(sides: tuple[int, int] = (10, 12)) -> xr.DataArray:
    """Waves over a slope, in kelvin, with a gap."""
    latitude, longitude = 40 + 0.5 * np.arange(sides[0]), 0.5 * np.arange(sides[1])
    phase = np.random.default_rng(0).uniform(0, 6, (20, 1, 1))
    values = 280 + latitude[:, None] / 4 + 3 * np.sin(longitude + latitude[:, None] + phase)
    values[:, 0, 0] = np.nan
    coords = {"time": TIMES, "latitude": latitude, "longitude": longitude}
    attrs = {"units": "K", "long_name": "temperature"}
    return xr.DataArray(values, dims=tuple(coords), coords=coords, name="t2m", attrs=attrs)


def box(frame: Frame) -> list[float]:
    """South, north, west, east."""
    return [bound for axis in frame.axes.values() for bound in (axis.low, axis.high)]


def table() -> pd.DataFrame:
    return field().to_dataframe().dropna().sample(800, random_state=0).reset_index()


@pytest.mark.parametrize("family", fitting.OPTIONS)
def test_every_family_fits_a_field_and_predicts_in_its_units(family: str) -> None:
    model = fit(field(), family, steps=2)
    result = model.predict(table(), field().isel(time=[0, 3]))
    assert result["mean"].shape == (2, 10, 12) and result["mean"].attrs["units"] == "K"
    assert (np.abs(result["mean"] - 280) < 100).all() and result["in_domain"].all()
    assert model.process.symmetry == "approx" and np.isfinite(result["std"]).all()


def test_a_model_can_be_fitted_to_stations(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "stations.csv", index=False)
    model = fit(tmp_path / "stations.csv", "convcnp", "exact", steps=2)
    assert model.predict(table(), {"latitude": [42.0], "longitude": [1.0]})["mean"].shape == (20, 1, 1)


def test_stations_have_a_transformer_and_faults_by_default() -> None:
    """What is not chosen suits the data: stations, where some are faulty, or a field; what is chosen stays."""
    stations, grid = fit(table(), steps=1).process, fit(field(), steps=1).process
    assert (stations.family, type(stations.likelihood)) == ("tnp", Robust)
    assert (grid.family, type(grid.likelihood)) == ("convcnp", Normal)
    chosen = fit(table(), "pttnp", steps=1, likelihood="normal").process
    assert (chosen.family, type(chosen.likelihood)) == ("pttnp", Normal)


def test_a_model_carries_the_period_of_its_training_data(tmp_path: Path) -> None:
    dates = tuple(str(date)[:10] for date in field().time.values[[0, -1]])
    assert prepare(field()).frame.period == prepare(table()).frame.period == dates
    assert prepare(table().query("time == time.min()").drop(columns="time")).frame.period is None
    fit(field(), "tnp", steps=1).save(tmp_path / "model.safetensors")
    loaded = FieldModel.load(tmp_path / "model.safetensors")
    assert loaded.predict(table(), "41,42,1,2,1").attrs["training_period"] == " to ".join(dates)


def test_outputs_are_centred_where_fields_differ_in_level() -> None:
    assert fit(field(), "tnp", steps=1).process.values == "raw"
    levels = field() + 100 * np.arange(20)[:, None, None]
    assert fit(levels, "tnp", steps=1).process.values == "centred"


def test_tasks_are_normalised_and_the_last_dates_are_held_out() -> None:
    data = prepare(field())
    values = np.concatenate([data.source.batch(16, i, 0).yt.numpy().ravel() for i in range(8)])
    assert abs(np.nanmean(values)) < 0.2 and abs(np.nanstd(values) - 1) < 0.2
    assert len(data.source.fields) == 18 and len(data.validation) == 4
    assert box(data.frame) == [39.75, 44.75, -0.25, 5.75] and data.frame.axes["latitude"].unit == 8.0


def test_a_region_across_the_date_line_is_one_piece() -> None:
    across = field().assign_coords(longitude=lambda f: (f.longitude + 177 + 180) % 360 - 180)
    data = prepare(across)
    assert box(data.frame) == [39.75, 44.75, 176.75, 182.75]
    task = data.source.batch(8, 0, 0)
    assert float((task.xt.amax(1) - task.xt.amin(1)).max()) < 1
    table = across.to_dataframe().dropna().reset_index()
    assert box(prepare(table).frame) == [40.0, 44.5, 177.0, 182.5]


def test_a_run_resumes_only_with_the_same_model_and_data(tmp_path: Path) -> None:
    fit(field(), steps=1, out=tmp_path)
    with pytest.raises(ValueError, match="was fitted to other data"):
        fit(field() + 1, steps=2, out=tmp_path, resume=True)
    for name, other in {"family": "pttnp", "likelihood": "robust", "seed": 3}.items():
        with pytest.raises(ValueError, match=f"has {name}=.*; it cannot be resumed with {name}={other!r}"):
            fit(field(), steps=2, out=tmp_path, resume=True, **{name: other})
    assert fit(field(), steps=2, out=tmp_path, resume=True).frame.variables[0].name == "t2m"


def test_a_lazy_field_gives_the_same_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    field().to_netcdf(tmp_path / "t2m.nc")
    task = prepare(tmp_path / "t2m.nc").source.batch(4, 0, 0)
    monkeypatch.setattr(training_data, "IN_MEMORY", 0)
    source = prepare(tmp_path / "t2m.nc").source
    assert not isinstance(source.fields.fields[0], np.ndarray)
    lazy = source.batch(4, 0, 0)
    assert np.allclose(lazy.yt, task.yt, atol=1e-5) and np.array_equal(lazy.xc, task.xc)


def test_training_learns_the_field(tmp_path: Path) -> None:
    few = table()[lambda t: t["time"] == TIMES[19]]
    truth = field().isel(time=[19])
    errors = []
    for steps in (1, 100):
        error = fit(field(), "convcnp", steps=steps).predict(few, truth)["mean"] - truth
        errors.append(float(np.sqrt((error**2).mean())))
    assert errors[1] < 0.7 * errors[0]


def cloudy(side: int = 40) -> tuple[xr.DataArray, xr.DataArray]:
    """An image with round clouds over a third of it, and what is below them."""
    axis = np.arange(side)
    y, x = np.meshgrid(axis, axis, indexing="ij")
    values = 290 + 3 * np.sin(x / 5) + 3 * np.cos(y / 6 + x / 15)
    centres = np.random.default_rng(1).uniform(0, side, (side**2 // 110, 2))
    clouds = (np.hypot(y[..., None] - centres[:, 0], x[..., None] - centres[:, 1]) < 4).any(-1)
    coords = {"latitude": 40 + 0.1 * axis, "longitude": 0.1 * axis}
    clear = xr.DataArray(values, dims=tuple(coords), coords=coords, name="sst", attrs={"units": "K"})
    return clear.where(~clouds), clear


@pytest.mark.slow
def test_an_image_with_gaps_is_filled_by_a_model_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fitting.OPTIONS, "convcnp", {"channels": 16, "layers": 5, "margin": 0})
    image, clear = cloudy(28)
    filled = fit(image, "convcnp", steps=160).predict(image, image)["mean"]
    hidden = image.isnull()
    away = filled - clear, image.mean() - clear
    error, spread = (float(np.sqrt((each.where(hidden) ** 2).mean())) for each in away)
    assert 0.2 < float(hidden.mean()) < 0.5 and error < 0.5 * spread


@pytest.mark.parametrize("form", ["without time", "with one time", "as a table", "with one time as a table"])
def test_single_snapshots_have_held_out_blocks(form: str) -> None:
    image = cloudy()[0]
    image = image.expand_dims(time=TIMES[:1]) if "one time" in form else image
    data = prepare(image.to_dataframe().reset_index() if "table" in form else image)
    values = data.source.values if "table" in form else data.source.fields
    assert "table" in form or data.source.gaps > 0
    assert len(values) == 1 and len(data.validation) == 4
    assert 0 < int(image.count()) - np.isfinite(values).sum() <= 0.1 * int(image.count())


def rain() -> xr.DataArray:
    """Showers that move from day to day, in mm: most places are dry, with traces of drizzle and round-off."""
    rng = np.random.default_rng(1)
    x, y = 0.5 * np.arange(16), 0.5 * np.arange(16)[:, None]
    showers = np.zeros((60, 16, 16))
    for _ in range(3):
        centre = rng.uniform(0, 8, (2, 60, 1, 1))
        showers += rng.gamma(2.0, 8.0, (60, 1, 1)) * np.exp(-((x - centre[0]) ** 2 + (y - centre[1]) ** 2) / 2)
    values = np.where(showers > 1, showers - 1, 0.0)
    values[0, 0, 0], values[1, 0, 0] = 1e-12, -1e-9
    coords = {"time": pd.date_range("2020-01-01", periods=60), "latitude": 40 + y[:, 0], "longitude": x}
    return xr.DataArray(values, dims=tuple(coords), coords=coords, name="tp", attrs={"units": "mm"})


def test_rain_is_never_negative() -> None:
    model = fit(rain(), "tnp", steps=2, likelihood="precipitation")
    day = rain().isel(time=[55])
    some = day.to_dataframe().sample(60, random_state=0).reset_index()
    result = model.predict(some, day, quantiles=(0.01, 0.5, 0.99), samples=2)
    assert model.process.values == "raw" and model.frame.variables[0].mean == 0
    for name in ("mean", "quantiles", "samples"):
        assert (result[name] >= 0).all() and result[name].attrs["units"] == "mm"
    zero = result["probability_of_zero"]
    assert ((zero > 0) & (zero < 1)).all() and zero.attrs["units"] == "1"
    for each in result["quantiles"]:
        assert ((each == 0) == (zero >= float(each["quantile"]))).mean() > 0.99


@pytest.mark.slow
def test_rain_has_a_better_crps_than_with_a_normal_after_as_many_steps() -> None:
    scores = {}
    for likelihood in ("normal", "precipitation"):
        process = fit(rain(), "tnp", steps=20, likelihood=likelihood, start="nothing").process
        tasks = prepare(rain(), likelihood=likelihood).validation
        with torch.no_grad():
            scores[likelihood] = torch.stack([crps(process(task), task.yt).mean() for task in tasks]).mean()
    assert scores["precipitation"] < 0.9 * scores["normal"]


def test_bounded_values_stay_between_their_bounds() -> None:
    humidity = (60 + 20 * (field() - 291)).clip(0, 100).assign_attrs(units="%")
    model = fit(humidity, "tnp", steps=2, likelihood="bounded")
    few = humidity.to_dataframe().dropna().sample(200, random_state=0).reset_index()
    quantiles = model.predict(few, humidity.isel(time=[0]), quantiles=(0.01, 0.99))["quantiles"]
    assert (quantiles >= 0).all() and (quantiles <= 100).all() and (quantiles[1] > quantiles[0]).all()
    assert prepare(humidity / 100, likelihood="bounded", bounds=(0, 1)).frame.variables[0].high == 1


@pytest.mark.slow
def test_from_the_command_line_to_a_map(call: Callable[..., str], tmp_path: Path) -> None:
    field().to_netcdf(tmp_path / "t2m.nc")
    table().to_csv(tmp_path / "stations.csv", index=False)
    out = tmp_path / "run"
    assert "aenp predict --weights" in call("fit", tmp_path / "t2m.nc", "--steps", 2, "--out", out)
    call("fit", tmp_path / "t2m.nc", "--steps", 3, "--out", out, "--resume")
    files = ("--context", tmp_path / "stations.csv", "--out", tmp_path / "pred.nc", "--plot", tmp_path / "map.png")
    files += ("--quantiles", 0.05, 0.95, "--samples", 2)
    printed = call("predict", "--weights", out / "model.safetensors", "--target", tmp_path / "t2m.nc", *files)
    assert printed.split() == [str(tmp_path / "pred.nc"), str(tmp_path / "map.png")]
    prediction = xr.open_dataset(tmp_path / "pred.nc")
    assert prediction["mean"].shape == (20, 10, 12)
    assert prediction["quantiles"].shape == prediction["samples"].shape == (2, 20, 10, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "cnp"}, "family must be one of"),
        ({"resume": True}, "resume needs `out`"),
        ({"region": (0.0, 1.0, 0.0, 1.0)}, "no data in region"),
        ({"region": (40.0, 41.0, 0.0, 1.0)}, "at least 4 × 4 points"),
        ({"variable": "rain"}, "no variable 'rain'"),
        ({"likelihood": "gamma"}, "likelihood must be one of normal, robust, precipitation, bounded; got 'gamma'"),
        ({"bounds": (0, 1)}, "bounds are for likelihood='bounded'; got None"),
        (
            {"likelihood": "bounded"},
            "bounds of t2m in 'K' are not known; give its smallest and largest value as `bounds`",
        ),
        ({"likelihood": "bounded", "bounds": (0, 1)}, "t2m must lie between 0 and 1 K; got values from"),
        ({"likelihood": "precipitation", "data": field() - 300}, "t2m must lie between 0 and inf"),
        (
            {"likelihood": "precipitation", "data": field()},
            "far from zero, and likelihood='precipitation' is",
        ),
        ({"period": ("2020-01-01", "2020-01-01"), "data": 0 * field()}, "all the same or missing"),
        ({"data": (0 * field() + 288.15).astype(np.float32)}, "all the same or missing.*; choose another variable"),
        ({"data": table().assign(time=lambda t: t["time"] + pd.to_timedelta(t.index, "s"))}, "round their times"),
    ],
)
def test_invalid_arguments_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(**({"data": field(), "steps": 1} | options))  # type: ignore[arg-type]
