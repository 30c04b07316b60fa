"""Tiny files with the names and the forms of the real climate data, so that tests need nothing but a clone."""

import os
from pathlib import Path

import eccodes
import numpy as np
import pandas as pd
import xarray as xr
from numpy import ndarray

from aenp.experiments.temperature.effects import LAND, TOPOGRAPHY
from aenp.experiments.temperature.grid import ITALY
from aenp.experiments.temperature.points import FILE as STATIONS

Facts = tuple[str, str, tuple[int, int, int], tuple[float, float, float, float]]
"Variable, units, shape, and south, north, west and east."

UK, WFDE5, GLOBE = "era5_uk_0p25_hourly_2019-03", "wfde5_uk_0p5_hourly_2017-01.nc", "era5_global_1deg_7hourly_1week.nc"
COARSE_TOPOGRAPHY = "cdo_topo_0p5deg.nc"
FIELDS: dict[str, Facts] = {
    ITALY[0]: ("t2m", "K", (61, 43, 48), ITALY[1]),
    f"{UK}.grib": ("t2m", "K", (4, 33, 49), (50, 58, -10, 2)),
    f"{UK}.nc": ("t2m", "K", (4, 33, 49), (50, 58, -10, 2)),
    WFDE5: ("Tair", "K", (24, 20, 28), (50.25, 59.75, -10.75, 2.75)),
    GLOBE: ("t2m", "K", (2, 7, 12), (-90, 90, -180, 150)),
    TOPOGRAPHY: ("topo", "m", (1, 180, 360), (-89.5, 89.5, -179.5, 179.5)),
    COARSE_TOPOGRAPHY: ("topo", "m", (1, 120, 240), (-89.25, 89.25, -179.25, 179.25)),
    LAND: ("lsm", "(0 - 1)", (1, 181, 360), (-90, 90, -180, 179)),
}
"What readers should find in the tiny files."
TIMES = {ITALY[0]: ("2022-05-01", "1D"), WFDE5: ("2017-01-02T12", "1h"), GLOBE: ("2026-03-25", "7h")} | {
    f"{UK}.{suffix}": ("2019-03-01", "1h") for suffix in ("grib", "nc")
}
"First time and step of each field that has times."


def real_data() -> Path | None:
    """Where the real files are: AENP_DATA, or shared/data beside the checkout; None if there are none."""
    named = os.environ.get("AENP_DATA")
    directory = Path(named) if named else Path(__file__).parents[2] / "shared" / "data"
    if named and not directory.is_dir():
        raise FileNotFoundError(f"AENP_DATA is {named}, which is not a directory; unset it to omit the real data")
    return directory if directory.is_dir() else None


def write_all(out: Path) -> None:
    """Every file that the experiments with temperatures read, and further forms for the readers."""
    for name in FIELDS:
        if name.endswith(".grib"):
            write_grib(field(name), out / name)
        else:
            stored(name).to_netcdf(out / name)
    stations().to_netcdf(out / STATIONS)


def height(latitude: xr.DataArray, longitude: xr.DataArray) -> xr.DataArray:
    """Metres above sea level: hills of 30 degrees, and a sea as deep as they are high."""
    return 800 * np.sin(np.radians(12 * latitude)) * np.cos(np.radians(12 * longitude))


def temperature(time: xr.DataArray, latitude: xr.DataArray, longitude: xr.DataArray) -> xr.DataArray:
    """Kelvin: colder in the north and higher up, with weather that moves east."""
    days = (time - np.datetime64("2000-01-01", "ns")) / np.timedelta64(1, "D")
    weather = 4 * np.sin(days - np.radians(10 * longitude) + np.radians(latitude))
    return 288 + weather - 0.5 * (latitude - 45) - 0.0065 * height(latitude, longitude).clip(min=0)


def field(name: str) -> xr.DataArray:
    """The field as readers should return it."""
    variable, units, (steps, rows, columns), (south, north, west, east) = FIELDS[name]
    latitude = xr.DataArray(np.linspace(south, north, rows), dims="latitude")
    longitude = xr.DataArray(np.linspace(west, east, columns), dims="longitude")
    coords = {"latitude": latitude, "longitude": longitude}
    if variable in ("topo", "lsm"):
        metres = height(latitude, longitude)
        values = metres.round() if variable == "topo" else (metres > 0).astype(float)
    else:
        first, step = TIMES[name]
        coords["time"] = xr.DataArray(pd.date_range(first, periods=steps, freq=step, unit="ns"), dims="time")
        values = temperature(coords["time"], latitude, longitude).transpose("time", "latitude", "longitude").round(2)
    if name == WFDE5:
        values = values.where(height(latitude, longitude) > 0)
    return values.assign_coords(coords).rename(variable).assign_attrs(units=units)


