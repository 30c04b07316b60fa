"""Covariates: what is known of a place reaches the model from columns, coordinates, fields and files alike."""

import inspect
from collections.abc import Callable
from pathlib import Path

import dask.array
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from aenp.earth import fitting
from aenp.earth.covariates import as_list, open_layers
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit
from aenp.earth.sources import open_dataset
from aenp.earth.training_data import prepare

TIMES = pd.date_range("2020-01-01", periods=12)
LATITUDE, LONGITUDE = 40 + 0.5 * np.arange(12), 0.5 * np.arange(12)
GRID = {"latitude": LATITUDE, "longitude": LONGITUDE}
RNG = np.random.default_rng(0)
TOPO = xr.DataArray(RNG.normal(500, 300, (12, 12)), GRID, tuple(GRID), "topo", {"units": "m"})
WIND = xr.DataArray(RNG.normal(0, 5, (12, 12, 12)), {"time": TIMES, **GRID}, ("time", *GRID), "wind", {"units": "m/s"})


def temperature() -> xr.DataArray:
    """A wave that moves from day to day, colder by 10 K per kilometre of elevation."""
    wave = 3 * np.sin(LONGITUDE / 2 + RNG.uniform(0, 6, (12, 1, 1)))
    values = 280 + wave - 0.01 * TOPO.values
    coords = {"time": TIMES, **GRID}
    return xr.DataArray(values, coords, tuple(coords), "t2m", {"units": "K"})


FIELD = temperature()
TABLE = xr.Dataset({"t2m": FIELD, "topo": TOPO, "wind": WIND}).to_dataframe().reset_index()


@pytest.fixture(scope="module")
def model() -> FieldModel:
    """A model that sees a covariate that changes with time and one that does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fitting.OPTIONS, "tnp", {"attention": "spectral", "dim": 16, "heads": 2, "layers": 2})
        return fit(FIELD, "tnp", steps=3, covariates=[TOPO, WIND])


@pytest.mark.parametrize("shape", ["curved", "levels"])
def test_a_covariate_of_another_shape_is_named_by_its_file(shape: str, tmp_path: Path) -> None:
    latitude, longitude = xr.broadcast(TOPO.latitude, TOPO.longitude)
    places = {"lat": (("i", "j"), latitude.data), "lon": (("i", "j"), longitude.data + latitude.data / 10)}
    curved = xr.DataArray(TOPO.values, places, ("i", "j"), "topo")
    (curved if shape == "curved" else TOPO.expand_dims(level=[1, 2])).to_netcdf(tmp_path / "topo.nc")
    told = {"curved": "interpolate it to a grid of latitudes and longitudes", "levels": r"\.isel\(level=0\)"}
    with pytest.raises(ValueError, match=rf"topo\.nc: .*{told[shape]}"):
        prepare(FIELD, covariates=[tmp_path / "topo.nc"])


def test_tasks_hold_the_scaled_covariates_of_their_points() -> None:
    for data, covariates in (
        (FIELD, [TOPO, WIND]),
        (TABLE, ["topo", "wind"]),
        (TABLE.drop(columns="wind"), [TOPO, WIND]),
    ):
        variable = "t2m" if isinstance(data, pd.DataFrame) else None
        prepared = prepare(data, variable, covariates=covariates)
        topo = prepared.frame.covariates[0]
        assert [each.name for each in prepared.frame.covariates] == ["topo", "wind"]
        assert np.isclose(topo.mean, float(TOPO.mean()), rtol=1e-3) and np.isclose(
            topo.std, float(TOPO.std()), rtol=1e-2
        )
        task = prepared.source.batch(4, 0, 0)
        there = slice(None) if task.target_mask is None else task.target_mask[0]
        one = task.xt[0, there].numpy()
        axes = list(prepared.frame.axes.values())
        at = [xr.DataArray(axis.origin + axis.unit * one[:, d], dims="p") for d, axis in enumerate(axes)]
        heights = TOPO.sel(latitude=at[0], longitude=at[1], method="nearest").values
        assert np.allclose(topo.mean + topo.std * task.target_covariates[0, there, 0].numpy(), heights, atol=0.1)
        assert len(prepared.validation) == 4 and prepared.validation[0].dim_covariates == 2


@pytest.mark.slow
def test_what_a_covariate_explains_is_known_at_new_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elevations are drawn independently, so that no other value tells them."""
    monkeypatch.setitem(fitting.OPTIONS, "tnp", {"attention": "spectral", "dim": 32, "heads": 2, "layers": 2})
    few = TABLE[TABLE["time"] == TIMES[-1]].sample(70, random_state=0)
    found = fit(FIELD, "tnp", "exact", steps=60, covariates=[TOPO]).predict(few, FIELD[-1:], "t2m", covariates=[TOPO])
    error = float(np.sqrt(((found["mean"] - FIELD[-1:]) ** 2).mean()))
    assert error < 0.6 * 0.01 * float(TOPO.std())


