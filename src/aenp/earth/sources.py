"""What a file or data set holds: its variables, where its coordinates are, their dates, and what is missing."""

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cftime  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import xarray as xr
from cf_xarray.criteria import coordinate_criteria
from xarray.indexes import PandasMultiIndex

from aenp.checks import LIMIT

NAMES = {
    "latitude": ("latitude", "lat", "nav_lat", "y"),
    "longitude": ("longitude", "lon", "long", "lng", "nav_lon", "x"),
    "time": ("valid_time", "time", "date", "datetime", "timestamp", "xtime"),
    "elevation": ("elevation", "elev", "altitude", "alt", "orog"),
}
# cf_xarray's "vertical" would take the height of a thermometer above the ground for an elevation.
CRITERIA = {
    **coordinate_criteria,
    "elevation": {"standard_name": ("surface_altitude", "height_above_mean_sea_level", "altitude")},
}
TEMPERATURES = {"t2m", "2t", "t2", "tas", "tair", "air", "temp", "temperature", "tmean"}
"Names of one variable in different products."
IDENTIFIER = re.compile(
    r"year|month|day|doy|hour|minute|unnamed: \d+|index|[fgo]id|objectid|code|wmo|usaf|wban|station|stn|site|"
    r"(.*[\W_])?id|(wmo|stations?|stn|sta|sou|site|sensor|platform|gauge|ghcn)[\W_]*(id|no|nr|num|number|code|index)",
    re.IGNORECASE,
)
"Names of columns that number stations, rows or parts of a date; those of DWD, ECA&D and GHCN too."
TABLES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
"How the names of files with tables end."
OF_MAP = ("grid_", "projection_")
"How standard names of coordinates on a map or from a rotated pole begin."
DESCRIBING = ("bounds", "climatology", "grid_mapping", "cell_measures", "ancillary_variables")
"Attributes by which a variable names others that describe it."
FILLS = (np.inf, -np.inf, 9.969209968386869e36, 1e35, -1e35, 1e30, -1e30, 1e20, -1e20, 99999.0, -99999.0, -32768.0,
         -32767.0, 32767.0, -9999.9, 9999.9, -9999.0, 9999.0, -999.9, 999.9, -999.0, -99.99, -99.9, -99.0)  # fmt: skip
"What files hold in place of missing values, the largest first."
READ_FROM = "read_from"
"Attribute of tables and data sets that tells what they were read from, for messages."
EPOCH = np.datetime64("1970-01-01")

FieldLike = str | os.PathLike[str] | xr.Dataset | xr.DataArray


class NoSuchVariable(ValueError):
    """The data do not hold the variable asked for."""


class NoValues(ValueError):
    """The data hold the variable, but no value of it."""


def open_dataset(source: FieldLike) -> xr.Dataset:
    """The data set in `source`, opened but not read."""
    if isinstance(source, xr.DataArray):
        source = source.to_dataset(name="value" if source.name is None else source.name)
    if isinstance(source, xr.Dataset):
        return source.reset_index([d for d in source.dims if isinstance(source.xindexes.get(d), PandasMultiIndex)])
    is_file = isinstance(source, str | os.PathLike)
    if is_file and not Path(source).exists():
        raise FileNotFoundError(f"{source} does not exist")
    if isinstance(source, pd.DataFrame) or (is_file and str(source).lower().endswith(TABLES)):
        raise ValueError(
            f"{describe(source)} is a table, where a field on a grid is needed; give that, or add columns to the data"
        )
    if not is_file:
        raise ValueError(
            f"{describe(source)} is neither a table nor a field; give a pandas DataFrame, an xarray object or a file"
        )
    path = Path(source)
    options = _backend(path)
    try:
        with warnings.catch_warnings(action="ignore", category=xr.SerializationWarning):  # of dates before 1678
            return xr.open_dataset(path, chunks="auto", decode_timedelta=False, **options)
    except OSError as error:
        raise OSError(f"{path} is damaged or unreadable: {error}") from error
    except ValueError as error:
        told = " ".join(str(error).split()).rstrip(".")
        raise ValueError(f"{path} cannot be decoded: {told}; open it with xarray, and give the result") from error


