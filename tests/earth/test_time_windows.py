"""Windows of time: observations of other times count, and what is learned of the year holds in the next one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from aenp.data.windows import Windows
from aenp.earth import fitting
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit
from aenp.earth.time_windows import days_in
from aenp.earth.training_data import Data, prepare
from aenp.task import Task

TIMES = pd.date_range("2020-01-01", periods=40)
GRID = {"latitude": 40 + 0.5 * np.arange(8), "longitude": 0.5 * np.arange(8)}
COORDS = {"time": TIMES, **GRID}
RNG = np.random.default_rng(0)
PHASE = 2 * np.pi * np.arange(40)[:, None, None] / 20
FIELD = xr.DataArray(
    280 + 5 * np.sin(PHASE + np.arange(8)[:, None] + 2 * np.arange(8)), COORDS, tuple(COORDS), "t2m", {"units": "K"}
)
"A wave that moves slowly, so that a place is best known from its own past and future."
TABLE = FIELD.to_dataframe().reset_index()
SMALL = {"attention": "spectral", "dim": 32, "heads": 2, "layers": 2}


@pytest.fixture(scope="module")
def model() -> FieldModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fitting.OPTIONS, "tnp", SMALL)
        return fit(FIELD, "tnp", steps=2, time="2 days")


@pytest.mark.parametrize("data", [FIELD, TABLE], ids=["field", "table"])
def test_tasks_hold_the_observations_of_a_window_with_their_times(data: xr.DataArray) -> None:
    prepared = prepare(data, time="2 days")
    time = prepared.frame.axes["time"]
    task = prepared.source.batch(8, 0, 0)
    assert time.window == 2 and task.dim_x == 3
    lengths = []
    for one in (task[index] for index in range(len(task))):
        there = one.xt[0] if one.target_mask is None else one.xt[one.target_mask]
        days = time.origin + time.unit * there[:, 2]
        lengths.append(float(days.max() - days.min()))
        place = [axis.origin + axis.unit * there[:, d] for d, axis in enumerate(list(prepared.frame.axes.values())[:2])]
        dates = np.datetime64("1970-01-01") + (24 * days.numpy()).round().astype("timedelta64[h]")
        at = [xr.DataArray(each, dims="p") for each in (dates, *place)]
        expected = FIELD.sel(time=at[0], latitude=at[1], longitude=at[2], method="nearest").values
        y = one.yt[0] if one.target_mask is None else one.yt[one.target_mask]
        variable = prepared.frame.variables[0]
        assert np.allclose(variable.mean + variable.std * y[:, 0].numpy(), expected, atol=1e-3)
    assert 1 < max(lengths) <= 2.001
    validation = prepared.validation[0]
    first = float(time.x(TIMES[36].to_datetime64()))
    assert float(validation.xc[..., 2].max()) <= float(time.x(TIMES[-1].to_datetime64())) + 1e-6
    unmasked = (
        validation.xt[validation.target_mask] if validation.target_mask is not None else validation.xt.flatten(0, 1)
    )
    assert float(unmasked[:, 2].min()) >= first - 1e-6


@pytest.mark.slow
def test_a_place_is_predicted_from_the_day_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wave that moves a little from day to day; of the day itself nothing is observed."""
    monkeypatch.setitem(fitting.OPTIONS, "tnp", SMALL)
    moved = np.cumsum(np.random.default_rng(0).normal(0, 0.3, (120, 1, 1)), axis=0)
    wave = np.broadcast_to(280 + 3 * np.sin(moved + np.arange(8) * np.pi / 4), (120, 8, 8))
    axes = {"time": pd.date_range("2020-01-01", periods=120), **GRID}
    field = xr.DataArray(wave, axes, tuple(axes), "t2m")
    trained = fit(field, "tnp", "exact", steps=180, time="2 days")
    context = field[[60, 62]].to_dataframe().reset_index()
    found = trained.predict(context, field[61:62])["mean"]
    assert float(np.sqrt(((found - field[61:62]) ** 2).mean())) < 0.5 * float(field[61].std())


