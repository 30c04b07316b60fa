"""What a file or data set holds: its variable, where its coordinates are, in which units, and the part asked for."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool
from numpy import ndarray

NAMES = {
    "latitude": ("latitude", "lat", "nav_lat", "y"),
    "longitude": ("longitude", "lon", "long", "lng", "nav_lon", "x"),
    "time": ("valid_time", "time", "date", "datetime"),
    "elevation": ("elevation", "elev", "altitude", "alt", "orog"),
}
STANDARD_NAMES = {
    "latitude": ("latitude",),
    "longitude": ("longitude",),
    "time": ("time",),
    "elevation": ("surface_altitude", "height_above_mean_sea_level", "altitude"),
}
DEGREES = {
    "latitude": ("degrees_north", "degree_north", "degrees_n", "degree_n"),
    "longitude": ("degrees_east", "degree_east", "degrees_e", "degree_e"),
}
ALIASES = ({"t2m", "2t", "t2", "tas", "tair", "air", "temp", "temperature", "tmean"},)
"Names of one thing in different products."
UNITS = (
    {"k", "kelvin", "kelvins", "degk", "deg_k", "degrees_k", "degrees_kelvin"},
    {"c", "degc", "deg_c", "°c", "celsius", "degree_celsius", "degrees_celsius", "degrees_c"},
    {"f", "degf", "deg_f", "°f", "fahrenheit", "degrees_fahrenheit", "degrees_f"},
    {"m", "metre", "metres", "meter", "meters"},
)
"Spellings of one unit."
TOLERANCE = 1e-4
"Degrees by which a point may lie outside a region: coordinates are often rounded to 32 bits."

Source = str | os.PathLike[str] | xr.Dataset | xr.DataArray
Region = tuple[float, float, float, float]
Period = tuple[str, str]


def open_dataset(source: Source) -> xr.Dataset:
    """The data set behind `source`, not yet read."""
    if isinstance(source, xr.Dataset):
        return source
    if isinstance(source, xr.DataArray):
        return source.to_dataset(name="value" if source.name is None else source.name)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    options = _backend(path)
    try:
        return xr.open_dataset(path, chunks="auto", decode_timedelta=False, **options)
    except OSError as error:
        raise OSError(f"{path} is damaged or unreadable: {error}") from error


def _backend(path: Path) -> dict[str, Any]:
    """Options by which xarray reads the file, told by its first bytes."""
    if path.is_dir():
        if any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata")):
            return {"engine": "zarr", "backend_kwargs": {"consolidated": False}}
        raise ValueError(
            f"{path} is a directory, but no Zarr group; give a file, or what xr.open_mfdataset makes of many"
        )
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"GRIB":
        if find_spec("cfgrib") is None:
            message = f"{path} is a GRIB file, which needs cfgrib: pip install 'aenp[environment]'"
            raise ModuleNotFoundError(message, name="cfgrib")
        return {"engine": "cfgrib", "backend_kwargs": {"indexpath": ""}}
    if start[:3] == b"CDF" or start == b"\x89HDF":
        return {}
    raise ValueError(f"{path} is no NetCDF, GRIB or Zarr: it begins with {start!r}. A table of points must end in .csv")


def describe(source: object) -> str:
    """What to call the source in messages."""
    return str(source) if isinstance(source, str | os.PathLike) else f"the given {type(source).__name__}"


def find(variables: Mapping[Any, xr.DataArray], kind: str) -> str | None:
    """The name of the coordinate of this kind: by CF's standard name, then by its units, then by usual names."""
    named = {str(name): values for name, values in variables.items() if _may_be(values, kind)}
    for name, values in named.items():
        if values.attrs.get("standard_name") in STANDARD_NAMES[kind]:
            return name
    for name, values in named.items():
        if str(values.attrs.get("units", "")).lower() in DEGREES.get(kind, ()):
            return name
    lower = {name.lower(): name for name, values in named.items() if not _is_length(values, kind)}
    return next((lower[usual] for usual in NAMES[kind] if usual in lower), None)


def _may_be(values: xr.DataArray, kind: str) -> bool:
    return np.issubdtype(values.dtype, np.datetime64 if kind == "time" else np.number)


def _is_length(values: xr.DataArray, kind: str) -> bool:
    """Whether units say that this is no angle, as of the x and y of a map projection."""
    units = str(values.attrs.get("units", ""))
    return kind in DEGREES and bool(units) and not units.lower().startswith("deg")


def with_coordinates(dataset: xr.Dataset, *kinds: str) -> xr.Dataset:
    """The data set, where coordinates that are stored as variables are coordinates."""
    found = (find(dataset.data_vars, kind) for kind in kinds if find(dataset.coords, kind) is None)
    return dataset.set_coords([name for name in found if name is not None])


