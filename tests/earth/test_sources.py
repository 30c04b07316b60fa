"""Awkward input: every form of a field or table reads as the plain one does, or an error says what to do."""

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import cftime
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import aenp
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import fit
from aenp.earth.frame import Covariate, Frame
from aenp.earth.gridded import elevation_at, open_gridded
from aenp.earth.maps import map_prediction
from aenp.earth.points import open_points
from aenp.earth.sources import common_dates
from aenp.earth.training_data import prepare
from frames import frame

LATITUDES, LONGITUDES = np.arange(41.0, 46), np.arange(-4.0, 3)
FIELD = xr.DataArray(
    np.random.default_rng(0).normal(280, 5, (4, 5, 7)).astype(np.float32),
    coords={
        "time": pd.date_range("2001-01-16", periods=4, freq="31D", unit="ns"),
        "latitude": LATITUDES,
        "longitude": LONGITUDES,
    },
    name="t2m",
    attrs={"units": "K", "standard_name": "air_temperature"},
)
TABLE = FIELD.to_dataframe().reset_index()
TABLE.attrs["units"] = "K"


@pytest.fixture(scope="module")
def model() -> FieldModel:
    torch.manual_seed(0)
    return FieldModel(aenp.CNP(2, 1, dim=8, layers=1), frame(40.0, 50.0, -10.0, 10.0)).eval()


def in_calendar(field: xr.DataArray, calendar: str) -> xr.DataArray:
    """The field on the same dates of another calendar."""
    dates = pd.DatetimeIndex(field.time.values)
    times = [cftime.datetime(d.year, d.month, d.day, d.hour, calendar=calendar) for d in dates]
    return field.assign_coords(time=xr.CFTimeIndex(times))


def with_bounds(field: xr.DataArray) -> xr.Dataset:
    """As climate models write them: with bounds of times and cells, areas of cells and a map projection."""
    field = field.assign_attrs(cell_measures="area: areacella", grid_mapping="crs")
    field.time.encoding["units"] = "days since 2001-01-01"
    field.time.attrs["bounds"], field.latitude.attrs["bounds"] = "time_bnds", "lat_bnds"
    beside = {
        "time_bnds": (("time", "bnds"), np.stack([field.time, field.time], -1)),
        "lat_bnds": (("latitude", "bnds"), np.stack([LATITUDES - 0.5, LATITUDES + 0.5], -1)),
        "time_vectors": (("time", "parts"), np.zeros((4, 6), np.int32)),
        "areacella": (("latitude", "longitude"), np.ones((5, 7))),
        "crs": 0,
    }
    return xr.Dataset({"t2m": field, **beside})


def with_gap(field: xr.DataArray) -> xr.DataArray:
    return field.where((field.latitude != 43) | (field.longitude != 1))


def shuffled(field: xr.DataArray) -> xr.DataArray:
    """Out of order, with a row and a column twice."""
    return field.isel(latitude=[3, 1, 0, 2, 4, 1], longitude=[0, 6, 5, 1, 2, 3, 4, 6], time=[2, 0, 3, 1])


def in_radians(field: xr.DataArray) -> xr.DataArray:
    for name in ("latitude", "longitude"):
        attrs = {"units": "radian", "standard_name": name}
        field = field.assign_coords({name: (name, np.deg2rad(field[name].values), attrs)})
    return field


FORMS: dict[str, Callable[[xr.DataArray], xr.DataArray | xr.Dataset]] = {
    "no leap years": lambda f: in_calendar(f, "noleap"),
    "the Julian calendar": lambda f: in_calendar(f, "julian"),
    "bounds and a projection": with_bounds,
    "bounds in another calendar": lambda f: with_bounds(in_calendar(f, "noleap")),
    "latitude descending": lambda f: f[:, ::-1],
    "radians": in_radians,
    "longitude from 0": lambda f: f.assign_coords(longitude=f.longitude % 360),
    "a level and a member": lambda f: f.expand_dims(level=[1000], member=["r1i1p1f1"]),
    "out of order": shuffled,
    "chunks": lambda f: f.chunk(time=1, latitude=2),
    "several files": lambda f: xr.concat([f[:2].chunk(), f[2:].chunk()], "time"),
    "double precision": lambda f: f.astype(float),
}