def test_each_time_is_predicted_from_those_within_half_a_window(model: FieldModel) -> None:
    """Also times between and beside those observed; observations further away do not matter."""
    near = TABLE[TABLE["time"].isin(TIMES[[10, 11]])].sample(60, random_state=0)
    far = TABLE[TABLE["time"].isin(TIMES[[5, 20]])]
    between = TIMES[10] + pd.Timedelta("12h")
    target = FIELD.isel(time=[10, 11]).interp(time=[TIMES[10], between, TIMES[12]])
    found, more = (model.predict(context, target)["mean"] for context in (near, pd.concat([near, far])))
    assert np.allclose(found, more, atol=1e-3) and np.isfinite(found).all()
    changed = near.assign(t2m=near["t2m"] + 3 * (near["time"] == TIMES[11]))
    other = model.predict(changed, target)["mean"]
    assert (abs(other - found).max(("latitude", "longitude")) > 1e-3).all()
    alone = model.predict(near, target.isel(time=[1]))["mean"]
    assert np.allclose(alone, found[1:2], atol=1e-3)


def test_times_without_observations_near_them_are_not_predicted(model: FieldModel) -> None:
    near = TABLE[TABLE["time"] == TIMES[10]]
    found = model.predict(near, FIELD.isel(time=[10, 20]))["mean"]
    assert np.isfinite(found[0]).all() and np.isnan(found[1]).all()
    with pytest.raises(ValueError, match="has no observations near the times of"):
        model.predict(near, FIELD.isel(time=[20]))
    with pytest.raises(ValueError, match="has no time, which the model sees"):
        model.predict(near.drop(columns="time"), FIELD.isel(time=[10]))


def test_a_model_is_validated_calibrated_and_saved(model: FieldModel, tmp_path: Path) -> None:
    result = model.validate(FIELD, days=("2020-02-06", "2020-02-08"))
    assert np.isfinite(result.table.loc["model", "crps"]) and len(result.predictions["time"].unique()) == 3
    calibrated = model.calibrate(FIELD, days=("2020-02-06", "2020-02-08"))
    calibrated.save(tmp_path / "model.safetensors")
    loaded = FieldModel.load(tmp_path / "model.safetensors")
    few = TABLE[TABLE["time"].isin(TIMES[:3])].sample(60, random_state=0)
    both = [each.predict(few, FIELD[:2], samples=1) for each in (calibrated, loaded)]
    assert np.allclose(both[0]["mean"], both[1]["mean"]) and np.isfinite(both[1]["samples"]).all()
    assert both[1]["in_domain"].all()
    assert len(loaded.suggest(few, "41.2,43.2,1.2,3.2,1", 1)) == 1


def test_local_effects_repeat_every_year_and_day() -> None:
    """Cycles that the data do not cover have no part in them, so that a model of one season holds in the next."""
    year = pd.date_range("2020-01-01", periods=2 * 366, freq="12h")
    axes = {"time": year, "latitude": GRID["latitude"][:4], "longitude": GRID["longitude"][:4]}
    long = xr.DataArray(RNG.standard_normal((len(year), 4, 4)), axes, tuple(axes), "t2m")
    hourly = FIELD.assign_coords(time=pd.date_range("2020-01-01", periods=40, freq="6h"))
    for data, cycles in ((long, [365.25]), (hourly, [1.0]), (FIELD, [])):
        trained = fit(data, "tnp", steps=1, time="1 days")
        fixed_inputs, axis = trained.process.fixed_inputs, trained.frame.axes["time"]
        assert fixed_inputs is not None and fixed_inputs.periods[:2] == [None, None]
        assert np.allclose(np.array(fixed_inputs.periods[2]) * axis.unit, cycles)


def test_stations_may_report_at_any_time() -> None:
    table = TABLE.sample(1200, random_state=0).reset_index(drop=True)
    table["time"] += pd.to_timedelta(RNG.integers(0, 1440, len(table)), "min")
    with pytest.raises(ValueError, match="give `time`, the length of a window such as '6 hours', or round"):
        fit(table, "tnp", steps=1)
    trained = fit(table, "tnp", steps=1, time="36 hours")
    found = trained.predict(table[:300], FIELD[5:7])
    assert np.isfinite(found["mean"]).all()