def test_columns_coordinates_fields_and_files_give_the_same_prediction(model: FieldModel, tmp_path: Path) -> None:
    few = TABLE[TABLE["time"].isin(TIMES[:2])].sample(60, random_state=0)
    bare, target = few.drop(columns=["topo", "wind"]), xr.Dataset(coords=FIELD[:2].coords)
    xr.Dataset({"topo": TOPO, "wind": WIND}).to_netcdf(tmp_path / "known.nc")
    km = (TOPO / 1000).assign_attrs(units="km")
    expected = model.predict(bare, target, covariates=[TOPO, WIND])
    for context, where, covariates in (
        (few, target, [TOPO, WIND]),
        (bare, target.assign(topo=TOPO, wind=WIND), [tmp_path / "known.nc"]),
        (few.rename(columns={"topo": "topo [m]"}), target.assign_coords(topo=TOPO, wind=WIND), ()),
        (few, target.assign(topo=km, wind=WIND).isel(time=slice(2)), [km]),
    ):
        found = model.predict(context, where, "t2m", covariates=covariates)
        for name in ("mean", "std", "equivariant_mean"):
            assert np.allclose(found[name], expected[name], rtol=1e-4)
    other = model.predict(bare, target, covariates=[TOPO + 300, WIND])
    assert float(abs(other["mean"] - expected["mean"]).max()) > 1e-3


def test_units_of_the_targets_coordinates_are_not_those_of_covariates(model: FieldModel) -> None:
    few, target = TABLE[TABLE["time"] == TIMES[0]].sample(40, random_state=0), xr.Dataset(coords=FIELD[:1].coords)
    expected = model.predict(few, target, "t2m", covariates=[TOPO, WIND])
    for name, units in (("latitude", "degrees_north"), ("longitude", "degrees_east")):
        target[name] = target[name].assign_attrs(units=units)
    xr.testing.assert_allclose(model.predict(few, target, "t2m", covariates=[TOPO, WIND])["mean"], expected["mean"])


def test_samples_see_covariates(model: FieldModel) -> None:
    few = TABLE[TABLE["time"].isin(TIMES[:2])].sample(40, random_state=0)
    target = xr.Dataset(coords=FIELD[:2].coords)
    one, other = (
        model.predict(few, target, "t2m", samples=2, covariates=[TOPO, wind])["samples"] for wind in (WIND, WIND + 5)
    )
    assert one.shape == (2, 2, 12, 12) and float(abs(one - other).max()) > 1e-3


def test_fields_that_change_are_interpolated_in_time_and_space() -> None:
    layer = open_layers([WIND])["wind"]
    half = np.array([TIMES[0] + pd.Timedelta("12h")], "datetime64[ns]")
    found = layer.at(np.array([40.25]), np.array([1.0]), half)
    assert np.isclose(found[0], float(WIND[:2, :2, 2].mean()))


