"""Readers: data read the same in any form, nothing is read too early, and errors say what is wrong."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import tiny
from aenp.earth.gridded import elevation_at, open_gridded
from aenp.earth.points import is_scattered, open_points
from aenp.earth.sources import same_variable
from aenp.earth.units import converted

REAL: dict[str, tiny.Facts] = {
    "era5_italy_0p25_3hourly_2022-05_06.nc": ("t2m", "K", (488, 43, 48), (36.4, 46.9, 6.57, 18.32)),
    "era5_uk_0p25_hourly_2019-03.grib": ("t2m", "K", (744, 33, 49), (50, 58, -10, 2)),
    "era5_uk_0p25_hourly_2019-03.nc": ("t2m", "K", (744, 33, 49), (50, 58, -10, 2)),
    "wfde5_uk_0p5_hourly_2017-01.nc": ("Tair", "K", (744, 20, 28), (50.25, 59.75, -10.75, 2.75)),
    "era5_global_1deg_7hourly_1week.nc": ("t2m", "K", (24, 181, 360), (-90, 90, -180, 179)),
    "itu1511v2_topo_1_12deg.nc": ("topo", "m", (1, 2160, 4320), (-89.9583, 89.9583, -179.9583, 179.9583)),
    "cdo_topo_0p5deg.nc": ("topo", "m", (1, 360, 720), (-89.75, 89.75, -179.75, 179.75)),
    "era5_lsm_0p25.nc": ("lsm", "(0 - 1)", (1, 721, 1440), (-90, 90, -180, 179.75)),
}
TIMES = pd.date_range("2019-03-01", periods=6, freq="8h", unit="ns")
LATITUDES, LONGITUDES = np.arange(50.0, 54), np.arange(-6.0, 6, 2)
FIELD = xr.DataArray(
    np.random.default_rng(0).normal(280, 5, (6, 4, 6)).astype(np.float32),
    coords={"time": TIMES, "latitude": LATITUDES, "longitude": LONGITUDES},
    name="t2m",
    attrs={"units": "K", "long_name": "2 metre temperature"},
)
GLOBE = xr.DataArray(
    np.arange(7.0 * 12).reshape(7, 12),
    coords={"lat": np.arange(-90.0, 91, 30), "lon": np.arange(0.0, 360, 30)},
    dims=("lat", "lon"),
    name="height",
    attrs={"units": "m"},
)


def from_zero(field: xr.DataArray) -> xr.DataArray:
    return field.assign_coords(longitude=field.longitude % 360).sortby("longitude")


def seam_twice(field: xr.DataArray) -> xr.DataArray:
    field = from_zero(field)
    return field.pad(longitude=(0, 1), mode="wrap").assign_coords(longitude=[*field.longitude.values, 360])


def with_units(field: xr.DataArray) -> xr.DataArray:
    field = field.rename(latitude="j", longitude="i")
    field["j"].attrs["units"], field["i"].attrs["units"] = "degrees_north", "degrees_east"
    return field


def with_standard_names(field: xr.DataArray) -> xr.DataArray:
    field = field.rename(latitude="rows", longitude="columns", time="t")
    for name, kind in (("rows", "latitude"), ("columns", "longitude"), ("t", "time")):
        field[name].attrs["standard_name"] = kind
    return field


def forecast(field: xr.DataArray) -> xr.DataArray:
    """As from GRIB: dimensions of runs and lead times, with the valid time beside them."""
    valid = xr.Variable("time", field.time.values, {"standard_name": "time"})
    field = field.assign_coords(time=field.time - np.timedelta64(6, "h"), valid_time=valid)
    return field.assign_coords(step=6.0, number=0).expand_dims("number")


FORMS: dict[str, Callable[[xr.DataArray], xr.DataArray]] = {
    "standard": lambda f: f,
    "lat and lon": lambda f: f.rename(latitude="lat", longitude="lon"),
    "y and x": lambda f: f.rename(latitude="y", longitude="x", time="valid_time"),
    "upper case": lambda f: f.rename(latitude="LAT", longitude="LON", time="Time"),
    "CF units": with_units,
    "CF standard names": with_standard_names,
    "axis types": lambda f: f.rename(time="t").assign_coords(t=("t", TIMES, {"_CoordinateAxisType": "Time"})),
    "latitude descending": lambda f: f.isel(latitude=slice(None, None, -1)),
    "longitude from 0": from_zero,
    "time descending": lambda f: f.isel(time=slice(None, None, -1)),
    "dimensions in another order": lambda f: f.transpose("longitude", "time", "latitude"),
    "forecast": forecast,
    "all at once": lambda f: with_units(from_zero(f).isel(latitude=slice(None, None, -1)).transpose(..., "time")),
    "a column twice": seam_twice,
    "dimensions without coordinates": lambda f: f.rename(latitude="lat").swap_dims(lat="j"),
}  # fmt: skip


def same(field: xr.DataArray, other: xr.DataArray) -> None:
    xr.testing.assert_equal(field, other)
    assert {name: field.attrs[name] for name in other.attrs} == other.attrs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("store", ["memory", "netcdf", "zarr"])
def test_a_field_reads_the_same_in_any_form_and_store(form: str, store: str, tmp_path: Path) -> None:
    field = FORMS[form](FIELD.copy())
    source: xr.DataArray | Path = field
    if store == "netcdf":
        field.to_netcdf(source := tmp_path / "field.nc")
    elif store == "zarr":
        field.to_zarr(source := tmp_path / "field.zarr", consolidated=False)
    opened = open_gridded(source)
    assert opened.dims == ("time", "latitude", "longitude") and opened.chunks is not None
    same(opened, FIELD)


def test_coordinates_stored_as_variables_are_found() -> None:
    same(open_gridded(FIELD.to_dataset().reset_index(["latitude", "longitude"]).reset_coords()), FIELD)


def test_a_field_without_time_has_one_step_and_one_with_a_single_date_keeps_it() -> None:
    assert "time" not in open_gridded(FIELD[0].drop_vars("time")).coords
    same(open_gridded(FIELD[0]), FIELD[:1])


@pytest.mark.parametrize("name", ["t2m", "T2M", "2t", "Tair", "air", "air_temperature"])
def test_a_variable_is_found_by_its_names_in_other_products(name: str) -> None:
    field = FIELD.assign_attrs(standard_name="air_temperature")
    dataset = xr.Dataset({"t2m": field, "precipitation": FIELD, "crs": 0})
    same(open_gridded(dataset, name), field)


def test_nothing_is_read_before_it_is_needed() -> None:
    def fail(block: np.ndarray) -> np.ndarray:
        raise AssertionError("read")

    lazy = from_zero(FIELD.copy(data=dask.array.ones(FIELD.shape).map_blocks(fail, meta=FIELD.values[:0, :0, :0])))
    field = open_gridded(lazy, region=(50, 52, -4, 2), period=("2019-03-01", "2019-03-01"))
    with pytest.raises(AssertionError, match="read"):
        field.compute()


def test_a_file_without_chunks_of_its_own_is_read_by_chunks(tmp_path: Path) -> None:
    FIELD.to_netcdf(tmp_path / "field.nc")
    with dask.config.set({"array.chunk-size": "256B"}):
        field = open_gridded(tmp_path / "field.nc")
    assert max(np.prod(field.data.chunksize) * 4, 1) <= 256
    same(field, FIELD)


@pytest.mark.parametrize(
    "region", [(51, 53, -4, 2), (50.5, 53.5, -5, 3), (51, 53, 356, 2), (51, 53, 355, 363), (51.00005, 53, -4, 1.99995)]
)
@pytest.mark.parametrize("form", ["standard", "all at once"])
def test_region_and_period_include_their_borders(form: str, region: tuple[float, ...]) -> None:
    south, north, west, east = region
    field = open_gridded(FORMS[form](FIELD.copy()), region=(south, north, west, east), period=("2019-03", "2019-03-01"))
    same(field, FIELD.sel(latitude=slice(51, 53), longitude=slice(-4, 2), time="2019-03-01"))


def test_whole_globe_and_date_line() -> None:
    whole = open_gridded(GLOBE)
    assert whole.longitude.values.tolist() == list(range(-180, 180, 30))
    for west, east in ((-180, 180), (0, 360), (-180, 179.9)):
        xr.testing.assert_equal(open_gridded(GLOBE, region=(-90, 90, west, east)), whole)
    across = open_gridded(GLOBE, region=(-90, 90, 150, -150))
    assert across.longitude.values.tolist() == [150, 180, 210]
    assert across[0, 0].values.tolist() == [5, 6, 7]
    points = open_points(GLOBE, region=(-90, 90, 150, 210))
    assert sorted(set(points.longitude)) == [150, 180, 210]


def test_grib_reads_as_the_field_that_was_written(tmp_path: Path) -> None:
    tiny.write_grib(FIELD, tmp_path / "field.grib")
    field = open_gridded(tmp_path / "field.grib", "t2m", region=(51, 53, -4, 2), period=("2019-03-01", "2019-03-01"))
    expected = FIELD.sel(latitude=slice(51, 53), longitude=slice(-4, 2), time="2019-03-01")
    xr.testing.assert_allclose(field, expected, rtol=0, atol=1e-3)
    assert (field.name, field.attrs["units"], field.dims) == ("t2m", "K", expected.dims)
    points = open_points(tmp_path / "field.grib")
    np.testing.assert_allclose(np.sort(points["value"]), np.sort(FIELD.values.ravel()), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", REAL)
def test_a_file_reads_in_the_standard_form(climate: Path, name: str) -> None:
    files = REAL if climate == tiny.real_data() else tiny.FIELDS
    variable, units, shape, (south, north, west, east) = files[name]
    field = open_gridded(climate / name)
    assert (field.name, field.attrs["units"], field.shape) == (variable, units, shape)
    assert field.dims == ("time", "latitude", "longitude") and field.chunks is not None
    for axis, ends in (("latitude", (south, north)), ("longitude", (west, east))):
        assert field.indexes[axis].is_monotonic_increasing
        np.testing.assert_allclose(field[axis].values[[0, -1]], ends, atol=1e-4)
    assert ("time" in field.coords) == (shape[0] > 1)


def test_grib_and_netcdf_are_the_same_field(climate: Path) -> None:
    grib, netcdf = (open_gridded(climate / f"{tiny.UK}.{suffix}", "2t") for suffix in ("grib", "nc"))
    xr.testing.assert_allclose(grib, netcdf.astype(np.float32), rtol=0, atol=0.0051)  # NetCDF is to 0.01 K
    assert netcdf.mean() > 270


def test_sea_is_missing(climate: Path) -> None:
    day = "2017-01-03", "2017-01-03"
    field, points = (read(climate / tiny.WFDE5, "t2m", period=day) for read in (open_gridded, open_points))
    assert 0.5 < float(field.isnull().mean()) < 0.8
    assert len(points) == int(field.notnull().sum()) and points.attrs["units"] == "K"


@pytest.mark.filterwarnings("ignore:.*times and places have different values")
def test_stations(climate: Path) -> None:
    """In the requested region and period, each time and place with a value is a row, in the file's units."""
    box, year = (35, 60, 10, 45), ("2010", "2010")
    era5, stations = (open_points(climate / tiny.STATIONS, name, box, year) for name in ("t2m_era5", "tmean_gsod"))
    assert list(era5) == ["time", "latitude", "longitude", "elevation", "value"]
    assert (era5.attrs["name"], era5.attrs["units"], stations.attrs["units"]) == ("t2m_era5", "K", "degC")
    with xr.open_dataset(climate / tiny.STATIONS) as data:
        here = (data.lat >= 35) & (data.lat <= 60) & (data.lon >= 10) & (data.lon <= 45)
        expected = data["t2m_era5"].sel(time="2010").values[here.values]
        places = [data[name].values[here] for name in ("lat", "lon", "elev")]
    rows = pd.DataFrame(expected).groupby(places, dropna=False).mean().to_numpy()
    assert len(era5) == np.isfinite(rows).sum() > 1000
    assert np.isclose(era5.value.mean(), np.nanmean(rows))
    both = era5.merge(stations, on=["time", "latitude", "longitude"])
    assert abs((both.value_x - both.value_y).mean() - 273.15) < 1
    assert era5.latitude.between(35, 60).all() and (era5.time.dt.year == 2010).all()


