"""FieldModel: what goes in as a table or a field comes out in the same units, on the target's own coordinates."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import aenp
from aenp import fields
from aenp.data.sources import open_dataset
from aenp.fields import FieldModel, Frame

FRAME = Frame(box=(40.0, 50.0, -10.0, 10.0), degrees=4.0, mean=280.0, std=5.0, name="t2m", units="K")
LATITUDES, LONGITUDES = np.arange(41.0, 46.0), np.arange(-4.0, 3.0)
GRID = {"latitude": LATITUDES, "longitude": LONGITUDES}
DAYS = pd.to_datetime(["2020-01-01", "2020-01-02"])


@pytest.fixture(scope="module")
def model() -> FieldModel:
    torch.manual_seed(0)
    fixed_inputs = aenp.FixedInputs(2, domain=FRAME.domain)
    process = aenp.ConvCNP(2, 1, points_per_unit=4, channels=8, layers=3, fixed_inputs=fixed_inputs)
    return FieldModel(process, FRAME).eval()


def stations(count: int = 12, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    places = {"lat": rng.uniform(40, 47, count), "lon": rng.uniform(-6, 4, count)}
    return pd.DataFrame(places | {"t2m": rng.normal(280, 5, count)})


def test_predictions_are_the_neural_processs_in_the_users_units(model: FieldModel) -> None:
    table = stations()
    result = model.predict(table, GRID)
    x = FRAME.x(*np.meshgrid(LATITUDES, LONGITUDES, indexing="ij")).reshape(1, -1, 2)
    xc = torch.from_numpy(FRAME.x(table["lat"], table["lon"]))[None]
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


def test_files_do_as_well_as_what_is_in_them(model: FieldModel, tmp_path: Path) -> None:
    stations().to_csv(tmp_path / "stations.csv", index=False)
    xr.Dataset(coords=GRID).to_netcdf(tmp_path / "grid.nc")
    result = model.predict(tmp_path / "stations.csv", tmp_path / "grid.nc")
    assert np.allclose(result["mean"], model.predict(stations(), GRID)["mean"])
    for name in ("out.nc", "out.zarr"):
        fields.write(result, tmp_path / name)
        again = open_dataset(tmp_path / name)
        assert again["mean"].equals(result["mean"]) and again["mean"].attrs == result["mean"].attrs
    fields.write(result, tmp_path / "out.csv")
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


def test_a_gridded_context_with_gaps_is_its_values(model: FieldModel) -> None:
    values = np.full((5, 7), np.nan)
    values[1, 2], values[4, 0] = 281.0, 285.0
    field = xr.DataArray(values, dims=("latitude", "longitude"), coords=GRID, name="t2m")
    table = pd.DataFrame({"lat": [42.0, 45.0], "lon": [-2.0, -4.0], "t2m": [281.0, 285.0]})
    assert np.allclose(model.predict(field, GRID)["mean"], model.predict(table, GRID)["mean"])


def test_out_of_the_training_box_there_is_no_local_effect(model: FieldModel) -> None:
    far = {"latitude": [-30.0, -29.0], "longitude": [100.0, 101.0]}
    table = stations().assign(lat=lambda t: t["lat"] - 72, lon=lambda t: t["lon"] + 102)
    result = model.predict(table, far)
    assert not result["in_domain"].any() and (result["local_effect"] == 0).all()
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
    monkeypatch.setattr(fields, "CHUNK", 4)
    assert np.allclose(model.predict(stations(), GRID)["std"], whole["std"], rtol=1e-4)


def test_a_saved_model_predicts_the_same(model: FieldModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    again = FieldModel.load(tmp_path / "model.safetensors")
    assert again.predict(stations(), GRID).identical(model.predict(stations(), GRID))
    with pytest.raises(ValueError, match="holds a FieldModel"):
        aenp.load(tmp_path / "model.safetensors")


def test_places_without_coordinates_come_out_as_nan(model: FieldModel) -> None:
    table = pd.DataFrame({"lat": [42.0, np.nan], "lon": [1.0, 1.0]})
    assert np.isnan(model.predict(stations(), table)["mean"]).values.tolist() == [False, True]


def test_in_a_new_process_the_error_tells_how_to_load_a_field_model(model: FieldModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model.safetensors")
    code = f"import aenp; aenp.load({str(tmp_path / 'model.safetensors')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "load it by aenp.FieldModel.load" in done.stderr


def test_a_model_without_symmetry_has_no_equivariant_part() -> None:
    process = aenp.PTTNP(2, 1, symmetry="none", dim=8, heads=2, layers=1, pseudo_tokens=4)
    assert set(FieldModel(process, FRAME).predict(stations(), GRID)) == {"mean", "std", "in_domain"}


@pytest.mark.parametrize(
    ("context", "target", "message"),
    [
        (stations().rename(columns={"t2m": "t2m [degC]"}), GRID, "'degC' and 'K' differ"),
        (stations(), {"latitude": [1.0]}, "needs a latitude and a longitude"),
        (stations(), "41,45,2,-4,1", "a grid is south,north,west,east,step"),
        (stations().drop(columns="lon"), GRID, "has no longitude"),
        (stations().assign(t2m=lambda t: t["t2m"] - 273.15), GRID, "values are about .* Check variable and units"),
        (stations().assign(t2m="warm"), GRID, "no column of numbers"),
        (stations(), "50,58,-10", "a grid is south,north,west,east,step"),
        (stations(), {"latitude": [], "longitude": []}, "no place to predict at"),
    ],
)
def test_what_cannot_be_is_an_error(model: FieldModel, context: object, target: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.predict(context, target)