def test_only_the_steps_around_the_points_times_are_read() -> None:
    """A field of many times need not fit into memory, and points with times of their own are no grid of both."""
    read = set()

    def step(values: np.ndarray, block_id: tuple[int, ...] = ()) -> np.ndarray:
        read.update(block_id[:1])
        return values + block_id[0]

    times = pd.date_range("2020-01-01", periods=50, freq="D", unit="ns")
    values = dask.array.zeros((50, 3, 3), chunks=(1, 3, 3)).map_blocks(step, dtype=float, meta=np.empty((0, 0, 0)))
    field = xr.DataArray(values, {"time": times, "latitude": [0.0, 1, 2], "longitude": [0.0, 1, 2]}, name="wind")
    layer = open_layers(field)["wind"]
    when = np.array(["2020-01-11T06", "2020-01-31T12"], "datetime64[ns]")
    assert np.allclose(layer.at(np.array([0.5, 1.5]), np.array([0.5, 1.5]), when), [10.25, 30.5])
    assert read == {10, 11, 30, 31}


def test_all_times_of_a_grid_are_interpolated_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, places = open_layers(WIND)["wind"], (np.array([40.2, 41.3]), np.array([0.4, 1.7]))
    whole = layer.on(*places, TIMES.to_numpy())
    monkeypatch.setattr("aenp.earth.covariates.POINTS", 6)
    assert whole.shape == (len(TIMES), 2) and np.array_equal(layer.on(*places, TIMES.to_numpy()), whole)


def test_variables_that_a_model_does_not_need_are_ignored(model: FieldModel) -> None:
    """Also those that could not be covariates, such as one with levels."""
    levels = WIND.expand_dims(level=2).rename("levels")
    every = xr.Dataset({"topo": TOPO, "wind": WIND, "value": TOPO, "levels": levels})
    few = TABLE[TABLE["time"] == TIMES[0]].drop(columns=["topo", "wind"])
    expected, found = (model.predict(few, FIELD[:1], covariates=each) for each in ([TOPO, WIND], [every]))
    xr.testing.assert_allclose(found, expected)
    with pytest.raises(ValueError, match=r"levels has further dimensions \{'level': 2\}; select one index"):
        fit(FIELD, "tnp", steps=1, covariates=[every.drop_vars("value")])


def test_validation_finds_covariates_that_are_variables_of_the_data(model: FieldModel) -> None:
    days = ("2020-01-11", "2020-01-12")
    own = model.validate(xr.Dataset({"t2m": FIELD, "topo": TOPO, "wind": WIND}), days=days)
    assert np.allclose(own.table, model.validate(FIELD, days=days, covariates=[TOPO, WIND]).table)


def test_a_model_with_covariates_is_validated_saved_and_asked_for_stations(model: FieldModel, tmp_path: Path) -> None:
    result = model.validate(FIELD, days=("2020-01-11", "2020-01-12"), covariates=[TOPO, WIND])
    assert np.isfinite(result.table.loc["model", "crps"])
    model.save(tmp_path / "model.safetensors")
    loaded = FieldModel.load(tmp_path / "model.safetensors")
    assert [each.name for each in loaded.frame.covariates] == ["topo", "wind"]
    static = fit(FIELD, "tnp", steps=1, covariates=[TOPO])
    few = TABLE[TABLE["time"] == TIMES[0]].sample(30, random_state=0)
    assert (
        len(static.suggest(few, {"latitude": [41.0, 42.0], "longitude": [1.0]}, 1, variable="t2m", covariates=[TOPO]))
        == 1
    )


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        ((), "the covariate topo is not known at .*; add a column or coordinate topo, or give a field"),
        ([TOPO[:4], WIND], "the covariate topo of the given DataArray has no value at .* give a field that covers"),
        ([TOPO, WIND[5:]], "the covariate wind of .* has no value at .* at 2020-01-01T00:00"),
        ([TOPO.assign_attrs(units="K"), WIND], "units 'K' and 'm' differ and cannot be converted"),
        ([TOPO, TOPO], "covariates need names of their own"),
        ([TOPO.rename(None), WIND], "the covariate topo is not known at"),
    ],
)
def test_what_is_missing_is_named(model: FieldModel, covariates: list[xr.DataArray], message: str) -> None:
    few = TABLE[TABLE["time"] == TIMES[0]].drop(columns=["topo", "wind"])
    with pytest.raises(ValueError, match=message):
        model.predict(few, FIELD[:1], covariates=covariates)