@pytest.mark.parametrize(("topography", "limit"), [(tiny.TOPOGRAPHY, 25), (tiny.COARSE_TOPOGRAPHY, 75)])
def test_topography_is_near_the_height_of_the_stations(climate: Path, topography: str, limit: float) -> None:
    places = open_points(climate / tiny.STATIONS, "t2m_era5", period=("2010-07-01", "2010-07-01"))
    heights = np.maximum(elevation_at(climate / topography, places.latitude, places.longitude), 0)
    assert np.median(np.abs(heights - places.elevation)) < limit
    assert np.corrcoef(heights, places.elevation)[0, 1] > 0.7


TABLE = pd.DataFrame(
    {"time": TIMES[:3], "latitude": [50.0, 51, 52], "longitude": [-5.0, 0, 5], "elevation": [3.0, np.nan, 9],
     "value": [280.0, 281, 282]}
)  # fmt: skip
TABLE.attrs |= {"name": "t2m", "units": "K"}


@pytest.mark.parametrize(
    "name",
    ["station", "Station_ID", "STATIONS_ID", "STAID", "id", "wmo", "WMO No", "site", "siteId", "usaf", "Unnamed: 0"],
)
def test_numbers_of_stations_are_no_values(name: str) -> None:
    numbered = TABLE.assign(**{name: [11035, 11036, 11037]})
    assert open_points(numbered)["value"].tolist() == [280.0, 281, 282]
    assert open_points(numbered, name)["value"].tolist() == [11035.0, 11036, 11037]
    stations = scattered(TABLE).assign(wmo=("station", [11035, 11036, 11037]))
    assert open_points(stations)["value"].tolist() == [280.0, 281, 282]


