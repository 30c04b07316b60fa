"""fit: from a field or a table to a model in the user's units."""

import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from aenp.earth import fitting
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit, prepare
from aenp.earth.frame import Frame

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
    with pytest.raises(ValueError, match="belongs to another model"):
        fit(field(), "pttnp", steps=2, out=tmp_path, resume=True)
    assert fit(field(), steps=2, out=tmp_path, resume=True).frame.variables[0].name == "t2m"


def test_a_lazy_field_gives_the_same_tasks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    field().to_netcdf(tmp_path / "t2m.nc")
    task = prepare(tmp_path / "t2m.nc").source.batch(4, 0, 0)
    monkeypatch.setattr(fitting, "IN_MEMORY", 0)
    source = prepare(tmp_path / "t2m.nc").source
    assert not isinstance(source.fields.field, np.ndarray)
    lazy = source.batch(4, 0, 0)
    assert np.allclose(lazy.yt, task.yt, atol=1e-5) and np.array_equal(lazy.xc, task.xc)


def test_training_learns_the_field(tmp_path: Path) -> None:
    few = table()[lambda t: t["time"] == TIMES[19]]
    truth = field().isel(time=[19])
    errors = []
    for steps in (1, 60):
        error = fit(field(), "convcnp", steps=steps).predict(few, truth)["mean"] - truth
        errors.append(float(np.sqrt((error**2).mean())))
    assert errors[1] < 0.7 * errors[0]


@pytest.mark.slow
def test_from_the_command_line_to_a_map(call: Callable[..., str], tmp_path: Path) -> None:
    field().to_netcdf(tmp_path / "t2m.nc")
    table().to_csv(tmp_path / "stations.csv", index=False)
    out = tmp_path / "run"
    assert "aenp predict --weights" in call("fit", tmp_path / "t2m.nc", "--steps", 2, "--out", out)
    call("fit", tmp_path / "t2m.nc", "--steps", 3, "--out", out, "--resume")
    files = ("--context", tmp_path / "stations.csv", "--out", tmp_path / "pred.nc", "--plot", tmp_path / "map.png")
    printed = call("predict", "--weights", out / "model.safetensors", "--target", tmp_path / "t2m.nc", *files)
    assert printed.split() == [str(tmp_path / "pred.nc"), str(tmp_path / "map.png")]
    assert xr.open_dataset(tmp_path / "pred.nc")["mean"].shape == (20, 10, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "cnp"}, "family must be one of"),
        ({"resume": True}, "resume needs `out`"),
        ({"region": (0.0, 1.0, 0.0, 1.0)}, "no data in region"),
        ({"region": (40.0, 41.0, 0.0, 1.0)}, "at least 4 × 4 points"),
        ({"variable": "rain"}, "no variable 'rain'"),
        ({"period": ("2020-01-01", "2020-01-01"), "data": 0 * field()}, "all the same or missing"),
        ({"data": table().assign(time=lambda t: t["time"] + pd.to_timedelta(t.index, "s"))}, "round these"),
    ],
)
def test_invalid_arguments_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit(**({"data": field(), "steps": 1} | options))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    runpy.run_path(str(Path(__file__).parents[2] / "docs" / "tutorial_own_data.py"))["main"](0.05, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "prediction.nc", "map.png", "scores.png"}