def test_covariates_that_do_not_suit_the_data_raise() -> None:
    for covariates, message in (
        ([TOPO[:4]], "the covariate topo of the given DataArray has no value at 42, 0 at 2020-01-01"),
        ([0 * TOPO], "the covariate topo must differ between places or times"),
        (["orography"], "the covariate orography is neither a file nor a variable of the given DataArray; give one"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(FIELD, "tnp", steps=1, covariates=covariates)
    with pytest.raises(FileNotFoundError, match=r"orography\.nc does not exist"):
        fit(FIELD, "tnp", steps=1, covariates=["orography.nc"])
    with pytest.raises(ValueError, match=r"the covariate height is not known at .*; add a column"):
        fit(TABLE, "tnp", steps=1, variable="t2m", covariates=["height"])
    with pytest.raises(ValueError, match="wind changes with time, but the places have no times"):
        fit(FIELD[0].drop_vars("time"), "tnp", steps=1, covariates=[WIND])


@pytest.mark.slow
def test_covariates_on_the_command_line(call: Callable[..., str], tmp_path: Path) -> None:
    FIELD.to_netcdf(tmp_path / "t2m.nc")
    TOPO.to_netcdf(tmp_path / "topo.nc")
    known = ("--covariates", tmp_path / "topo.nc")
    told = call("fit", tmp_path / "t2m.nc", "--steps", 1, "--out", tmp_path / "run", *known)
    assert told.endswith(f"--out prediction.nc --covariates {tmp_path / 'topo.nc'}\n")
    TABLE.drop(columns=["topo", "wind"])[:100].to_csv(tmp_path / "few.csv", index=False)
    files = ("--context", tmp_path / "few.csv", "--target", tmp_path / "t2m.nc", "--out", tmp_path / "p.nc")
    call("predict", "--weights", tmp_path / "run", *files, *known)
    assert xr.open_dataset(tmp_path / "p.nc")["mean"].shape[1:] == (12, 12)


def test_a_covariate_may_not_be_the_variable_itself() -> None:
    with pytest.raises(ValueError, match="name of a variable or of a coordinate; got t2m"):
        fit(FIELD, "tnp", steps=1, covariates=[WIND.rename("t2m")])


def test_what_is_to_be_predicted_is_no_covariate(tmp_path: Path) -> None:
    """Where a file holds nothing else, that is the fault."""
    TABLE.drop(columns=["topo", "wind"]).to_csv(tmp_path / "table.csv", index=False)
    FIELD.stack(place=tuple(GRID)).reset_index("place").to_netcdf(tmp_path / "places.nc")
    both = xr.Dataset({"t2m": FIELD, "wind": WIND})
    for data, names in ((tmp_path / "table.csv", ["t2m"]), (tmp_path / "places.nc", ["t2m"]), (both, ["t2m", "wind"])):
        with pytest.raises(ValueError, match=f"has no values besides the covariates {', '.join(names)}; add .* or, if"):
            prepare(data, covariates=names)
    for data in (FIELD, TABLE, tmp_path / "places.nc"):
        with pytest.raises(ValueError, match="t2m is to be predicted, so it cannot be a covariate; leave it out"):
            prepare(data, "t2m", covariates=["t2m"])
    with pytest.raises(ValueError, match=r"nor have the name of a variable .*; got t2m\. Rename it, or leave it out"):
        prepare(FIELD, covariates=["t2m"])


def test_a_column_called_value_is_no_covariate() -> None:
    """It would be the target itself, which is called so within."""
    with pytest.raises(ValueError, match=r"must not be called value, .* got value"):
        fit(TABLE.assign(value=0.0), "tnp", steps=1, variable="t2m", covariates=["value"])


def test_a_single_covariate_needs_no_list(tmp_path: Path) -> None:
    layer = xr.DataArray(np.ones((2, 2)), {"latitude": [0.0, 1.0], "longitude": [0.0, 1.0]}, name="topo")
    layer.to_netcdf(tmp_path / "topo.nc")
    for single in (layer, layer.to_dataset(), tmp_path / "topo.nc", str(tmp_path / "topo.nc")):
        assert list(open_layers(single)) == list(open_layers([single])) == ["topo"]


def test_coordinates_of_half_precision_lie_on_the_same_grid() -> None:
    nodes = 40 + 0.1 * np.arange(11)
    layer = xr.DataArray(np.ones((11, 11)), {"latitude": nodes.astype(np.float32), "longitude": nodes}, name="topo")
    assert np.isfinite(open_layers(layer)["topo"].at(nodes[[0, -1]], nodes[[0, -1]], None)).all()


def heights(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns="wind").rename(columns={"topo": "elevation"})


def test_a_topography_of_any_name_is_the_covariate_elevation() -> None:
    """`elevation` serves a model whose covariate has that name, with zero at sea, where there is no column of it."""
    model = fit(heights(TABLE), "tnp", steps=1, covariates=["elevation"])
    context, grid = heights(TABLE)[lambda table: table["time"] == TIMES[-1]], "41,45,1,5,1"
    sea = TOPO.where(TOPO.longitude > 2, -100.0)
    expected = model.predict(context, grid, covariates=[sea.clip(min=0).rename("elevation")])
    xr.testing.assert_identical(model.predict(context, grid, elevation=sea), expected)
    missing = context.assign(elevation=np.nan)
    expected = model.predict(missing, missing, covariates=[sea.clip(min=0).rename("elevation")])
    xr.testing.assert_identical(model.predict(missing, missing, elevation=sea), expected)
    of_field = fit(FIELD, "pttnp", steps=1, covariates=[sea.rename("elevation")])
    same = [
        of_field.predict(context, grid, **each)
        for each in ({"covariates": [sea.rename("elevation")]}, {"elevation": sea})
    ]
    xr.testing.assert_identical(*same)
    assert model.suggest(context, grid, 1, elevation=TOPO).notna().all(axis=None)
    scores = model.validate(heights(TABLE).drop(columns="elevation"), tasks=1, elevation=TOPO).table
    assert scores.loc["model", ["rmse", "crps", "loglik"]].notna().all()


def test_a_field_fills_the_gaps_of_a_column_of_the_same_name() -> None:
    """One covariate, of the column where it is known and else of the field; a name given twice counts once."""
    gaps = TABLE.assign(topo=TABLE["topo"].where(TABLE["latitude"] > 42))
    for data, covariates in ((gaps, ["topo", TOPO]), (TABLE, ["topo", "topo"])):
        found = prepare(data, "t2m", covariates=covariates).frame.covariates
        assert [each.name for each in found] == ["topo"] and np.isclose(found[0].mean, TOPO.mean())


def test_what_is_no_covariate_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="time is a coordinate, which models see by themselves; leave it out"):
        prepare(TABLE, "t2m", covariates=["time"])
    with pytest.raises(ValueError, match="lat is a coordinate"):
        prepare(TABLE.rename(columns={"latitude": "lat"}), "t2m", covariates=["lat"])
    TABLE.to_csv(tmp_path / "heights.csv")
    with pytest.raises(ValueError, match=r"heights\.csv is a table, where a field on a grid is needed; give that"):
        prepare(TABLE, "t2m", covariates=[tmp_path / "heights.csv"])


def test_what_types_forbid_raises_without_a_type_checker_too() -> None:
    with pytest.raises(ValueError, match=r"got a mapping\. Name fields with \.rename"):
        inspect.unwrap(as_list)({"topo": TOPO})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the given DataFrame is a table, where a field on a grid is needed"):
        inspect.unwrap(open_dataset)(inspect.unwrap(as_list)(TABLE)[0])  # type: ignore[arg-type]