@pytest.mark.parametrize("name", ["no", "number", "humid", "solid", "gauge", "uv index"])
def test_names_of_values_are_not_taken_for_numbers_of_stations(name: str) -> None:
    assert open_points(TABLE.rename(columns={"value": name}))["value"].tolist() == [280.0, 281, 282]


def test_dates_may_be_in_columns_of_their_parts() -> None:
    time, rest = TABLE["time"].dt, TABLE.drop(columns="time")
    parts = rest.assign(Year=time.year, MONTH=time.month, day=time.day, hour=time.hour)
    pd.testing.assert_frame_equal(open_points(parts), open_points(TABLE), check_dtype=False)
    with pytest.raises(ValueError, match=r"year, month and day are no dates.* correct them"):
        open_points(parts.assign(MONTH=2, day=30))
    assert "time" not in open_points(rest.assign(year=2019))


def scattered(table: pd.DataFrame) -> xr.Dataset:
    """Stations beside times: a value for each pair, missing except at one time of each."""
    values = np.where(np.eye(3, dtype=bool), table["value"].to_numpy(), np.nan)
    station = {name: ("station", table[name].to_numpy()) for name in ("latitude", "longitude", "elevation")}
    coords = {"time": table["time"].to_numpy(), "name": ("station", ["a", "b", "c"])}
    return xr.Dataset({"t2m": (("station", "time"), values, {"units": "K"}), **station}, coords)