def stored(name: str) -> xr.DataArray:
    """The field as its product stores it: most from north to south, some from Greenwich eastwards, some as lat, lon."""
    values = field(name)
    if name in (GLOBE, LAND):
        values = values.assign_coords(longitude=values.longitude % 360).sortby("longitude")
    if name not in (WFDE5, COARSE_TOPOGRAPHY):
        values = values.isel(latitude=slice(None, None, -1))
    return values.rename(latitude="lat", longitude="lon") if name in (WFDE5, TOPOGRAPHY, COARSE_TOPOGRAPHY) else values


def stations() -> xr.Dataset:
    """Stations near nodes over Europe, some of which share one, in five Julys and a December, with gaps."""
    rng = np.random.default_rng(0)
    nodes = np.stack(np.meshgrid(np.arange(36.0, 70, 1.5), np.arange(-9.0, 44, 2), indexing="ij"), -1).reshape(-1, 2)
    nodes = np.concatenate([nodes, nodes[: len(nodes) // 10]])
    days = [pd.date_range(f"{year}-07-01", f"{year}-07-31", unit="ns") for year in range(2006, 2011)]
    days.insert(4, pd.date_range("2009-12-01", "2009-12-31", unit="ns"))
    time = xr.DataArray(np.concatenate(days), dims="time")
    here = nodes + rng.uniform(-0.1, 0.1, nodes.shape)
    node, place = ([xr.DataArray(each, dims="point") for each in where.T] for where in (nodes, here))
    kelvin = temperature(time, *node).transpose("point", "time")
    celsius = kelvin - 273.15 + rng.normal(0, 0.5, kelvin.shape)
    values = {
        name: each.where(rng.random(each.shape) > 0.1).assign_attrs(units=units)
        for name, each, units in (("t2m_era5", kelvin, "K"), ("tmean_gsod", celsius, "degC"))
    }
    metres = height(*place).clip(min=0)
    coords = {"era_lat": node[0], "era_lon": node[1], "lat": place[0], "lon": place[1], "elev": metres, "time": time}
    return xr.Dataset(values).assign_coords(coords).assign_coords(elev_mean=height(*node).clip(min=0))


def write_grib(values: xr.DataArray, path: Path) -> None:
    """Temperatures `(time, latitude, longitude)`, ascending, as one GRIB message for each time, from north to south."""
    south, north = values.latitude.values[[0, -1]].tolist()
    west, east = values.longitude.values[[0, -1]].tolist()
    rows, columns = values.shape[1:]
    keys = {
        "Ni": columns,
        "Nj": rows,
        "latitudeOfFirstGridPointInDegrees": north,
        "latitudeOfLastGridPointInDegrees": south,
        "longitudeOfFirstGridPointInDegrees": west,
        "longitudeOfLastGridPointInDegrees": east,
        "iDirectionIncrementInDegrees": (east - west) / (columns - 1),
        "jDirectionIncrementInDegrees": (north - south) / (rows - 1),
        "shortName": "2t",
        "bitsPerValue": 24,
    }
    with path.open("wb") as file:
        for one in values:
            message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib2")
            for key, value in (keys | _moment(one.time.values)).items():
                eccodes.codes_set(message, key, value)
            eccodes.codes_set_values(message, one.values[::-1].astype(float).ravel())
            eccodes.codes_write(message, file)
            eccodes.codes_release(message)


def _moment(time: ndarray) -> dict[str, int]:
    """GRIB's keys for a time."""
    when = pd.Timestamp(time)
    return {"dataDate": int(when.strftime("%Y%m%d")), "dataTime": int(when.strftime("%H%M"))}


def write_slope(out: Path, first: str, last: str) -> None:
    """The experiments' files: 280 ± 8 K in 24 days of training, 285 K in the last four days, 250 m more each degree."""
    trained = np.datetime64(first, "ns") + np.arange(24) * np.timedelta64(1, "D")
    tested = np.datetime64(last, "ns") - np.arange(3, -1, -1) * np.timedelta64(1, "D")
    kelvin = np.concatenate([np.tile([272.0, 288.0], 12), np.full(4, 285.0)])
    days = xr.DataArray(kelvin, coords={"time": np.concatenate([trained, tested])})
    places = {"latitude": np.arange(37.0, 47.0), "longitude": np.arange(11.0, 19.0)}
    values = (days * xr.DataArray(np.ones((10, 8)), coords=places)).rename("t2m")
    values.to_netcdf(out / ITALY[0])
    points = values.stack(point=places).reset_index("point")
    points.rename("t2m_era5").rename(latitude="era_lat", longitude="era_lon").to_netcdf(out / STATIONS)
    around = {"latitude": np.arange(36.0, 61.0), "longitude": np.arange(5.0, 25.0)}
    rise = xr.DataArray(np.repeat(250.0 * np.arange(25)[:, None], 20, axis=1), coords=around, attrs={"units": "m"})
    rise.rename("topography").to_netcdf(out / TOPOGRAPHY)
    xr.ones_like(rise).drop_attrs().rename("land").to_netcdf(out / LAND)
