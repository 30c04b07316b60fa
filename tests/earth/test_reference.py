"""A first guess, such as a reanalysis: a model learns the difference to it and gives back values in their units."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from aenp.earth import fitting
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit
from aenp.earth.frame import Axis, Frame, Variable
from aenp.earth.reference import Given
from aenp.earth.training_data import prepare

TIMES = pd.date_range("2020-01-01", periods=20)
GRID = {"latitude": 40 + 0.5 * np.arange(10), "longitude": 0.5 * np.arange(10)}
COORDS = {"time": TIMES, **GRID}
RNG = np.random.default_rng(0)
GUESS = xr.DataArray(280 + 10 * RNG.standard_normal((20, 10, 10)), COORDS, tuple(COORDS), "era5", {"units": "K"})
"Weather that no neighbour and no other day tells."
FIELD = (GUESS - 273.15 + 2 + 0.5 * RNG.standard_normal((20, 1, 1))).rename("tmean").assign_attrs(units="degC")
"Observed in other units: the guess has an error of 2 K, which differs a little from day to day."
TABLE = xr.Dataset({"tmean": FIELD, "era5": GUESS}).to_dataframe().reset_index()
TABLE = TABLE.rename(columns={"tmean": "tmean [degC]", "era5": "era5 [K]"})
SMALL = {"attention": "spectral", "dim": 16, "heads": 2, "layers": 1}


@pytest.fixture(scope="module")
def model() -> FieldModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fitting.OPTIONS, "tnp", SMALL)
        return fit(FIELD, "tnp", steps=2, covariates=[GUESS], given="era5")


def observed(day: int) -> pd.DataFrame:
    return FIELD[[day]].to_dataframe().reset_index().sample(30, random_state=0)


@pytest.mark.parametrize(("data", "covariates"), [(FIELD, [GUESS]), (TABLE, ["era5"])], ids=["field", "table"])
def test_tasks_are_differences_in_the_units_of_the_values(data: xr.DataArray, covariates: list[object]) -> None:
    prepared = prepare(data, "tmean", covariates=covariates, given="era5")  # type: ignore[arg-type]
    given = prepared.frame.reference
    assert isinstance(given, Given) and np.isclose(given.factor, 1)
    assert abs(given.offset + 273.15 - 2) < 0.4 and 0.3 < given.std < 0.7
    values = prepared.source.values if isinstance(data, pd.DataFrame) else prepared.source.fields  # type: ignore[attr-defined]
    assert np.nanstd(values.reshape(len(values), -1), axis=1).max() < 1e-3  # at one time all places differ alike
    assert [each.name for each in prepared.frame.covariates] == ["era5"]


def test_what_is_given_is_added_to_predictions(model: FieldModel) -> None:
    """Also to quantiles and samples; the standard deviation and the local effect are those of the difference."""
    found = model.predict(observed(-1), FIELD[-1:], quantiles=[0.5], samples=2, covariates=[GUESS])
    assert float(abs(found["mean"] - (GUESS[-1:] - 271.15)).max()) < 2
    assert np.allclose(found["quantiles"][0], found["mean"], atol=1e-3)
    assert float(abs(found["samples"][1] - (GUESS[-1:] - 271.15)).max()) < 4
    assert np.allclose(found["mean"] - found["equivariant_mean"], found["local_effect"], atol=1e-3)
    assert float(found["std"].max()) < 3


def test_predictions_follow_what_is_given_at_the_target(model: FieldModel) -> None:
    """It may be a coordinate of the target, in other units."""
    celsius = (GUESS[-1:] - 273.15).assign_attrs(units="degC")
    few = observed(-1)
    expected = model.predict(few, FIELD[-1:], covariates=[GUESS])
    found = model.predict(few, FIELD[-1:].to_dataset().assign_coords(era5=celsius), "tmean", covariates=[GUESS])
    assert np.allclose(found["mean"], expected["mean"], atol=1e-3)
    with pytest.raises(ValueError, match=r"the covariate era5 is not known at .*; add a column or coordinate era5"):
        model.predict(few, FIELD[-1:])


def test_models_are_validated_beside_what_is_given_and_kriging_of_the_difference(model: FieldModel) -> None:
    table = model.validate(FIELD, days=("2020-01-19", "2020-01-20"), covariates=[GUESS]).table
    errors = (FIELD - GUESS).values[:, 0, 0]
    assert np.isclose(table.loc["era5", "rmse"], np.sqrt(np.mean((errors[18:] - errors.mean()) ** 2)), rtol=0.01)
    assert table.loc["kriging of differences", "rmse"] < 0.1 * table.loc["era5", "rmse"]
    assert table.loc["kriging", "rmse"] > 5 > table.loc["model", "rmse"]


def test_calibrated_saved_and_asked_for_stations(model: FieldModel, tmp_path: Path) -> None:
    """Stations are suggested though the guess changes with time."""
    calibrated = model.calibrate(FIELD, days=("2020-01-17", "2020-01-18"), covariates=[GUESS])
    calibrated.save(tmp_path / "model.safetensors")
    loaded = FieldModel.load(tmp_path / "model.safetensors")
    few = pd.concat([observed(0), observed(1)])
    both = [each.predict(few, FIELD[:2], covariates=[GUESS]) for each in (calibrated, loaded)]
    assert np.allclose(both[0]["mean"], both[1]["mean"]) and np.allclose(both[0]["std"], both[1]["std"])
    found = loaded.suggest(few, "41.2,44.2,1.2,4.2,1", 2, covariates=[GUESS])
    assert len(found) == 2 and found["reduction"].notna().all()


def test_what_does_not_suit_is_named() -> None:
    for options, message in (
        ({"given": "era5"}, "given must be the name of one of the covariates, of which there are none; got era5"),
        ({"given": "topo", "covariates": [GUESS]}, "one of the covariates, era5; got topo. Add it to"),
        ({"given": "era5", "covariates": [GUESS], "anomalies": True}, "leave one of them out"),
        ({"given": "era5", "covariates": [GUESS], "likelihood": "precipitation"}, "given are of either sign"),
        ({"given": "era5", "covariates": [GUESS.assign_attrs(units="m")]}, "units 'm' and 'degC' differ"),
        (
            {"given": "era5", "covariates": [(FIELD + 1).rename("era5")]},
            "the given era5 and tmean differ by a constant",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            fit(FIELD, "tnp", steps=1, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="era5: factor and offset must be finite and std positive"):
        Given("era5", 1.0, 0.0, 0.0)
    frame = Frame([Axis("latitude", 1.0), Axis("longitude", 1.0)], [Variable("tmean", 0.0, 1.0)])
    with pytest.raises(ValueError, match="the given era5 must be one of the covariates"):
        frame.relative_to(Given("era5", 1.0, 0.0, 1.0))


@pytest.mark.slow
def test_a_first_guess_on_the_command_line(call: Callable[..., str], tmp_path: Path) -> None:
    FIELD.to_netcdf(tmp_path / "tmean.nc")
    GUESS.to_netcdf(tmp_path / "era5.nc")
    known = ("--covariates", tmp_path / "era5.nc")
    call("fit", tmp_path / "tmean.nc", "--steps", 1, "--out", tmp_path / "run", *known, "--given", "era5")
    observed(0).to_csv(tmp_path / "few.csv", index=False)
    files = ("--context", tmp_path / "few.csv", "--target", tmp_path / "tmean.nc", "--out", tmp_path / "p.nc")
    call("predict", "--weights", tmp_path / "run", *files, *known)
    found = xr.open_dataset(tmp_path / "p.nc")["mean"]
    assert float(abs(found - (GUESS[:1] - 271.15)).max()) < 5
    told = call("validate", tmp_path / "tmean.nc", "--weights", tmp_path / "run", "--tasks", 2, *known)
    assert "kriging of differences" in told