TABLES: dict[str, Callable[[pd.DataFrame], pd.DataFrame | xr.Dataset]] = {
    "standard": lambda t: t,
    "renamed": lambda t: t.set_axis(["date", "LAT", "Lon", "alt", "t2m"], axis=1),
    "longitude from 0": lambda t: t.assign(longitude=t.longitude % 360),
    "indexed": lambda t: t.set_index(["latitude", "longitude"]),
    "missing rows": lambda t: pd.concat([t, t.assign(value=np.nan), t.assign(latitude=np.nan)]),
    "names beside": lambda t: t.assign(station=["a", "b", "c"]),
    "zoned times": lambda t: t.assign(time=t.time.dt.tz_localize("UTC").dt.tz_convert("Europe/Paris")),
    "scattered": scattered,
    "scattered, from 0": lambda t: scattered(t.assign(longitude=t.longitude % 360)),
}  # fmt: skip


@pytest.mark.parametrize("form", TABLES)
def test_points_read_the_same_in_any_form(form: str) -> None:
    points = open_points(TABLES[form](TABLE.copy()))
    pd.testing.assert_frame_equal(points, TABLE)
    assert points.attrs == TABLE.attrs


@pytest.mark.parametrize(("suffix", "separator"), [("csv", ","), ("csv", ";"), ("tsv", "\t"), ("csv.gz", ",")])
def test_points_from_text(suffix: str, separator: str, tmp_path: Path) -> None:
    titles = {"value": "t2m [K]", "latitude": "lat (degrees)", "elevation": "elev"}
    TABLE.rename(columns=titles).to_csv(tmp_path / f"stations.{suffix}", sep=separator, index=False)
    for variable in (None, "t2m", "Tair", "t2m [K]"):
        points = open_points(tmp_path / f"stations.{suffix}", variable)
        pd.testing.assert_frame_equal(points, TABLE.assign(time=TABLE.time.astype(points.time.dtype)))