def stored(field: xr.DataArray | xr.Dataset, store: str, directory: Path) -> xr.DataArray | xr.Dataset | Path:
    """The field in memory or in a file."""
    if store == "netcdf":
        field.to_netcdf(directory / "field.nc")
        return directory / "field.nc"
    if store == "zarr":
        field.to_zarr(directory / "field.zarr", consolidated=False)
        return directory / "field.zarr"
    return field


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("store", ["memory", "netcdf", "zarr"])
def test_every_form_reads_as_the_plain_field(form: str, store: str, tmp_path: Path, model: FieldModel) -> None:
    """As data to learn from, as context and as target."""
    source = stored(FORMS[form](FIELD.copy(deep=True)), store, tmp_path)
    xr.testing.assert_allclose(open_gridded(source).drop_attrs(), FIELD.drop_attrs())
    keys = ["time", "latitude", "longitude"]
    points, expected = (open_points(each).sort_values(keys, ignore_index=True) for each in (source, FIELD))
    pd.testing.assert_frame_equal(points, expected, check_dtype=False)
    result, plain = (model.predict(each, each)["mean"].values for each in (source, FIELD))
    assert np.allclose(np.unique(result.round(2)), np.unique(plain.round(2)), rtol=0, atol=0.02)


def test_packed_integers_read_as_their_values(tmp_path: Path) -> None:
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768}
    with_gap(FIELD).to_netcdf(tmp_path / "packed.nc", encoding={"t2m": packed})
    found = open_gridded(tmp_path / "packed.nc")
    np.testing.assert_allclose(found, with_gap(FIELD), rtol=0, atol=0.0051)


def test_half_precision_does_not_overflow() -> None:
    many = xr.concat([FIELD] * 100, "time").assign_coords(time=pd.date_range("2001", periods=400, unit="ns"))
    frames = [prepare(each).frame.variables[0] for each in (many, many.astype(np.float16))]
    assert np.isclose(frames[0].mean, frames[1].mean, atol=0.1) and np.isclose(frames[0].std, frames[1].std, atol=0.1)