def test_stations_are_held_out_with_their_times() -> None:
    rng = np.random.default_rng(0)
    places = pd.DataFrame({"latitude": rng.uniform(40, 50, 80), "longitude": rng.uniform(0, 10, 80)})
    table = places.merge(pd.DataFrame({"time": TIMES}), "cross").assign(t=rng.standard_normal(80 * len(TIMES)))
    prepared = prepare(table, time="2 days")
    assert prepared.new_places
    training, validation = ([each.xt[..., :2] for each in tasks] for tasks in (_drawn(prepared), prepared.validation))
    hidden = {tuple(place) for x in validation for place in x.flatten(0, 1).tolist()} - {(0.0, 0.0)}
    assert hidden and not hidden & {tuple(place) for x in training for place in x.flatten(0, 1).tolist()}


def test_stations_that_report_at_any_time_are_held_out_too() -> None:
    """Each time has one observation, and each window enough; windows that do not have enough are too short."""
    rng = np.random.default_rng(0)
    places = pd.DataFrame({"latitude": rng.uniform(40, 50, 80), "longitude": rng.uniform(0, 10, 80)})
    table = places.merge(pd.DataFrame({"time": TIMES}), "cross").assign(t=rng.standard_normal(80 * len(TIMES)))
    table["time"] += pd.to_timedelta(rng.permutation(len(table)), "s")
    assert prepare(table, time="2 days").new_places
    with pytest.raises(ValueError, match="holds 8 observations; give a longer `time`"):
        prepare(table, time="4 seconds")


def _drawn(prepared: Data) -> list[Task]:
    return [prepared.source.batch(16, index, 0) for index in range(10)]


def test_windows_need_dates_attention_and_a_long_enough_period() -> None:
    for data, options, message in (
        (FIELD, {"time": "50 days"}, "the data cover 39 days, less than a window of 50; give data of more dates"),
        (FIELD[0], {"time": "2 days"}, "the data cover 0 days"),
        (FIELD[0].drop_vars("time"), {"time": "2 days"}, "the data have no dates"),
        (FIELD, {"time": "two days"}, "time must be the length of a window, such as '2 days'"),
        (FIELD, {"time": "-1 days"}, "time must be the length of a window"),
        (FIELD, {"time": "48"}, "time must be the length of a window"),
        (FIELD, {"time": "23 hours"}, "the times are 1 days apart or more, .* give a longer `time`"),
        (FIELD, {"time": "2 days", "family": "convcnp"}, "a window of time needs family='pttnp' or 'tnp'"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(data, steps=1, **options)  # type: ignore[arg-type]
    assert days_in("6 hours") == 0.25
    with pytest.raises(ValueError, match="give a positive duration or several steps"):
        Windows(np.zeros((4, 9)), np.zeros((9, 2)), 2.0, np.arange(4.0), 2, duration=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("symmetry", ["none", "exact", "approx"])
def test_a_window_of_time_with_anomalies_and_covariates(symmetry: str) -> None:
    topo = xr.DataArray(RNG.normal(500, 300, (8, 8)), GRID, tuple(GRID), "topo", {"units": "m"})
    trained = fit(FIELD, symmetry=symmetry, steps=1, time="2 days", covariates=[topo], anomalies=True)  # type: ignore[arg-type]
    assert trained.process.label.startswith("PTTNP")
    found = trained.predict(TABLE[TABLE["time"].isin(TIMES[:3])], FIELD[:2], covariates=[topo])
    assert np.isfinite(found["mean"]).all()


@pytest.mark.slow
def test_a_window_of_time_on_the_command_line(call: Callable[..., str], tmp_path: Path) -> None:
    FIELD.to_netcdf(tmp_path / "t2m.nc")
    call("fit", tmp_path / "t2m.nc", "--steps", 1, "--out", tmp_path / "run", "--time", "2 days")
    TABLE[:200].to_csv(tmp_path / "few.csv", index=False)
    files = ("--context", tmp_path / "few.csv", "--target", tmp_path / "t2m.nc", "--out", tmp_path / "p.nc")
    call("predict", "--weights", tmp_path / "run", *files)
    assert np.isfinite(xr.open_dataset(tmp_path / "p.nc")["mean"][:4]).all()