@pytest.mark.parametrize(
    ("options", "encoding"),
    [
        ({"sep": ";", "decimal": ","}, "utf-8"),
        ({"sep": ";"}, "utf-8-sig"),
        ({"sep": "\t", "decimal": ","}, "utf-8-sig"),
        ({"sep": "|"}, "utf-8"),
    ],
)
def test_points_from_text_of_other_countries(options: dict[str, str], encoding: str, tmp_path: Path) -> None:
    """Decimal commas, byte-order marks, and spaces around names."""
    titled = TABLE.rename(columns=lambda name: f" {name} ")
    titled.to_csv(tmp_path / "stations.csv", index=False, encoding=encoding, **options)
    points = open_points(tmp_path / "stations.csv")
    pd.testing.assert_frame_equal(points, TABLE.assign(time=TABLE.time.astype(points.time.dtype)))


def test_radians_in_a_title_are_degrees() -> None:
    turned = {f"{name} [rad]": np.deg2rad(TABLE[name]) for name in ("latitude", "longitude")}
    points = open_points(TABLE.drop(columns=["latitude", "longitude"]).assign(**turned))
    pd.testing.assert_frame_equal(points, TABLE)


def test_times_that_occur_twice_are_told() -> None:
    twice = xr.concat([FIELD, FIELD[:1] + 1], "time")
    with pytest.warns(UserWarning, match="some times occur more than once; the first of each is used"):
        xr.testing.assert_allclose(open_gridded(twice).drop_attrs(), open_gridded(FIELD).drop_attrs())


def test_points_from_a_scattered_file_and_a_part_of_it(tmp_path: Path) -> None:
    scattered(TABLE).to_netcdf(tmp_path / "stations.nc")
    points = open_points(tmp_path / "stations.nc", region=(49, 60, -6, 1), period=("2019-03-01T08", "2019-03-02"))
    pd.testing.assert_frame_equal(points, TABLE[1:2].reset_index(drop=True))
    with pytest.raises(ValueError, match=r"lat.* and lon.* share the dimension station.*open_points"):
        open_gridded(tmp_path / "stations.nc", "t2m")


def test_points_of_a_field_are_its_values_that_are_not_missing() -> None:
    field = FIELD.where(FIELD > 280)
    points = open_points(from_zero(field))
    assert len(points) == int(field.notnull().sum()) and points.attrs == {"name": "t2m", **FIELD.attrs}
    at = {name: xr.DataArray(points[name]) for name in ("time", "latitude", "longitude")}
    assert np.array_equal(field.sel(at).values, points["value"].to_numpy())


@pytest.mark.parametrize("form", FORMS)
def test_points_of_a_field_read_the_same_in_any_form(form: str) -> None:
    points, expected = (
        open_points(field).drop_duplicates().sort_values("value", ignore_index=True)
        for field in (FORMS[form](FIELD.copy()), FIELD)
    )
    pd.testing.assert_frame_equal(points, expected)


def test_points_of_a_curved_grid() -> None:
    y, x = np.meshgrid(LATITUDES, LONGITUDES, indexing="ij")
    curved = xr.DataArray(FIELD[0].values, dims=("j", "i"), coords={"lat": (("j", "i"), y), "lon": (("j", "i"), x + y)})
    assert not is_scattered(FIELD) and all(map(is_scattered, (curved, TABLE, scattered(TABLE))))
    points = open_points(curved, region=(51, 52, 40, 90))
    assert len(points) == int(((y >= 51) & (y <= 52) & (x + y >= 40)).sum())
    with pytest.raises(ValueError, match=r"latitude lat has the dimensions \('j', 'i'\).*open_points"):
        open_gridded(curved)


@pytest.mark.parametrize("start", [-180, 0])
def test_elevation_is_exact_for_planes_and_at_nodes(start: int) -> None:
    latitude, longitude = np.arange(90.0, -91, -10), start + np.arange(0.0, 360, 10)
    plane = 2 * latitude[:, None] + 100 - np.abs((longitude + 180) % 360 - 180)
    topography = xr.DataArray(plane, coords={"lat": latitude, "lon": longitude}, dims=("lat", "lon"))
    rng = np.random.default_rng(0)
    y, x = rng.uniform(-90, 90, (5, 40)), rng.uniform(-180, 540, (5, 40))
    heights = elevation_at(topography, y, x)
    np.testing.assert_allclose(heights, 2 * y + 100 - np.abs((x + 180) % 360 - 180), atol=1e-9)
    np.testing.assert_array_equal(elevation_at(topography, latitude[:, None], longitude), plane)