@pytest.mark.parametrize("year", [1, 1850, 2000, 2001, 3000])
def test_years_of_360_days_keep_order_season_and_hour(year: int) -> None:
    """30 February too: each of their days becomes a day of its own, as far into the year."""
    given = [cftime.datetime(year, 1 + n // 30, 1 + n % 30, 6, calendar="360_day") for n in range(360)]
    dates = common_dates(xr.DataArray(given, dims="time")).values
    into = (dates - dates.astype("datetime64[Y]")) / np.timedelta64(1, "D")
    assert (np.diff(dates) >= np.timedelta64(1, "D")).all() and len(np.unique(dates.astype("datetime64[Y]"))) == 1
    assert np.abs(into / into[-1] - np.arange(0.25, 360) / 359.25).max() < 0.004
    assert (into % 1 == 0.25).all()


def test_dates_that_the_common_calendar_lacks_are_the_day_after() -> None:
    date = xr.DataArray(cftime.datetime(2001, 2, 29, calendar="all_leap"))
    assert common_dates(date).values == np.datetime64("2001-03-01")


def test_a_climate_models_calendar_from_file_to_prediction(tmp_path: Path) -> None:
    """A period is chosen by dates of the common calendar; the result has the target's own."""
    times = [cftime.datetime(2000, 2, 21 + day, 12, calendar="360_day") for day in range(10)]
    warming = xr.DataArray(np.arange(10.0), coords={"time": xr.CFTimeIndex(times)})
    field = (warming + FIELD[0].drop_vars("time")).rename("tas")
    field.to_netcdf(tmp_path / "tas.nc")
    model = fit(tmp_path / "tas.nc", "tnp", steps=1, period=("2000-02", "2000-03"))
    assert model.frame.period == ("2000-02-21", "2000-03-01")
    last = field.isel(time=[-1])
    result = model.predict(tmp_path / "tas.nc", last)
    assert result["time"].values.tolist() == times[-1:] and (result["mean"] - last).sizes == last.sizes
    table = field.to_dataframe().reset_index()
    assert np.allclose(model.predict(table, last)["mean"], result["mean"], rtol=0, atol=1e-3)


@pytest.mark.parametrize("year", [850, 2500])
def test_dates_far_from_now(year: int, tmp_path: Path, model: FieldModel) -> None:
    times = [cftime.datetime(year, month, 16, calendar="standard") for month in range(1, 5)]
    FIELD.assign_coords(time=xr.CFTimeIndex(times)).to_netcdf(tmp_path / "far.nc")
    part = {"period": (f"{year:04}-02", f"{year:04}-03-20")}
    field, points = (read(tmp_path / "far.nc", **part) for read in (open_gridded, open_points))
    assert field.shape == (2, 5, 7) and len(points) == 70
    assert [str(date)[:10] for date in field.time.values] == [f"{year:04}-02-16", f"{year:04}-03-16"]
    table = points.assign(time=points["time"].astype(str))
    assert open_points(table)["time"].tolist() == points["time"].tolist()
    assert model.predict(tmp_path / "far.nc", tmp_path / "far.nc")["mean"].shape == (4, 5, 7)


def rotated(field: xr.DataArray, dims: tuple[str, str] = ("rlat", "rlon")) -> xr.Dataset:
    """The field on a grid turned by 20 degrees, as from a regional model: latitudes and longitudes are variables."""
    y, x = np.meshgrid(np.arange(field.shape[1]) / 2, np.arange(field.shape[2]) / 2, indexing="ij")
    turn = np.deg2rad(20)
    latitude, longitude = 42 + np.cos(turn) * y - np.sin(turn) * x, np.sin(turn) * y + np.cos(turn) * x
    axes = {name: (name, np.arange(float(size)), {"standard_name": f"grid_{kind}", "units": "degrees"})
            for name, size, kind in zip(dims, field.shape[1:], ("latitude", "longitude"), strict=True)}  # fmt: skip
    places = {"lat": (dims, latitude, {"bounds": "lat_vertices"}), "lon": (dims, longitude)}
    places["lat_vertices"] = ((*dims, "v"), np.zeros((*y.shape, 4)))
    values = (("time", *dims), field.values, field.attrs | {"grid_mapping": "rotated_pole"})
    return xr.Dataset({"t2m": values, "rotated_pole": 0, **places}, coords={"time": field.time.values, **axes})


@pytest.mark.parametrize("dims", [("rlat", "rlon"), ("y", "x")])
@pytest.mark.parametrize("store", ["memory", "netcdf"])
def test_a_rotated_grid_is_fitted_and_predicted_on_its_own_dimensions(
    dims: tuple[str, str], store: str, tmp_path: Path
) -> None:
    grid = rotated(FIELD, dims)
    source = stored(grid, store, tmp_path)
    model = fit(source, "tnp", steps=1)
    latitude, longitude = (model.frame.axes[name] for name in ("latitude", "longitude"))
    assert np.isclose((latitude.low, latitude.high), (grid["lat"].min(), grid["lat"].max())).all()
    assert np.isclose((longitude.low, longitude.high), (grid["lon"].min(), grid["lon"].max())).all()
    result = model.predict(source, source)
    assert result["mean"].dims == ("time", *dims) and result["mean"].shape == FIELD.shape
    assert np.array_equal(result["lat"], grid["lat"]) and result["lat"].dims == dims
    assert np.array_equal(result[dims[0]], grid[dims[0]])
    assert np.isfinite(result["mean"]).all() and result["in_domain"].all()


def test_axes_that_only_count_the_cells_of_a_curved_grid_are_no_places() -> None:
    grid = rotated(FIELD, ("y", "x")).drop_attrs()
    assert sorted(open_points(grid, "t2m")["latitude"].unique()) == sorted(np.unique(grid["lat"]))
    with pytest.raises(ValueError, match="no variable with latitude and longitude"):
        open_gridded(rotated(FIELD, ("y", "x"))["t2m"])


def test_a_rotated_grid_without_latitudes_needs_them() -> None:
    """Not other names, with which the rotated ones would be taken for degrees on the globe."""
    grid = rotated(FIELD).drop_vars(["lat", "lon"])
    with pytest.raises(ValueError, match="rlat, rlon are of a map projection or a rotated pole; add latitude and"):
        open_points(grid)


@pytest.mark.parametrize("fill", [1e20, 9.96921e36, -9999.0, -99.9, -32768.0, np.inf, -np.inf])
def test_undeclared_fill_values_are_missing_and_told(fill: float, model: FieldModel) -> None:
    filled = with_gap(FIELD).fillna(np.float32(fill))
    told = rf"4 values of {re.escape(f'{fill:g}')[:7]}.* are taken as missing; the others are 26\d.* to 29\d"
    expected = prepare(with_gap(FIELD)).frame.variables[0]
    with pytest.warns(UserWarning, match=told):
        found = prepare(filled).frame.variables[0]
    assert np.isclose(found.mean, expected.mean) and np.isclose(found.std, expected.std)
    with pytest.warns(UserWarning, match=told):
        assert len(open_points(filled)) == FIELD.size - 4
    with pytest.warns(UserWarning, match=told):
        assert len(open_points(filled.to_dataframe().reset_index())) == FIELD.size - 4


@pytest.mark.parametrize("fill", [1e20, -999.0, np.nan])
def test_places_of_a_swath_may_be_missing(fill: float, tmp_path: Path, model: FieldModel) -> None:
    """Declared or not, in what is observed, predicted and drawn."""
    grid = rotated(FIELD)
    for name in ("lat", "lon"):
        grid[name][0, :3] = fill
    told = (
        pytest.warns(UserWarning, match=f"itudes of .*values of {re.escape(f'{fill:g}')} are taken as missing")
        if np.isfinite(fill)
        else nullcontext()
    )
    with told:
        points = open_points(grid)
    assert len(points) == FIELD.size - 12 and points["latitude"].between(40, 50).all()
    with told:
        result = model.predict(TABLE, grid)
    assert result["mean"].isnull().sum() == 12 and result["mean"].shape == FIELD.shape
    assert map_prediction(result, points, tmp_path / "map.png").exists()


def test_places_that_are_all_infinite_are_none() -> None:
    told = pytest.warns(
        UserWarning, match="latitudes of .* 140 values of inf are taken as missing; there are no others"
    )
    with told, pytest.raises(ValueError, match="has no rows with a value of t2m, a place and a time"):
        open_points(TABLE.assign(latitude=np.inf))


def test_fill_values_of_a_target_are_missing() -> None:
    """An elevation of −9999 m would be an extrapolation that nobody sees."""
    height = Covariate("elevation", 0.0, 1.0, "m")
    own = frame(40.0, 50.0, -10.0, 10.0)
    seen = Frame(list(own.axes.values()), own.variables, None, [height])
    model = FieldModel(aenp.CNP(2, 1, dim_covariates=1, dim=8, layers=1), seen).eval()
    high = TABLE.assign(elevation=100.0 + TABLE.index % 7)
    lost = high.assign(elevation=high["elevation"].where(high.index != 3, -9999.0))
    told = pytest.warns(UserWarning, match="elevations of .* 1 values of -9999 are taken as missing; the others are 1")
    with told, pytest.raises(ValueError, match=r"elevation is not known at 41, -1 .*a topography"):
        model.predict(high, lost)
    with pytest.warns(UserWarning, match="1 values of -9999 are taken as missing"):
        found = model.predict(high, lost, elevation=FIELD[0].drop_vars("time").drop_attrs())
    assert np.isfinite(found["mean"]).all()


@pytest.mark.parametrize("west", [-99.0, -99.9])
def test_longitudes_that_look_like_fill_values_are_kept(west: float, model: FieldModel) -> None:
    """Also where all others are on another continent."""
    far = TABLE.assign(longitude=TABLE["longitude"].where(TABLE.index != 3, west))
    assert len(open_points(far)) == len(TABLE) and open_points(far)["longitude"].min() == west
    assert np.isfinite(model.predict(TABLE, far)["mean"]).all()


def test_values_that_only_look_like_fill_values_are_kept() -> None:
    depths = 2000 * (FIELD - 280) - 5000
    depths[0, 0, 0] = -9999.0
    assert len(open_points(depths)) == FIELD.size
    pressure = TABLE.assign(t2m=np.where(TABLE.index < 3, 999.9, 1003.0))
    assert len(open_points(pressure)) == len(open_points(pressure[:3])) + len(pressure) - 3


def test_nothing_but_fill_values_is_nothing() -> None:
    told = pytest.warns(UserWarning, match="140 values of 1e.20 are taken as missing; there are no others")
    with told, pytest.raises(ValueError, match="all the same or missing"):
        prepare(xr.full_like(FIELD, 1e20))


def test_voids_of_a_topography_are_missing() -> None:
    heights = xr.where(with_gap(FIELD[0]).isnull(), -32768.0, FIELD[0]).drop_vars("time")
    with pytest.warns(UserWarning, match="values of -32768 are taken as missing"):
        assert np.isnan(elevation_at(heights, [42.5, 43.0], [0.5, -3.0])).tolist() == [True, False]


def test_several_values_at_one_time_and_place_become_their_mean() -> None:
    twice = pd.concat([TABLE, TABLE.assign(t2m=TABLE["t2m"] + 2)[:3], TABLE[5:9]])
    with pytest.warns(UserWarning, match="3 times and places have different values; their means are used"):
        points = open_points(twice)
    assert np.allclose(points["value"], TABLE["t2m"] + np.where(TABLE.index < 3, 1, 0), rtol=0, atol=1e-3)
    towers = pd.concat([TABLE.assign(elevation=2.0), TABLE.assign(elevation=10.0)])
    assert len(open_points(towers)) == len(towers)


@pytest.mark.parametrize(
    "times",
    [
        lambda t: t.dt.strftime("%Y-%m-%d"),
        lambda t: t.dt.strftime("%Y-%m-%dT00:00:00Z"),
        lambda t: t.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo").astype(str),
        lambda t: t.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
        lambda t: t.dt.date,
        lambda t: t.dt.to_period("D"),
        lambda t: t.dt.to_pydatetime(),
    ],
)
def test_times_of_tables(times: Callable[[pd.Series], object], tmp_path: Path) -> None:
    table = TABLE.assign(time=times(TABLE["time"]))
    table.to_csv(tmp_path / "table.csv", index=False)
    for source in (table, tmp_path / "table.csv"):
        assert (open_points(source)["time"] == TABLE["time"]).all()


@pytest.mark.parametrize("rename", [{"time": "timestamp"}, {"time": "XTIME"}])
def test_times_of_other_names(rename: dict[str, str]) -> None:
    pd.testing.assert_frame_equal(open_points(TABLE.rename(columns=rename)), open_points(TABLE))
    grid = rotated(FIELD).swap_dims(time="Time").rename(rename)
    assert (open_points(grid)["time"].unique() == FIELD.time.values).all()


def test_a_dimension_of_dates_is_time_whatever_its_name(model: FieldModel) -> None:
    named = FIELD.rename(time="t")
    xr.testing.assert_allclose(open_gridded(named).drop_attrs(), FIELD.drop_attrs())
    assert model.predict(named, named)["mean"].dims == ("t", "latitude", "longitude")
    began = named.copy()
    began["t"].attrs["standard_name"] = "forecast_reference_time"
    with pytest.raises(ValueError, match=r"further dimensions \{'t': 4\}"):
        open_gridded(began)
    with pytest.raises(ValueError, match=r"further dimensions \{'init': 4\}"):
        open_gridded(FIELD.rename(time="init"))


def test_values_of_several_times_that_are_not_told_apart_are_told() -> None:
    with pytest.warns(UserWarning, match="35 places have different values and no times; .* call them time; their mean"):
        assert len(open_points(TABLE.rename(columns={"time": "when"}))) == 35


def test_values_without_a_time_are_left_out_and_told(tmp_path: Path, model: FieldModel) -> None:
    """In a table, a file with an empty cell, and a field; a target gets NaN there."""
    undated = TABLE.assign(time=TABLE["time"].where(TABLE.index > 2))
    undated.to_csv(tmp_path / "table.csv", index=False)
    for source in (undated, tmp_path / "table.csv"):
        with pytest.warns(UserWarning, match="3 values have no time and are left out"):
            assert len(open_points(source)) == len(TABLE) - 3
    lost = FIELD.time.where(FIELD.time > FIELD.time[0])
    with pytest.warns(UserWarning, match="1 of its times are missing and left out"):
        assert open_gridded(FIELD.assign_coords(time=lost)).equals(FIELD[1:])
    known = np.isfinite(model.predict(TABLE, undated)["mean"])
    assert known[3:].all() and not known[:3].any()


def test_contexts_and_targets_count_longitudes_either_way(model: FieldModel) -> None:
    expected = model.predict(FIELD, FIELD)["mean"]
    turned = FIELD.assign_coords(longitude=FIELD.longitude % 360)
    for context, target in ((turned, FIELD), (FIELD, turned), (turned, turned)):
        assert np.allclose(model.predict(context, target)["mean"], expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "form",
    [
        lambda t: t.convert_dtypes(),
        lambda t: t.astype({"latitude": "string", "longitude": object}),
        lambda t: t.assign(station=pd.Categorical(["a", "b"] * 70)),
        lambda t: t.assign(time=t["time"].dt.to_period("D")),
        lambda t: t.set_index(pd.PeriodIndex(t["time"], freq="D")).drop(columns="time"),
        lambda t: t.assign(time=t["time"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")),
        lambda t: t.assign(timestamp=range(140), month=t["time"].dt.to_period("M")),
        lambda t: t.assign(**{"wind (m/s)": "calm", "wind (kt)": "calm"}),
    ],
)
def test_tables_of_any_types_are_contexts_and_targets(
    form: Callable[[pd.DataFrame], pd.DataFrame], model: FieldModel
) -> None:
    expected = model.predict(TABLE, TABLE)["mean"]
    assert np.allclose(model.predict(form(TABLE), form(TABLE))["mean"], expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pd.concat([TABLE, TABLE["t2m"]], axis=1), "several columns called t2m; rename or drop all but one"),
        (TABLE.pivot_table("t2m", "time", ["latitude", "longitude"]), r"names of 2 levels, .*with \.stack and"),
    ],
)
def test_columns_need_names_of_their_own(table: pd.DataFrame, message: str, model: FieldModel) -> None:
    for context, target in ((table, TABLE), (TABLE, table)):
        with pytest.raises(ValueError, match=f"the given DataFrame has .*{message}"):
            model.predict(context, target)


def test_times_of_a_target_are_dates_or_an_error(model: FieldModel) -> None:
    """They are not left out, which would predict other times than those asked for."""
    for times in (FIELD.time.dt.strftime("%Y-%m-%d").values.astype(object), np.arange(4)):
        with pytest.raises(ValueError, match=r"time is of type .* and not of dates; convert it with pd\.to_datetime"):
            model.predict(TABLE, FIELD.assign_coords(time=times))


def empty(directory: Path, name: str) -> Path:
    (directory / name).write_bytes(b"")
    return directory / name


def months(directory: Path) -> Path:
    """Times in a unit of no fixed length."""
    numbers = FIELD.assign_coords(time=("time", range(4), {"units": "months since 1850-01-01"}))
    numbers.to_netcdf(directory / "months.nc")
    return directory / "months.nc"


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "levels": (lambda _: FIELD.expand_dims(level=[1, 2]), r"further dimensions \{'level': 2\}.*\.isel\(level=0\)"),
    "members on a rotated grid": (
        lambda _: rotated(FIELD).set_coords(["lat", "lon"]).expand_dims(member=3)[["t2m"]], r"\.isel\(member=0\)"),
    "swapped": (lambda _: FIELD.assign_coords(latitude=LATITUDES + 60), "latitude ranges from 101 to 105.*swapped"),
    "swapped in a table": (
        lambda _: TABLE.assign(latitude=TABLE["latitude"] + 60), "latitude ranges from 101 to 105.*not swapped"),
    "an empty file": (lambda d: empty(d, "a.nc"), "a.nc is empty; write or download it again"),
    "an empty table": (lambda d: empty(d, "a.csv"), "a.csv is not a table"),
    "only a heading": (lambda _: TABLE[:0], "has no rows with a value"),
    "no variables": (lambda _: xr.Dataset(), "no variable with latitude and longitude; it has nothing"),
    "no steps": (lambda _: FIELD[:0], "has no data; it covers latitude 41 to 45"),
    "nothing but NaN": (lambda _: FIELD * np.nan, "all the same or missing"),
    "nothing but NaN in a table": (lambda _: TABLE.assign(t2m=np.nan), "has no rows with a value of t2m, a place and"),
    "words": (lambda _: FIELD.astype(str), "has no numbers, but t2m of type .*; convert them with"),
    "words in a table": (lambda _: TABLE.assign(t2m="warm"), "has the value 'warm', which is not a number"),
    "one station": (lambda _: TABLE.query("latitude == 41 & longitude == 0"), "all observations are from one place"),
    "one report": (lambda _: TABLE[:1], "all observations are from one place"),
    "few reports": (lambda _: TABLE[:7], "fewer than 8 observations, in the median 7.*give `time`"),
    "one cell": (
        lambda _: FIELD.where((FIELD.latitude == 43) & (FIELD.longitude == 1)),
        "no patch of 5 × 5 points has 2 values; give data with fewer gaps"),
    "months": (months, "months.nc cannot be decoded: .*time.*; open it with xarray, and give the result"),
    "no times": (lambda _: TABLE.assign(time=pd.NaT)[:0], "has no rows with a value of t2m, a place and a time"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_data_raise_in_one_sentence(case: str, tmp_path: Path) -> None:
    make, message = BAD[case]
    with pytest.raises(ValueError, match=message) as caught:
        fit(make(tmp_path), steps=1)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (FIELD.assign_attrs(units="mm"), "'mm' and 'K' differ and cannot be converted"),
        ((FIELD - 273.15).drop_attrs(), "values are about .* Check variable and units"),
        (FIELD * np.nan, "has no rows with a value"),
        (FIELD.expand_dims(level=[1, 2]), r"\.isel\(level=0\)"),
        (FIELD.assign_coords(latitude=LATITUDES + 60), "latitude ranges from 101 to 105.*swapped"),
    ],
)
def test_bad_contexts_raise(model: FieldModel, context: xr.DataArray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.predict(context, FIELD)


def test_a_context_in_degrees_celsius_is_converted(model: FieldModel) -> None:
    celsius = (FIELD - 273.15).assign_attrs(units="degC")
    expected = model.predict(FIELD, FIELD)["mean"]
    assert np.allclose(model.predict(celsius, FIELD)["mean"], expected, rtol=0, atol=1e-3)