def _backend(path: Path) -> dict[str, Any]:
    """xarray's options for the file, chosen by its first bytes."""
    if path.is_dir():
        if any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zmetadata")):
            return {"engine": "zarr", "backend_kwargs": {"consolidated": False}}
        raise ValueError(
            f"{path} is a directory, but not a Zarr group; give a file, or open several with xr.open_mfdataset first"
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
    if not start:
        raise ValueError(f"{path} is empty; write or download it again")
    raise ValueError(f"{path} is not NetCDF, GRIB or Zarr: it begins with {start!r}. A table must end in .csv")


def describe(source: object) -> str:
    """What to call the source in messages."""
    return origin(source) or f"the given {type(source).__name__}"


def origin(source: object) -> str | None:
    """What the source was read from: the file itself, or that of a table or data set; None if there is none."""
    if isinstance(source, str | os.PathLike):
        return str(source)
    known = source.attrs.get(READ_FROM) if isinstance(source, pd.DataFrame | xr.Dataset | xr.DataArray) else None
    return None if known is None else str(known)


def find(variables: Mapping[Any, xr.Variable], kind: str) -> str | None:
    """The name of the coordinate of this kind: by its CF attributes, otherwise by its own name."""
    named = {str(name): values for name, values in variables.items() if _may_be(values, kind)}
    for attribute in ("standard_name", "units", "_CoordinateAxisType"):
        expected = {value.lower() for value in CRITERIA[kind].get(attribute, ())}
        for name, values in named.items():
            if str(values.attrs.get(attribute)).lower() in expected:
                return name
    lower = {name.lower(): name for name, values in named.items() if not _is_of_map(name, values, kind)}
    along = [name for name, values in named.items() if kind == "time" and _is_of_steps(name, values)]
    return next((lower[usual] for usual in NAMES[kind] if usual in lower), along[0] if len(along) == 1 else None)


def _may_be(values: xr.Variable, kind: str) -> bool:
    if not isinstance(values.dtype, np.dtype):
        return False
    if kind == "time":
        return np.issubdtype(values.dtype, np.datetime64) or _is_of_model(values)
    return np.issubdtype(values.dtype, np.number)


BEGUN = re.compile(r"init|ref|forecast", re.IGNORECASE)
"How names of the dates at which forecasts began themselves begin."


def _is_of_steps(name: str, times: xr.Variable) -> bool:
    """Whether these dates have a dimension of their own, and are not those at which forecasts began."""
    begun = times.attrs.get("standard_name") == "forecast_reference_time" or BEGUN.match(name)
    return times.dims == (name,) and not begun


def _is_of_model(times: xr.DataArray | xr.Variable) -> bool:
    """Whether these are dates in a calendar of climate models, or too far from now for others."""
    if times.dtype != object or not times.size:
        return False
    return isinstance(times.isel(dict.fromkeys(times.dims, 0)).values.item(), cftime.datetime)


def common_dates(times: xr.DataArray) -> xr.DataArray:
    """The times in the common calendar: the same date or, from a year of 360 days, the day as far into the year.

    So they keep their order and season, each day of such a year has a day of its own, and 29 February in a year
    that has none is 1 March.
    """
    if not _is_of_model(times):
        return times
    dates = [_common_date(each) for each in times.values.ravel()]
    return xr.DataArray(np.array(dates, "datetime64[us]").reshape(times.shape), dims=times.dims, attrs=times.attrs)


def _common_date(time: Any) -> np.datetime64:
    year = np.datetime64(time.year - 1970, "Y")
    if time.calendar == "360_day":
        first, following = (each.astype("datetime64[D]") for each in (year, year + 1))
        day = first + round((following - first).astype(int) * time.dayofyr / 360) - 1
    else:
        day = (year.astype("datetime64[M]") + time.month - 1).astype("datetime64[D]") + time.day - 1
    clock = timedelta(hours=time.hour, minutes=time.minute, seconds=time.second, microseconds=time.microsecond)
    return day + np.timedelta64(clock)


def _is_of_map(name: str, values: xr.Variable, kind: str) -> bool:
    """Whether this is x or y of a map projection or a scan, or a latitude or longitude from a rotated pole."""
    units, standard_name = (str(values.attrs.get(key, "")).lower() for key in ("units", "standard_name"))
    is_angle = units.startswith("deg") or (_in_radians(values.attrs) and name.lower() not in ("x", "y"))
    is_other = "units" in CRITERIA[kind] and bool(units) and not is_angle
    return is_other or standard_name.startswith(OF_MAP)


def _in_radians(attrs: Mapping[Any, Any]) -> bool:
    return str(attrs.get("units")).lower().startswith("rad")


def with_coordinates(dataset: xr.Dataset, *kinds: str) -> xr.Dataset:
    """The data set, with coordinates that are stored as variables turned into coordinates, and radians into degrees."""
    found = (find(dataset.data_vars.variables, kind) for kind in kinds if _lacks(dataset, kind))
    dataset = as_coordinates(dataset, [name for name in found if name is not None])
    names = (find(dataset.coords.variables, kind) for kind in ("latitude", "longitude"))
    angles = [dataset[name] for name in names if name and _in_radians(dataset[name].attrs)]
    degrees = {each.name: (each.dims, np.rad2deg(each.values), each.attrs | {"units": "degrees"}) for each in angles}
    return dataset.assign_coords(degrees) if degrees else dataset


def as_coordinates(dataset: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    """The data set with these variables as coordinates."""
    return dataset.set_coords(names) if names else dataset


def _lacks(dataset: xr.Dataset, kind: str) -> bool:
    """Whether no coordinate is of this kind, or only one such as `x`, which may count the cells of a curved grid."""
    name = find(dataset.coords.variables, kind)
    return name is None or name.lower() in ("x", "y")


def pick(dataset: xr.Dataset, variable: str | None, where: str) -> xr.DataArray:
    """The variable with this name, this CF standard name, or this name in another product, with common dates."""
    usable = _usable(dataset, where)
    return _readable(usable[_choice(dataset, usable, variable, where)])


def names_of(dataset: xr.Dataset, where: str) -> list[str]:
    """The names of all variables with latitude and longitude, but for those that describe others or number stations."""
    usable, describing = _usable(dataset, where), _describing(dataset)
    return [name for name in usable if name not in describing and not is_identifier(name)] or list(usable)


def is_identifier(name: object) -> bool:
    """Whether this is the name of what numbers stations, rows or parts of a date, and so of no values."""
    return IDENTIFIER.fullmatch(str(name)) is not None


def _usable(dataset: xr.Dataset, where: str) -> dict[str, xr.DataArray]:
    """The variables that are numbers with latitude and longitude."""
    placed = {str(name): values for name, values in dataset.data_vars.items() if _is_placed(values)}
    if not placed:
        names = {str(name): str(values.attrs.get("standard_name", "")) for name, values in dataset.coords.items()}
        of_map = [name for name, standard_name in names.items() if standard_name.startswith(OF_MAP)]
        advice = (
            f"{', '.join(of_map)} are of a map projection or a rotated pole; add latitude and longitude of each cell"
            if of_map
            else "Name the coordinates latitude and longitude, or give them the units degrees_north and degrees_east; "
            "they must be numbers"
        )
        raise ValueError(f"{where} has no variable with latitude and longitude; it has {_shapes(dataset)}. {advice}")
    usable = {name: values for name, values in placed.items() if values.dtype.kind in "fiub"}
    if not usable:
        raise ValueError(f"{where} has no numbers, but {_types(placed)}; convert them with .astype(float)")
    return usable


def _choice(dataset: xr.Dataset, usable: Mapping[str, xr.DataArray], variable: str | None, where: str) -> str:
    """The name of the variable that is meant."""
    if variable is None:
        names = names_of(dataset, where)
        if len(names) > 1:
            raise ValueError(f"{where} has several variables, {', '.join(names)}; choose one with `variable`")
        return names[0]
    if variable in usable:
        return variable
    matches = [name for name, v in usable.items() if any(same_variable(variable, n) for n in _all_names(name, v))]
    if len(matches) != 1:
        raise NoSuchVariable(f"{where} has no variable {variable!r}; choose `variable` from {', '.join(usable)}")
    return matches[0]


def _describing(dataset: xr.Dataset) -> set[str]:
    """The variables that only describe others, such as bounds of cells, their areas, or a map projection."""
    attributes = [values.attrs | values.encoding for values in dataset.variables.values()]
    return {name for each in attributes for key in DESCRIBING for name in str(each.get(key, "")).split()}


def _readable(field: xr.DataArray) -> xr.DataArray:
    """The field with common dates, and with numbers whose sums do not overflow."""
    time = find(field.coords.variables, "time")
    if time is not None and field[time].dtype == object:
        field = field.assign_coords({time: common_dates(field[time])})
    return field.astype(np.float32) if field.dtype == np.float16 else field


def further_dimensions(where: str, name: Any, sizes: Mapping[str, int]) -> ValueError:
    """The error for a field with dimensions besides latitude, longitude and time."""
    first = next(iter(sizes))
    dated = ", and give times as dates" if any(each.lower() in NAMES["time"] for each in sizes) else ""
    return ValueError(
        f"{where}: {name} has further dimensions {dict(sizes)}; select one index of each, as in .isel({first}=0){dated}"
    )


def only_covariates(where: str, names: Sequence[str]) -> NoValues:
    """The error for data that hold covariates and nothing else."""
    return NoValues(
        f"{where} has no values besides the covariates {', '.join(names)}; add what is to be predicted or, if that is "
        "one of these, leave it out of the covariates"
    )


def _is_placed(values: xr.DataArray) -> bool:
    return all(find(values.coords.variables, kind) is not None for kind in ("latitude", "longitude"))


def _shapes(dataset: xr.Dataset) -> str:
    shapes = (f"{name}({', '.join(map(str, values.dims))})" for name, values in dataset.variables.items())
    return ", ".join(shapes) or "nothing"


def _types(variables: Mapping[str, xr.DataArray]) -> str:
    return ", ".join(f"{name} of type {values.dtype}" for name, values in variables.items())


def _all_names(name: str, values: xr.DataArray) -> tuple[str, ...]:
    return name, str(values.attrs.get("standard_name", "")), str(values.attrs.get("GRIB_shortName", ""))


def same_variable(a: str, b: str) -> bool:
    """Whether two names mean the same variable, such as `t2m` and `Tair`."""
    return a.lower() == b.lower() or {a.lower(), b.lower()} <= TEMPERATURES


def without_fills(values: xr.DataArray, where: str, possible: float = 0.0) -> xr.DataArray:
    """The values with NaN in place of undeclared fill values, and a warning that names these.

    Infinite numbers are such values, and the usual ones where they are huge, or further from the others than these are
    from each other and from zero. None are up to `possible`, the size of proper values: −99 is a longitude.
    """
    low, high = _ends(values)
    if not np.isclose([[low], [high]], FILLS, rtol=1e-5, atol=0).any():
        return values
    for fill in FILLS:
        if abs(fill) <= possible or not np.isclose((low, high), fill, rtol=1e-5, atol=0).any():
            continue
        rest = values.where(np.isfinite(values) if np.isinf(fill) else abs(values - fill) > 1e-5 * abs(fill))
        smallest, largest = _ends(rest)
        away = max(smallest - fill, fill - largest)
        if abs(fill) > LIMIT or away > max(largest - smallest, abs(smallest), abs(largest)):
            others = "there are no others" if np.isnan(away) else f"the others are {smallest:g} to {largest:g}"
            count = int(values.count() - rest.count())
            warnings.warn(f"{where}: {count} values of {fill:g} are taken as missing; {others}", stacklevel=2)
            values, low, high = rest, smallest, largest
    return values


def _ends(values: xr.DataArray) -> tuple[float, float]:
    """The smallest and the largest value that is not NaN."""
    if not values.size:
        return np.nan, np.nan
    return float(np.fmin.reduce(values.values, axis=None)), float(np.fmax.reduce(values.values, axis=None))