def test_elevation_is_nan_outside_and_beside_missing_values() -> None:
    part = GLOBE.isel(lat=slice(1, 5), lon=slice(5, 8))  # 60 S to 30 N, 150 E to 150 W
    latitude, longitude = [-60, 30, 0, 31, -61, 0, 0, 0], [150, -150, 179, 180, 180, 149, -149, np.nan]
    assert np.isnan(elevation_at(part, latitude, longitude)).tolist() == [False] * 3 + [True] * 5
    holed = GLOBE.where((GLOBE.lat != 0) | (GLOBE.lon != 30))
    assert np.isnan(elevation_at(holed, [0, 0, 10, 0], [0, 29, 45, 60])).tolist() == [False, True, True, False]
    assert elevation_at(GLOBE - 100, 0, 0) == float(GLOBE.sel(lat=0, lon=0)) - 100 < 0
    assert np.isclose(elevation_at(GLOBE.assign_attrs(units="km"), 0, 0), 1000 * float(GLOBE.sel(lat=0, lon=0)))


def test_units_and_names() -> None:
    for a, b in (("K", "degrees_kelvin"), ("degC", "Celsius"), ("°C", "C"), ("K", ""), ("", "K"), ("?", "?"),
                 ("deg C", "Degrees C"), ("m", "Metres"), ("mm/day", "mm d-1"), ("m s**-1", "m/s"),
                 ("(0 - 1)", "(0 - 1)")):  # fmt: skip
        np.testing.assert_allclose(converted(np.array([20.0]), a, b, "x"), 20)
    assert np.allclose(converted(np.array([20.0]), "°C", "K", "x"), 293.15)
    for a, b in (("K", "m"), ("mm/day", "m"), ("K", "(0 - 1)"), ("puffs", "huffs")):
        with pytest.raises(ValueError, match=re.escape(f"x: the units '{a}' and '{b}' differ and cannot")):
            converted(np.array([20.0]), a, b, "x")
    assert same_variable("t2m", "Tair") and not same_variable("t2m", "precipitation")


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no coordinates": (lambda: open_gridded(FIELD.rename(latitude="a")), r"no variable with lat.*t2m\(time, a, long"),
    "a map projection": (
        lambda: open_gridded(FIELD.rename(latitude="y").assign_coords(y=("y", LATITUDES, {"units": "m"}))),
        "no variable with latitude and longitude",
    ),
    "not degrees": (lambda: open_gridded(FIELD.assign_coords(latitude=1000 * LATITUDES)), "50000 to 53000, not valid"),
    "unknown variable": (lambda: open_gridded(FIELD, "rain"), "no variable 'rain'; choose `variable` from t2m"),
    "several variables": (lambda: open_gridded(xr.Dataset({"a": FIELD, "b": FIELD})), "several variables, a, b; "),
    "another dimension": (
        lambda: open_gridded(FIELD.expand_dims(level=[1, 2])), r"t2m has further dimensions \{'level': 2\}; select"
    ),
    "times that are not dates": (lambda: open_gridded(FIELD.assign_coords(time=range(6))), "times as dates"),
    "empty region": (lambda: open_gridded(FIELD, region=(0, 9, 0, 9)), "no data in region.*covers latitude 50 to 53"),
    "empty period": (lambda: open_gridded(FIELD, period=("2018", "2018")), "no data in period.*time 2019-03-01 00:00"),
    "not a date": (lambda: open_gridded(FIELD, period=("x", "y")), r"two dates such as .* got \('x', 'y'\)"),
    "period without time": (lambda: open_gridded(GLOBE, period=("2018", "2018")), "no dates, so `period`"),
    "points: no coordinates": (lambda: open_points(TABLE[["time", "value"]]), "no latitude and no longitude.*time, "),
    "points: unknown variable": (lambda: open_points(TABLE, "rain"), "no column 'rain'; choose `variable` from value"),
    "points: several variables": (lambda: open_points(TABLE.assign(b=1)), "several columns of values, value, b; "),
    "points: no numbers": (lambda: open_points(TABLE.drop(columns="value")), "no column of values"),
    "points: a word among numbers": (
        lambda: open_points(TABLE.assign(value=["281", "warm", "cold"])), "column value has the value 'warm', which is"
    ),
    "points: a word for a place": (
        lambda: open_points(TABLE.assign(latitude=["50", "51N", "52"])), "value '51N', which .*; give degrees, neg"
    ),
    "points: dates of another order": (
        lambda: open_points(TABLE.assign(time="01/03/2019")), "not dates such as 2019-03-01 .*; got '01/03/2019'$"
    ),
    "forecasts": (
        lambda: open_gridded(FIELD.expand_dims(step=pd.to_timedelta([0, 6], "h"), axis=1).pipe(
            lambda f: f.assign_coords(valid_time=f.time + f.step))), r"dimensions \{'step': 2\}; .*\.isel\(step=0\)"
    ),
    "points: a word for an elevation": (
        lambda: open_points(TABLE.assign(elevation=[1, "high", None])), "column elevation has the value 'high', which"
    ),
    "points: empty region": (lambda: open_points(TABLE, region=(0, 9, 0, 9)), "no data in region.*latitude 50 to 52"),
    "points: empty period": (lambda: open_points(FIELD, period=("2018", "2018")), "no data in period.*2019-03-01"),
    "points: period without time": (lambda: open_points(TABLE.drop(columns="time"), period=("1", "2")), "no dates"),
    "points: nothing but NaN": (lambda: open_points(TABLE.assign(value=np.nan)), "has no rows with a value"),
    "points: times are numbers": (lambda: open_points(TABLE.assign(time=[1, 2, 3])), r"times are numbers.* \[1\]"),
    "points: times are words": (lambda: open_points(TABLE.assign(time=["a", "b", "c"])), "times are not dates"),
    "points: not degrees": (lambda: open_points(TABLE.assign(latitude=500)), "latitude ranges from 500 to 500, not"),
    "elevation: many times": (lambda: elevation_at(FIELD.drop_attrs(), 0, 0), "one field of at least 2 × 2"),
    "elevation: not metres": (lambda: elevation_at(FIELD[:1], 0, 0), "'K' and 'm' differ"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"region": (53, 50, 0, 9)}, r"with south below north; got \(53, 50, 0, 9\)"),
        ({"period": ("2019-03-02", "2019-03-01")}, "must begin before it ends; got 2019-03-02 to 2019-03-01"),
    ],
)
def test_regions_and_periods_the_wrong_way_round_raise(part: dict[str, Any], message: str) -> None:
    for read, source in ((open_gridded, FIELD), (open_points, TABLE)):
        with pytest.raises(ValueError, match=message):
            read(source, **part)


