"""Several variables in one model: each tells about the others, in its own units, and any may be missing anywhere."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

import aenp
from aenp.earth import fitting
from aenp.earth.breaking import symmetry_test
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit, with_all_targets
from aenp.earth.frame import Frame, Variable
from aenp.earth.holdout import Choice, hold_out
from aenp.earth.training_data import prepare
from aenp.task import Task
from exact_gp import ExactGP
from frames import frame

RNG = np.random.default_rng(0)
TIMES = pd.date_range("2020-01-01", periods=20)
LATITUDE, LONGITUDE = 40 + 0.5 * np.arange(12), 0.5 * np.arange(12)
COORDINATES = {"time": TIMES, "latitude": LATITUDE, "longitude": LONGITUDE}
GRID = {"latitude": LATITUDE[::3], "longitude": LONGITUDE[::4]}
SMALL = {
    "tnp": {"attention": "spectral", "dim": 16, "heads": 2, "layers": 2},
    "pttnp": {"attention": "spectral", "pseudo_tokens": 8, "pseudo_spread": 0.7, "dim": 16, "heads": 2, "layers": 1},
}


def fields() -> xr.Dataset:
    """Noise in kelvin, and in metres per second nearly the same noise, with gaps in both."""
    noise = RNG.standard_normal((20, 12, 12))
    t2m = 280 + 5 * noise
    u10 = 2 - 3 * noise + 0.1 * RNG.standard_normal(noise.shape)
    for values in (t2m, u10):
        values[RNG.random(values.shape) < 0.1] = np.nan
    dims = tuple(COORDINATES)
    return xr.Dataset({"t2m": (dims, t2m, {"units": "K"}), "u10": (dims, u10, {"units": "m/s"})}, COORDINATES)


FIELDS = fields()
TABLE = FIELDS.isel(time=0).to_dataframe().reset_index().drop(columns="time")
FEW = TABLE.sample(40, random_state=0)


@pytest.fixture(scope="module")
def small() -> pytest.MonkeyPatch:  # type: ignore[misc]
    with pytest.MonkeyPatch.context() as patch:
        for family, options in SMALL.items():
            patch.setitem(fitting.OPTIONS, family, options)
        yield patch


@pytest.fixture(scope="module")
def model(small: None) -> FieldModel:
    """A model that is hardly trained, but moves with its context."""
    return fit(FIELDS, "tnp", "exact", steps=2)


class Opposites(ExactGP):
    """Two variables of one Gaussian process each, with a correlation of −0.99 at the same place."""

    def __init__(self) -> None:
        super().__init__(scale=0.01)
        self.dim_covariates = 2

    def decode(
        self,
        state: Task,
        xt: Float[Tensor, "batch target 2"],
        covariates: Float[Tensor, "batch target 2"] | None = None,
    ) -> Float[Tensor, "batch target 2"]:
        assert covariates is not None and state.context_covariates is not None
        between = torch.tensor([[1.0, -0.99], [-0.99, 1.0]])
        kinds = state.context_covariates @ between
        gram = self.kernel(state.xc, state.xc) * (kinds @ state.context_covariates.mT)
        cross = self.kernel(state.xc, xt) * (kinds @ covariates.mT)
        weights = torch.linalg.solve(gram + self.noise**2 * torch.eye(gram.shape[-1]), cross)
        variance = 1 + self.noise**2 - (weights * cross).sum(1)
        return torch.stack([(weights * state.yc).sum(1), variance.sqrt().expm1().log()], dim=-1).float()


def test_a_variable_is_predicted_better_where_another_is_observed() -> None:
    """The values of either say nothing of their neighbours, and nearly all of the other variable."""
    both = Frame(list(frame(40, 50, -10, 10).axes.values()), [Variable("t2m", 280.0, 5.0), Variable("u10", 2.0, 3.0)])
    model, test = FieldModel(Opposites(), both), TABLE.dropna()
    known, others = test.iloc[::2], test.iloc[1::2]
    places = others[["latitude", "longitude"]]
    alone = model.predict(known, places)
    helped = model.predict(pd.concat([known, others.drop(columns="t2m")]), places)
    errors = [float(np.sqrt(np.mean((each["t2m_mean"].values - others["t2m"]) ** 2))) for each in (alone, helped)]
    assert errors[1] < 0.3 * errors[0] and float(helped["t2m_std"].max()) < 0.5 * float(alone["t2m_std"].min())


def opposite_waves(days: int) -> xr.Dataset:
    """Waves in any direction in kelvin, and in metres per second their opposite, with a little noise."""
    rng, dims = np.random.default_rng(0), tuple(COORDINATES)
    x = np.stack(np.meshgrid(LATITUDE - 40, LONGITUDE, indexing="ij"))
    angle, phase = rng.uniform(0, 2 * np.pi, (2, days, 3, 1, 1))
    waves = np.sqrt(2 / 3) * np.sin(2.5 * (np.cos(angle) * x[0] + np.sin(angle) * x[1]) + phase).sum(axis=1)
    wind = 2 - 3 * waves + 0.3 * rng.standard_normal(waves.shape)
    coordinates = COORDINATES | {"time": pd.date_range("2020-01-01", periods=days)}
    return xr.Dataset(
        {"t2m": (dims, 280 + 5 * waves, {"units": "K"}), "u10": (dims, wind, {"units": "m/s"})}, coordinates
    )


@pytest.mark.slow
def test_a_trained_model_has_learned_to_predict_one_variable_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """With temperature at six places, and wind there and at eighty others, its error is 3.2 K in place of 4.5 K."""
    monkeypatch.setitem(fitting.OPTIONS, "tnp", {"attention": "spectral", "dim": 32, "heads": 4, "layers": 2})
    data = opposite_waves(80)
    past, later = data.isel(time=slice(60)), data.isel(time=slice(60, None))
    both, alone = (fit(each, "tnp", "exact", steps=300) for each in (past, past[["t2m"]]))
    squares: dict[str, list[float]] = {"alone": [], "both": [], "both, without wind": []}
    for day in range(later.sizes["time"]):
        table = later.isel(time=day, drop=True).to_dataframe().reset_index().sample(frac=1, random_state=day)
        few, windy, hidden = table[:6], table[6:86].assign(t2m=np.nan), table[6:]
        places, calm = hidden[["latitude", "longitude"]], few.drop(columns="u10")
        found = {
            "alone": alone.predict(calm, places)["mean"],
            "both": both.predict(pd.concat([few, windy]), places)["t2m_mean"],
            "both, without wind": both.predict(calm, places)["t2m_mean"],
        }
        for name, mean in found.items():
            squares[name].append(float(np.mean((mean.values - hidden["t2m"]) ** 2)))
    error = {name: np.sqrt(np.mean(each)) for name, each in squares.items()}
    assert error["both"] < 0.85 * min(error["alone"], error["both, without wind"]), error


def test_each_variable_has_predictions_in_its_own_units(model: FieldModel) -> None:
    result = model.predict(FEW, GRID, quantiles=(0.1, 0.5), samples=2)
    for name, units in (("t2m", "K"), ("u10", "m/s")):
        for key in ("mean", "std", "quantiles", "samples"):
            assert (
                result[f"{name}_{key}"].attrs["units"] == units and name in result[f"{name}_{key}"].attrs["long_name"]
            )
        assert np.allclose(result[f"{name}_quantiles"].sel(quantile=0.5), result[f"{name}_mean"], rtol=1e-4)
        assert result[f"{name}_samples"].shape == (2, 4, 3)
    assert abs(float(result["t2m_mean"].mean()) - 280) < 10 and abs(float(result["u10_mean"].mean()) - 2) < 6
    celsius = FEW.assign(t2m=FEW["t2m"] - 273.15).rename(columns={"t2m": "t2m [degC]"})
    xr.testing.assert_allclose(model.predict(celsius, GRID)["t2m_mean"], result["t2m_mean"], rtol=1e-4)


def test_units_of_a_table_are_told_by_column(model: FieldModel) -> None:
    """One unit for several variables is refused, in training and as context; for the only one present it holds."""
    dated, other = FIELDS.to_dataframe().reset_index(), FEW.assign(t2m=FEW["t2m"] - 273.15, u10=3.6 * FEW["u10"])
    dated.attrs["units"], other.attrs["units"] = {"t2m": "K", "u10": "m/s"}, {"t2m": "degC", "u10": "km/h"}
    assert [each.units for each in prepare(dated, ["t2m", "u10"]).frame.variables] == ["K", "m/s"]
    xr.testing.assert_allclose(model.predict(other, GRID), model.predict(FEW, GRID), rtol=1e-4)
    for table in (dated, other):
        table.attrs["units"] = "degC"
    message = (
        r"the units 'degC' for t2m and u10; give those of each, as in table.attrs\['units'\] = {'t2m': 'degC', 'u10'"
    )
    with pytest.raises(ValueError, match=message):
        prepare(dated, ["t2m", "u10"])
    with pytest.raises(ValueError, match=message):
        model.predict(other, GRID)
    alone = model.observed(other.drop(columns="u10"))
    assert np.allclose(alone["t2m"], FEW["t2m"].dropna()) and alone["u10"].isna().all()


def test_predictions_are_those_of_the_process_with_a_point_for_each_value(model: FieldModel) -> None:
    parts = [(number, FEW.dropna(subset=name)) for number, name in enumerate(("t2m", "u10"))]
    xc = np.concatenate([model.frame.x({name: each[name] for name in GRID}) for _, each in parts])
    y = [each[v.name].to_numpy() for v, (_, each) in zip(model.frame.variables, parts, strict=True)]
    yc = np.concatenate([v.y(each) for v, each in zip(model.frame.variables, y, strict=True)])
    kinds = np.eye(2)[np.concatenate([np.full(len(each), number) for number, each in parts])]
    xt = model.frame.x(dict(zip(GRID, np.meshgrid(*GRID.values(), indexing="ij"), strict=True))).reshape(1, -1, 2)
    level = [v.y(each).mean() if model.centred else 0.0 for v, each in zip(model.frame.variables, y, strict=True)]
    result = model.predict(FEW, GRID)
    for number, variable in enumerate(model.frame.variables):
        task = aenp.Task(
            torch.from_numpy(xc)[None],
            torch.from_numpy(yc - kinds @ level).float()[None, :, None],
            torch.from_numpy(xt),
            context_covariates=torch.from_numpy(kinds).float()[None],
            target_covariates=torch.eye(2)[number].expand(1, 12, 2),
        )
        mean = aenp.predict(model.process, task).mean[0, :, 0].numpy() + level[number]
        found = result[f"{variable.name}_mean"].values.ravel()
        assert np.allclose(found, variable.mean + variable.std * mean, rtol=1e-5, atol=1e-3)


def test_values_may_be_missing_at_any_place(model: FieldModel) -> None:
    """Gaps in a table, in a field, and rows of one variable each, are the same."""
    expected = model.predict(FEW, GRID)
    apart = pd.concat([FEW.drop(columns=name) for name in ("t2m", "u10")])
    field = FEW.set_index(["latitude", "longitude"]).to_xarray()
    for same in (apart, field):
        xr.testing.assert_allclose(model.predict(same, GRID).drop_attrs(), expected.drop_attrs(), rtol=1e-4)
    assert "comment" not in expected.attrs


@pytest.mark.parametrize("other", [FEW.drop(columns="t2m"), FEW.assign(t2m=np.nan)])
def test_a_variable_may_be_missing_altogether(model: FieldModel, other: pd.DataFrame) -> None:
    result = model.predict(other, GRID)
    assert np.isfinite(result["t2m_mean"]).all() and result.attrs["comment"] == "nothing was observed of t2m"
    with pytest.raises(ValueError, match="DataFrame has no values of t2m, u10; give some of one at least"):
        model.predict(other.drop(columns="u10").assign(z=1.0), GRID)


def test_a_missing_variable_is_not_taken_from_another_one_of_a_similar_name() -> None:
    both = Frame(
        list(frame(40, 50, -10, 10).axes.values()), [Variable("tmean", 280.0, 5.0), Variable("temp", 285, 5.0)]
    )
    observed = FieldModel(Opposites(), both).observed(FEW[["latitude", "longitude"]].assign(temp=285.0))
    assert observed["tmean"].isna().all() and (observed["temp"] == 285).all()


def test_predictions_of_all_variables_move_with_the_context(model: FieldModel) -> None:
    moved = FEW.assign(latitude=FEW["latitude"] + 3.25, longitude=FEW["longitude"] - 7.5)
    there = {"latitude": GRID["latitude"] + 3.25, "longitude": GRID["longitude"] - 7.5}
    one, other = model.predict(FEW, GRID), model.predict(moved, there)
    for name in ("t2m_mean", "u10_mean", "t2m_std", "u10_std"):
        assert np.allclose(one[name], other[name], rtol=1e-4, atol=1e-3)
    assert float(one["t2m_mean"].std()) > 1e-3


def test_the_level_of_each_variable_is_its_own() -> None:
    """Where values count from the mean of those observed, a warmer context makes a warmer prediction, no other wind."""
    torch.manual_seed(0)
    both = Frame(list(frame(40, 50, -10, 10).axes.values()), [Variable("t2m", 280.0, 5.0), Variable("u10", 0.0, 3.0)])
    process = aenp.TNP(2, 1, attention="spectral", dim=8, heads=2, layers=1, dim_covariates=2)
    centred = FieldModel(process, both, centred=True)
    before, after = (centred.predict(FEW.assign(t2m=FEW["t2m"] + k), GRID, samples=2) for k in (0, 20))
    assert np.allclose(after["t2m_mean"], before["t2m_mean"] + 20, rtol=0, atol=1e-2)
    assert np.allclose(after["t2m_samples"], before["t2m_samples"] + 20, rtol=0, atol=1e-2)
    assert np.allclose(after["u10_mean"], before["u10_mean"], rtol=0, atol=1e-2)
    assert np.allclose(after["u10_samples"], before["u10_samples"], rtol=0, atol=1e-2)


def test_a_saved_model_predicts_the_same(model: FieldModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    again = FieldModel.load(tmp_path / "model.safetensors")
    assert again.centred == model.centred and again.columns == ["t2m", "u10"]
    assert again.predict(FEW, GRID, samples=2).identical(model.predict(FEW, GRID, samples=2))


@pytest.mark.parametrize("form", ["table", "times", "one date", "stations", "named"])
def test_every_form_of_data_is_learned(form: str, small: None) -> None:
    table = FIELDS.to_dataframe().reset_index()
    data, options = {
        "table": (table, {"variable": ["t2m", "u10"]}),
        "times": (FIELDS, {"time": "2 days"}),
        "one date": (FIELDS.isel(time=0), {}),
        "stations": (table[table["time"] == TIMES[0]].drop(columns="time"), {"variable": ("t2m", "u10")}),
        "named": (FIELDS.assign(topo=FIELDS["t2m"]), {"variable": ["u10", "t2m"]}),
    }[form]
    fitted = fit(data, "pttnp", steps=1, **options)
    assert sorted(fitted.columns) == ["t2m", "u10"]
    context = FEW.assign(time=TIMES[0]) if form == "times" else FEW
    assert np.isfinite(fitted.predict(context, GRID)["u10_mean"]).all()


def test_tasks_hold_both_variables_in_units_of_their_own() -> None:
    for data in (FIELDS, FIELDS.to_dataframe().reset_index()):
        prepared = prepare(data, ["t2m", "u10"])
        task = prepared.source.batch(16, 0, seed=0)
        kind = task.target_covariates.argmax(-1)  # type: ignore[union-attr]
        there = torch.ones_like(kind, dtype=torch.bool) if task.target_mask is None else task.target_mask
        for number in range(2):
            y = task.yt[..., 0][there & (kind == number)]  # type: ignore[index]
            assert len(y) > 100 and abs(y.mean()) < 0.3 and 0.7 < y.std() < 1.4
        assert prepared.frame.kinds == 2 and {len(each) for each in prepared.validation} == {16}


def test_convolutions_learn_from_all_targets_of_values_counted_from_levels_too() -> None:
    days = xr.DataArray(np.arange(20.0), {"time": TIMES}, ["time"])
    wide = (FIELDS + 20 * days).pad(latitude=(0, 12), longitude=(0, 12), mode="edge")
    prepared = prepare(wide.assign_coords(latitude=40 + 0.5 * np.arange(24), longitude=0.5 * np.arange(24)))
    some, every = (each.batch(2, 0, seed=0) for each in (prepared.source, with_all_targets(prepared.source)))
    assert prepared.centred and some.xt.shape[1] < every.xt.shape[1]
    assert torch.equal(some.yc, every.yc)


def test_what_cannot_be_learned_together_raises(model: FieldModel) -> None:
    apart = FIELDS["u10"].isel(latitude=slice(6)).rename(latitude="lat")
    constant = FIELDS["u10"].mean("time")
    cases: list[tuple[Callable[[], object], str]] = [
        (
            lambda: fit(FIELDS, "tnp", steps=1, anomalies=True),
            "anomalies and a first guess are of one variable; got t2m",
        ),
        (lambda: fit(xr.merge([FIELDS["t2m"], apart]), "tnp", steps=1), "t2m and u10 are not on the same grid"),
        (lambda: prepare(FIELDS.assign(z=constant)), "t2m and z are not on the same grid at the same times"),
        (lambda: prepare(FIELDS.assign(z=constant)[["z", "t2m"]]), "z and t2m are not on the same grid at the same"),
        (lambda: model.predict(FEW, GRID, "t2m"), "the model has the variables t2m, u10; give as many names"),
        (lambda: model.predict(FEW, GRID, ["t2m", "v10"]), "no column 'v10'"),
        (lambda: model.validate(FIELDS[["t2m"]], variable="u10"), "Dataset has no values of u10 to predict"),
        (lambda: model.validate(TABLE.drop(columns="u10"), variable="u10"), "DataFrame has no values of u10"),
        (lambda: model.validate(FIELDS), "choose with `variable` which one to predict; got None"),
        (lambda: FieldModel(aenp.CNP(2, 2), model.frame), r"=\(2, 1, 2\); got \(2, 2, 0\)"),
        (lambda: symmetry_test(FIELDS, model), "the test needs models of one variable"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    on_grid = aenp.ConvCNP(2, 1, on_grid=True, dim_covariates=2)
    with pytest.raises(ValueError, match="on_grid=True takes one value at a node"):
        FieldModel(on_grid, model.frame)


def test_each_variable_is_validated_beside_kriging_of_its_own(model: FieldModel) -> None:
    days = ("2020-01-19", "2020-01-20")
    for name, units in (("t2m", "K"), ("u10", "m/s")):
        result = model.validate(FIELDS, days=days, variable=name, tasks=2)
        assert result.variable == name and result.units == units
        assert np.isfinite(result.table.loc[["model", "kriging"], "crps"]).all()
        mean = result.predictions.query("method == 'kriging'")["mean"].mean()
        assert abs(mean - {"t2m": 280, "u10": 2}[name]) < 5
    assert model.calibrate(FIELDS, days=days, tasks=1).spread > 0


def test_a_variable_is_validated_with_others_observed_elsewhere_and_more_often(model: FieldModel) -> None:
    table = FIELDS.to_dataframe().reset_index().dropna()
    north, rare = table["latitude"] > 43, table["time"].isin(TIMES[::5])
    table = table.assign(t2m=table["t2m"].where(north & rare), u10=table["u10"].where(~north))
    tasks = hold_out(model, table, Choice(days=("2020-01-10", "2020-01-20"), variable="t2m", tasks=2))
    assert len(tasks.splits) == 2 and tasks.history["value"].notna().all()
    for split in tasks.splits:
        assert split.target["value"].notna().all()
        assert min(split.context[name].notna().sum() for name in ("t2m", "u10")) > 30
    scores = model.validate(table, days=("2020-01-10", "2020-01-20"), variable="t2m", tasks=2).table
    assert np.isfinite(scores["crps"]).all()


@pytest.mark.slow
def test_several_variables_on_the_command_line(call: Callable[..., str], small: None, tmp_path: Path) -> None:
    FIELDS.to_netcdf(tmp_path / "era5.nc")
    FEW.to_csv(tmp_path / "few.csv", index=False)
    run = tmp_path / "run"
    call("fit", tmp_path / "era5.nc", "--variable", "t2m,u10", "--family", "tnp", "--steps", 1, "--out", run)
    files = ("--context", tmp_path / "few.csv", "--target", "40,45,0,5,1")
    call("predict", "--weights", run, *files, "--out", tmp_path / "p.csv", "--plot", tmp_path / "map.png")
    assert {"t2m_mean", "t2m_std", "u10_mean", "u10_std"} <= set(pd.read_csv(tmp_path / "p.csv"))
    words = ("--weights", run, "--tasks", 1, "--out", tmp_path / "table.csv", "--plot", tmp_path / "scores.png")
    printed = call("validate", tmp_path / "era5.nc", *words)
    assert "t2m [K]: " in printed and "u10 [m/s]: " in printed and (tmp_path / "scores-u10.png").exists()
    table = pd.read_csv(tmp_path / "table.csv", index_col=["variable", "method"])
    assert {("t2m", "model"), ("u10", "kriging")} <= set(table.index)
