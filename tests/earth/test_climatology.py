"""Anomalies: what is usual at a place comes from its climatology, and a model learns what differs from it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from aenp.configured import build
from aenp.earth import fitting
from aenp.earth.climatology import Climatology
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit
from aenp.earth.training_data import prepare

TIMES = pd.date_range("2020-01-01", periods=40, freq="6h")
LATITUDE, LONGITUDE = 40 + 0.5 * np.arange(8), 0.5 * np.arange(8)
RNG = np.random.default_rng(0)
USUAL = 280 + 10 * RNG.standard_normal((8, 8))
"The mean of each place, which no other place tells."
DAILY = 5 * np.cos(2 * np.pi * TIMES.hour.to_numpy() / 24)[:, None, None]
SPREAD = 1 + RNG.random((8, 8))


def field() -> xr.DataArray:
    values = USUAL + DAILY + SPREAD * RNG.standard_normal((40, 1, 1))
    coords = {"time": TIMES, "latitude": LATITUDE, "longitude": LONGITUDE}
    return xr.DataArray(values, coords, tuple(coords), "t2m", {"units": "K"})


FIELD = field()


@pytest.fixture(scope="module")
def model() -> FieldModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fitting.OPTIONS, "tnp", {"attention": "spectral", "dim": 16, "heads": 2, "layers": 1})
        return fit(FIELD, "tnp", steps=2, anomalies=True)


def test_tasks_are_standardised_anomalies() -> None:
    table = FIELD.to_dataframe().reset_index()
    for data in (FIELD, table):
        prepared = prepare(data, anomalies=True)
        values = prepared.source.values if isinstance(data, pd.DataFrame) else prepared.source.fields
        assert abs(np.nanmean(values)) < 0.05 and abs(np.nanstd(values) - 1) < 0.1
        assert np.nanstd(values.reshape(len(values), -1), axis=1).max() < 0.4  # at one time all places deviate alike


def test_the_climatology_is_added_to_predictions(model: FieldModel) -> None:
    some = FIELD[-2:].to_dataframe().sample(20, random_state=0).reset_index()
    found = model.predict(some, FIELD[-2:], quantiles=[0.5], samples=2)
    usual = USUAL + DAILY[-2:]
    assert np.corrcoef(found["mean"].values.ravel(), usual.ravel())[0, 1] > 0.97
    assert np.allclose(found["quantiles"][0], found["mean"], atol=1e-3)
    assert np.allclose(found["mean"] - found["equivariant_mean"], found["local_effect"], atol=1e-3)
    assert np.corrcoef(found["samples"][1].values.ravel(), usual.ravel())[0, 1] > 0.9
    relative = found["std"][0] / SPREAD
    assert float(relative.std() / relative.mean()) < 0.25


def test_predictions_are_those_of_the_process_in_units_of_the_climatology(model: FieldModel) -> None:
    """Where the climatology is the same everywhere, anomalies are the same as scaled values."""
    count, variable = 64, model.frame.variables[0]
    place = np.meshgrid(LATITUDE, LONGITUDE, indexing="ij")
    same = Climatology(place[0].ravel(), place[1].ravel(), [[variable.mean]] * count, [variable.std] * count, [])
    plain = build(model.frame.configuration() | {"reference": None})
    some = FIELD[-1:].to_dataframe().sample(20, random_state=0).reset_index()
    expected, found = (
        FieldModel(model.process, frame).predict(some, FIELD[-1:]) for frame in (plain, plain.relative_to(same))
    )
    for name in ("mean", "std", "local_effect"):
        assert np.allclose(found[name], expected[name], rtol=1e-4, atol=1e-3)


def test_the_climatology_is_saved_with_the_model(model: FieldModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    new_process = f"import aenp; aenp.load({str(tmp_path)!r})"  # which has not imported what fitting has
    subprocess.run([sys.executable, "-c", new_process], check=True)
    loaded = FieldModel.load(tmp_path / "model.safetensors")
    some = FIELD[-1:].to_dataframe().sample(20, random_state=0).reset_index()
    assert np.allclose(loaded.predict(some, FIELD[-1:])["mean"], model.predict(some, FIELD[-1:])["mean"])
    assert np.isfinite(loaded.validate(FIELD, days=("2020-01-10", "2020-01-10")).table.loc["model", "crps"])


def test_new_places_have_the_climatology_of_those_around() -> None:
    flat = Climatology([40.0, 40.0], [0.0, 2.0], [[280.0], [284.0]], [1.0, 3.0], [])
    mean, std = flat.at({"latitude": [40.0, 40.0], "longitude": [1.0, 2.0]})
    assert np.allclose(mean, [282, 284]) and np.allclose(std, [2, 3])


def test_what_anomalies_need_is_named(model: FieldModel) -> None:
    with pytest.raises(ValueError, match="several dates; got 1"):
        fit(FIELD[0], "tnp", steps=1, anomalies=True)
    with pytest.raises(ValueError, match="deviations of either sign"):
        fit(FIELD, "tnp", steps=1, anomalies=True, likelihood="precipitation")
    with pytest.raises(ValueError, match="has yearly or daily cycles, but places or observations have no time"):
        model.predict(FIELD[0].drop_vars("time"), FIELD[0].drop_vars("time"))
    with pytest.raises(ValueError, match="2 places and 1 cycles needs as many rows of 3 coefficients"):
        Climatology([0.0, 1.0], [0.0, 1.0], [[1.0], [2.0]], [1.0, 1.0], [1.0])


def test_places_never_observed_have_no_part_in_the_climatology() -> None:
    """The sea of a field on land: beside it, what is usual is that of the land around."""
    land = FIELD.where(FIELD["longitude"] < 2)
    climatology = prepare(land, anomalies=True).frame.reference
    assert climatology is not None and len(climatology.stds) == 32
    mean, _ = climatology.at({"latitude": [40.25], "longitude": [1.6], "time": TIMES[:1]})
    assert USUAL[:, :4].min() < mean[0] - DAILY[0, 0, 0] < USUAL[:, :4].max()