def pick(dataset: xr.Dataset, variable: str | None, where: str) -> xr.DataArray:
    """The variable asked for, by its own name, its CF name or that of the same thing in another product."""
    usable = {str(name): values for name, values in dataset.data_vars.items() if _is_placed(values)}
    if not usable:
        raise ValueError(
            f"{where} has no variable with latitude and longitude; it has {_shapes(dataset)}. "
            "Name the coordinates latitude and longitude, or give them the units degrees_north and degrees_east"
        )
    if variable is None:
        if len(usable) > 1:
            raise ValueError(f"{where} has several variables, {', '.join(usable)}; choose one by `variable`")
        return next(iter(usable.values()))
    if variable in usable:
        return usable[variable]
    matches = [v for name, v in usable.items() if any(same_variable(variable, n) for n in _all_names(name, v))]
    if len(matches) != 1:
        raise ValueError(f"{where} has no variable {variable!r}; choose `variable` from {', '.join(usable)}")
    return matches[0]


def _is_placed(values: xr.DataArray) -> bool:
    return all(find(values.coords, kind) is not None for kind in ("latitude", "longitude"))


def _shapes(dataset: xr.Dataset) -> str:
    shapes = (f"{name}({', '.join(map(str, values.dims))})" for name, values in dataset.variables.items())
    return ", ".join(shapes) or "nothing"


def _all_names(name: str, values: xr.DataArray) -> tuple[str, ...]:
    return name, str(values.attrs.get("standard_name", "")), str(values.attrs.get("GRIB_shortName", ""))


def same_variable(a: str, b: str) -> bool:
    """Whether two names are those of one thing, such as `t2m` and `Tair`."""
    return _same(a, b, ALIASES)


def same_units(a: str | None, b: str | None, what: str) -> None:
    """Nothing if the units are the same or one of them is not known; an error else.

    Args:
        a: units such as "K".
        b: units such as "degC".
        what: which data are to be joined, for the message.
    """
    if a and b and not _same(a.strip(), b.strip(), UNITS):
        raise ValueError(f"{what}: the units {a!r} and {b!r} differ; convert the values of one and change its units")


def _same(a: str, b: str, groups: tuple[set[str], ...]) -> bool:
    a, b = a.lower(), b.lower()
    return a == b or any(a in group and b in group for group in groups)


def units_of(attributes: Mapping[Any, Any]) -> str | None:
    """The units, where they are known."""
    units = attributes.get("units")
    return None if units in (None, "", "unknown") else str(units)


def wrap(longitude: Any, region: Region | None = None) -> Any:
    """λ − 360 k: from −180 to 180 or, in a region, from its western border once round the globe."""
    start = -180.0 if region is None or _width(region) >= 360 else wrap(region[2]) - TOLERANCE
    turns = np.floor((longitude - start) / 360)
    return longitude - (360 * turns).astype(getattr(longitude, "dtype", float))


def _width(region: Region) -> float:
    west, east = region[2:]
    return 360.0 if east - west >= 360 else (east - west) % 360


def inside(kind: str, values: ndarray, region: Region | None, period: Period | None) -> Bool[ndarray, "..."]:
    """Which coordinates of this kind, with wrapped longitudes, are in the region and period; borders belong to it."""
    if kind == "time" and period is not None:
        first, last = _instants(period)
        return (values >= first) & (values <= last)
    if kind == "latitude" and region is not None:
        return (values >= region[0] - TOLERANCE) & (values <= region[1] + TOLERANCE)
    if kind == "longitude" and region is not None and _width(region) < 360:
        return values <= wrap(region[2]) + _width(region) + TOLERANCE
    return np.ones(values.shape, bool)


def _instants(period: Period) -> tuple[np.datetime64, np.datetime64]:
    """The first and last instant; a date such as 2019-03 stands for all of that month."""
    try:
        first, last = pd.Period(period[0]).start_time, pd.Period(period[1]).end_time
    except ValueError:
        raise ValueError(f"period must be two dates such as ('2019-03-01', '2019-03-15'); got {period}") from None
    return first.to_datetime64(), last.to_datetime64()


def check_degrees(latitude: ndarray, longitude: ndarray, where: str) -> None:
    """An error if these cannot be degrees."""
    for kind, values, low, high in (("latitude", latitude, -90, 90), ("longitude", longitude, -360, 360)):
        if values.size and (np.nanmin(values) < low - TOLERANCE or np.nanmax(values) > high + TOLERANCE):
            found = f"{np.nanmin(values):.6g} to {np.nanmax(values):.6g}"
            raise ValueError(f"{where}: its {kind} is from {found}, which are no degrees; give coordinates in degrees")


def no_data(where: str, region: Region | None, period: Period | None, coordinates: Mapping[str, Any]) -> ValueError:
    """The error of a region or period without data."""
    asked = [f"region {region} (south, north, west, east)"] * (region is not None)
    asked += [f"period {period}"] * (period is not None)
    part = f" in {' and '.join(asked)}" if asked else ""
    return ValueError(f"{where} has no data{part}; it covers {_extent(coordinates) or 'nothing but missing values'}")


def _extent(coordinates: Mapping[str, Any]) -> str:
    """Where and when data are."""
    values = {name: np.asarray(v) for name, v in coordinates.items() if np.size(v)}
    text = [f"{k} {np.nanmin(v):.6g} to {np.nanmax(v):.6g}" for k, v in values.items() if k != "time"]
    if "time" in values:
        times = pd.to_datetime(values["time"].ravel())
        text.append(f"time {times.min():%Y-%m-%d %H:%M} to {times.max():%Y-%m-%d %H:%M}")
    return ", ".join(text)