@pytest.mark.parametrize("case", WRONG)
def test_an_error_says_what_was_found(case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=f"the given.*{message}|period must be {message}"):
        call()


def test_an_error_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for reader in (open_gridded, open_points):
        for name in ("a.nc", "a.csv"):
            with pytest.raises(FileNotFoundError, match=f"{tmp_path / name} does not exist"):
                reader(tmp_path / name)
        with pytest.raises(ValueError, match=f"{tmp_path} is a directory, but not a Zarr group"):
            reader(tmp_path)
        (tmp_path / "text.nc").write_text("text")
        with pytest.raises(ValueError, match=r"text.nc is not NetCDF, GRIB or Zarr: it begins with b'text'"):
            reader(tmp_path / "text.nc")
        (tmp_path / "cut.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(9))
        with pytest.raises(OSError, match=r"cut.nc is damaged"):
            reader(tmp_path / "cut.nc")
        (tmp_path / "field.grib").write_bytes(b"GRIB")
        monkeypatch.setitem(sys.modules, "cfgrib", None)
        with pytest.raises(ImportError, match=r"field.grib is a GRIB.*aenp\[environment\]"):
            reader(tmp_path / "field.grib")
    (tmp_path / "empty.csv").write_text("")
    TABLE.to_csv(tmp_path / "wide.csv", encoding="utf-16")
    with pytest.raises(ValueError, match=r"wide.csv is not text in UTF-8; save it in that encoding"):
        open_points(tmp_path / "wide.csv")
    with pytest.raises(ValueError, match=r"empty.csv is not a table"):
        open_points(tmp_path / "empty.csv")
