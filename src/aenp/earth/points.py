"""Scattered observations, such as those of stations, from tables and data sets, in one standard form."""

import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

from aenp.earth.regions import DEGREES, Period, Region, check_degrees, inside, no_data, wrap
from aenp.earth.sources import (
    NAMES,
    READ_FROM,
    TABLES,
    NoSuchVariable,
    NoValues,
    common_dates,
    describe,
    find,
    further_dimensions,
    is_identifier,
    names_of,
    only_covariates,
    open_dataset,
    origin,
    pick,
    same_variable,
    with_coordinates,
    without_fills,
)
from aenp.earth.units import converted, units_of

MAX_ROWS = 5e7
"The largest number of values of a data set that are read as points, some 2 GB."
COLUMNS = ("time", "latitude", "longitude", "elevation", "value")

TITLE = re.compile(r"\s*[\[(]([^\])]*)[\])]$")
"Units at the end of a column's title, as in `t2m [K]`."

DECIMAL = re.compile(r"\s*-?\d+,\d+\s*")
"A number with a decimal comma."

PointsLike: TypeAlias = str | os.PathLike[str] | pd.DataFrame | xr.Dataset | xr.DataArray


def open_points(
    source: PointsLike,
    variable: str | None = None,
    region: Region | None = None,
    period: Period | None = None,
    further: Sequence[str] = (),
) -> pd.DataFrame:
    """A row for each observation, without NaN: `latitude`, `longitude`, `value`, and `time` and `elevation` if known.

    Longitudes are in [−180, 180), or beyond 180 in a region across the date line; times are UTC, those of other
    calendars as `common_dates` tells. Several values of one time and place become their mean. `attrs` has the `name` of
    the variable, and its `units` and `long_name` if known, and `units_of` further columns.

    Args:
        source: a table, as CSV or in memory, with a row for each observation and columns such as `lat`, `lon`, `date`,
            or `year`, `month` and `day`, and `t2m [K]`, whose units may also be in `attrs["units"]`, by column if there
            are several; or a file or data set for xarray, scattered or gridded, with NaN where nothing was observed.
        variable: the name of the values, here or in another product; by default the only candidate, where numbers of
            stations do not count.
        region: south, north, west, east in degrees, borders included.
        period: first and last date, such as ("2019-03-01", "2019-03-15"), both included.
        further: names of further columns to keep, if there are any; they may hold NaN.
    """
    where = describe(source)
    if is_table(source):
        table = _from_table(source if isinstance(source, pd.DataFrame) else read_table(where), variable, where, further)
    else:
        table = _from_dataset(open_dataset(source), variable, region, period, where, further)
    if period is not None and "time" not in table:
        raise ValueError(f"{where} has no dates, so `period` cannot be used; leave it out")
    beside = ("elevation", *further)
    columns = {str(name): table[name].to_numpy() for name in table}
    for name in (name for name in columns if name != "time"):
        each = xr.DataArray(columns[name])
        columns[name] = without_fills(each, f"{name}s of {where}", DEGREES.get(name, 0.0)).values
    if undated := int((pd.isna(columns["time"]) & pd.notna(columns["value"])).sum()) if "time" in columns else 0:
        warnings.warn(f"{where}: {undated} values have no time and are left out", stacklevel=2)
    known = np.logical_and.reduce([pd.notna(values) for name, values in columns.items() if name not in beside])
    if not known.any():
        needed = ", a place and a time" if "time" in columns else " and a place"
        raise NoValues(f"{where} has no rows with a value of {table.attrs['name']}{needed}")
    columns = {name: values[known] for name, values in columns.items()}
    places = {name: columns[name] for name in COLUMNS[:3] if name in columns}
    check_degrees(places["latitude"], places["longitude"], where)
    columns["longitude"] = wrap(places["longitude"], region)
    keep = np.logical_and.reduce([inside(name, columns[name], region, period) for name in places])
    if not keep.any():
        raise no_data(where, region, period, places)
    chosen = pd.DataFrame({name: values[keep] for name, values in columns.items()})
    chosen.attrs = table.attrs
    once = each_once(chosen, where)
    once.attrs |= {READ_FROM: file} if (file := origin(source)) else {}
    return once


def joined(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Tables of one variable each as one: a column of its name for each, with NaN where it was not observed."""
    first, *others = (table.rename(columns={"value": name}) for name, table in tables.items())
    known = next(iter(tables.values())).attrs
    for other in others:
        first = first.merge(other, how="outer")
    first.attrs = {key: known[key] for key in ("units_of", READ_FROM) if key in known}
    return first


def check_units(source: PointsLike, names: Sequence[str]) -> None:
    """Raises an error if a table in memory has one unit for several variables."""
    units = source.attrs.get("units") if isinstance(source, pd.DataFrame) else None
    if isinstance(units, str) and len(names) > 1:
        raise ValueError(
            f"{describe(source)} has the units {units!r} for {' and '.join(names)}; give those of each, as in "
            f"table.attrs['units'] = {{{', '.join(f'{name!r}: {units!r}' for name in names)}}}"
        )


def each_once(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """One row for each time and place, with the mean of its values; if these differ, a warning says so."""
    keys = [name for name in table if name != "value"]
    if any(table[name].is_unique for name in keys) or not table.duplicated(keys).any():
        return table
    values = table.groupby(keys, dropna=False, sort=False)["value"]
    if differing := int((values.nunique() > 1).sum()):
        what = f"{differing} times and places have different values"
        if "time" not in keys:
            what = f"{differing} places have different values and no times; if these have another name, call them time"
        warnings.warn(f"{where}: {what}; their means are used", stacklevel=3)
    once = values.mean().reset_index()
    once.attrs = table.attrs
    return once


def is_table(source: PointsLike) -> bool:
    """Whether this is a table, in memory or in a file."""
    in_file = isinstance(source, str | os.PathLike) and str(source).lower().endswith(TABLES)
    return in_file or isinstance(source, pd.DataFrame)


def is_scattered(source: PointsLike) -> bool:
    """Whether each value has its own place: in a table, or where latitude and longitude share a dimension."""
    if is_table(source):
        return True
    dataset = with_coordinates(open_dataset(source), "latitude", "longitude")
    latitude, longitude = (find(dataset.coords.variables, kind) for kind in ("latitude", "longitude"))
    if latitude is None or longitude is None:
        return False
    return bool(set(dataset[latitude].dims) & set(dataset[longitude].dims))


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """The table in a file, with columns separated by commas, semicolons, tabs or bars, and perhaps decimal commas."""
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        heading = pd.read_csv(path, sep="\0", nrows=0).columns[0]
        separator = max(",;\t|", key=heading.count)
        table = pd.read_csv(path, sep=separator)
        texts = [str(value) for name in table.select_dtypes(exclude="number") for value in table[name].dropna()[:1]]
        if separator != "," and any(map(DECIMAL.fullmatch, texts)):
            table = pd.read_csv(path, sep=separator, decimal=",")
        return table.rename(columns=str.strip)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8; save it in that encoding") from error
    except (pd.errors.EmptyDataError, pd.errors.ParserError) as error:
        raise ValueError(
            f"{path} is not a table of comma-separated columns with their names in the first line: {error}"
        ) from error


def _from_table(table: pd.DataFrame, variable: str | None, where: str, further: Sequence[str]) -> pd.DataFrame:
    """The columns that are needed, under their standard names."""
    check_columns(table, where)
    table = with_dates(with_index(table), where).rename(columns=str)
    plain = plain_names(list(table.columns))
    found = {kind: usual(plain, kind) for kind in COLUMNS[:4]}
    missing = [kind for kind in ("latitude", "longitude") if found[kind] is None]
    if missing:
        raise ValueError(
            f"{where} has no {' and no '.join(missing)}; it has the columns {', '.join(table.columns) or '(none)'}. "
            "Name them latitude and longitude"
        )
    kept = [name for name in further if name in plain and name not in NAMES]
    value = _value(table, plain, variable, [*found.values()], kept, where)
    titles = {kind: plain[name] for kind, name in found.items() if name is not None and name != value}
    titles |= {name: plain[name] for name in kept} | {"value": plain[value]}
    read = {kind: utc if kind == "time" else numbers_in for kind in titles}
    out = pd.DataFrame({kind: read[kind](table[title], where) for kind, title in titles.items()})
    for kind in ("latitude", "longitude"):
        if (angle := TITLE.search(titles[kind])) and angle[1].lower().startswith("rad"):
            out[kind] = np.rad2deg(out[kind])
    if "elevation" in out and (height := TITLE.search(titles["elevation"])):
        out["elevation"] = converted(out["elevation"].to_numpy(float), height[1], "m", f"elevations of {where}")
    units = {name: title[1] for name in (value, *kept) if (title := TITLE.search(plain[name]))}
    given = table.attrs.get("units")
    if isinstance(given, Mapping):
        units = {name: given[name] for name in (value, *kept) if name in given} | units
    own = {"units": units.get(value, None if isinstance(given, Mapping) else given)}
    out.attrs = _attributes(value, table.attrs | own)
    further_units = {name: units[name] for name in kept if name in units}
    return _in_order(out, table.attrs.get("units_of", {}) | further_units)


def check_columns(table: pd.DataFrame, where: str) -> None:
    """Raises an error if columns have no names of their own, as in a table with a column for each station."""
    if table.columns.nlevels > 1:
        raise ValueError(
            f"{where} has columns with names of {table.columns.nlevels} levels, where each observation needs a row and "
            "latitude and longitude a column; bring it into that form with .stack and .reset_index"
        )
    if table.columns.has_duplicates:
        twice = table.columns[table.columns.duplicated()][0]
        raise ValueError(f"{where} has several columns called {twice}; rename or drop all but one")


def with_index(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its index as columns, if that has a name or is one of dates, and no column has that name."""
    if isinstance(table.index, pd.DatetimeIndex | pd.PeriodIndex) and table.index.name is None:
        table = table.rename_axis(index="time")
    others = [number for number, name in enumerate(table.index.names) if name is None or name in table]
    if len(others) == table.index.nlevels:
        return table.reset_index(drop=True)
    return table.droplevel(others).reset_index()


def with_dates(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """The table with a column `time`, if its dates are in columns year, month and day, and perhaps hour and minute."""
    lower = {str(name).lower(): name for name in table}
    if not {"year", "month", "day"} <= lower.keys() or lower.keys() & set(NAMES["time"]):
        return table
    parts = {part: table[lower[part]] for part in ("year", "month", "day", "hour", "minute") if part in lower}
    try:
        return table.assign(time=pd.to_datetime(pd.DataFrame(parts)))
    except ValueError as error:
        raise ValueError(f"{where}: columns of year, month and day are no dates: {error}; correct them") from None


def _in_order(table: pd.DataFrame, units: dict[str, str]) -> pd.DataFrame:
    """The table with its columns in their usual order, further ones last, and the units of those."""
    usual = [name for name in COLUMNS if name in table]
    order = [*usual, *(name for name in table if name not in usual)]
    ordered = table if list(table) == order else table[order]
    ordered.attrs = table.attrs | ({"units_of": units} if units else {})
    return ordered


def plain_names(titles: list[str]) -> dict[str, str]:
    """The columns' titles by their names without units, which are kept where names would otherwise be the same."""
    names = [TITLE.sub("", title) for title in titles]
    return {title if names.count(name) > 1 else name: title for name, title in zip(names, titles, strict=True)}


def usual(names: Iterable[str], kind: str) -> str | None:
    """The name of the column of this kind."""
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in NAMES[kind] if name in lower), None)


def _value(
    table: pd.DataFrame,
    plain: dict[str, str],
    variable: str | None,
    coordinates: Sequence[str | None],
    covariates: Sequence[str],
    where: str,
) -> str:
    """The column of the values."""
    taken = [*coordinates, *covariates]
    others = [name for name in plain if name not in taken and not is_identifier(name)]
    numbers = [name for name in others if pd.api.types.is_numeric_dtype(table[plain[name]])]
    if variable is None:
        candidates = numbers or others
        if len(candidates) == 1:
            return candidates[0]
        if not candidates and covariates:
            raise only_covariates(where, covariates)
        if not candidates:
            raise ValueError(
                f"{where} has no column of values besides {', '.join(plain)}; if one of these is, name it in `variable`"
            )
        raise ValueError(f"{where} has several columns of values, {', '.join(candidates)}; choose one with `variable`")
    exact = [name for name, title in plain.items() if variable in (name, title)]
    alike = [name for name in others if same_variable(variable, name)]
    matches = exact or [name for name in alike if name in numbers] or alike
    if len(matches) == 1:
        return matches[0]
    raise NoSuchVariable(f"{where} has no column {variable!r}; choose `variable` from {', '.join(numbers)}")


def numbers_in(column: pd.Series, where: str) -> pd.Series:
    """The column, all of it numbers or missing."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
        return column
    if np.iscomplexobj(column.to_numpy()):
        raise ValueError(f"{where}: the column {column.name} has complex numbers; give real ones")
    numbers = pd.to_numeric(column, errors="coerce")
    wrong = column[numbers.isna() & column.notna()]
    if len(wrong):
        is_side = re.fullmatch(r"[\d.]+\W*[NSEW]", str(wrong.iloc[0]), re.IGNORECASE)
        advice = "give degrees, negative in the south and west" if is_side else "correct it, or leave it empty"
        raise ValueError(
            f"{where}: the column {column.name} has the value {wrong.iloc[0]!r}, which is not a number; {advice}"
        )
    is_plain = isinstance(numbers.dtype, np.dtype)
    return numbers if is_plain else pd.Series(numbers.to_numpy(float, na_value=np.nan), column.index, name=column.name)


def utc(column: pd.Series, where: str) -> pd.Series:
    """The dates in UTC, without a time zone, in the common calendar."""
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if column.dtype == object:
        column = pd.Series(common_dates(xr.DataArray(column.to_numpy())).values, column.index, name=column.name)
    if pd.api.types.is_numeric_dtype(column):
        raise ValueError(
            f"{where}: times are numbers, such as {column.iloc[:1].tolist()}; give dates such as 2019-03-01"
        )
    try:
        return pd.to_datetime(column, utc=True, format="ISO8601").dt.tz_localize(None)
    except (ValueError, TypeError) as error:
        wrong = column[pd.to_datetime(column, utc=True, format="ISO8601", errors="coerce").isna() & column.notna()]
        found = f"; got {wrong.iloc[0]!r}" if len(wrong) else f": {error}"
        raise ValueError(f"{where}: times are not dates such as 2019-03-01 or 2019-03-01T12:00{found}") from error


def _from_dataset(
    dataset: xr.Dataset,
    variable: str | None,
    region: Region | None,
    period: Period | None,
    where: str,
    further: Sequence[str],
) -> pd.DataFrame:
    """The values with their coordinates; only the region and period are read from the file."""
    beside = [name for name in further if name in dataset.data_vars and name != variable]
    if beside and set(names_of(with_coordinates(dataset, *NAMES), where)) <= set(beside):
        raise only_covariates(where, beside)
    dataset = dataset.set_coords(beside)
    is_value = find(dataset.data_vars.variables, "elevation") == variable or len(dataset.data_vars) == 1
    kinds = [kind for kind in NAMES if not (kind == "elevation" and is_value)]
    field = whole = pick(with_coordinates(dataset, *kinds), variable, where)
    found = {name: kind for kind in NAMES if (name := find(field.coords.variables, kind)) is not None}
    found |= {name: name for name in further if name in field.coords and name not in found}
    field = field.drop_vars([name for name in field.coords if name not in found])
    extra = {str(d): n for d, n in field.sizes.items() if n > 1 and all(d not in field[name].dims for name in found)}
    if extra:
        raise further_dimensions(where, field.name, extra)
    for name, kind in found.items():
        values = wrap(field[name].values, region) if kind == "longitude" else field[name].values
        keep = xr.DataArray(inside(kind, values, region, period), dims=field[name].dims)
        for along in keep.dims:
            field = field.isel({along: keep.any([d for d in keep.dims if d != along]).values})
    if 0 in field.shape:
        raise no_data(where, region, period, {kind: whole[name] for name, kind in found.items() if kind in COLUMNS[:3]})
    if field.size > MAX_ROWS:
        raise ValueError(
            f"{where}: {field.name} has {field.size:.3g} values, too many for a table of points; choose a smaller "
            "region or period, or every tenth time"
        )
    # Only what was found: a dimension may have the name of a coordinate that stands for something else.
    table = field.to_dataframe(name="value").reset_index()[[*found, "value"]].rename(columns=found)
    for name in (name for name, kind in found.items() if kind == "elevation"):
        units = units_of(field[name].attrs)
        table["elevation"] = converted(table["elevation"].to_numpy(float), units, "m", f"elevations of {where}")
    table.attrs = _attributes(str(field.name), field.attrs)
    known = {name: units_of(field[name].attrs) for name in further if name in found and name not in NAMES}
    return _in_order(table, {name: each for name, each in known.items() if each is not None})


def _attributes(name: str, attributes: dict[str, Any]) -> dict[str, str]:
    """What is known about the values; a table that was read before has their name."""
    known = {"name": attributes.get("name", name) if name == "value" else name}
    known |= {"units": units_of(attributes), "long_name": attributes.get("long_name")}
    return {key: str(value) for key, value in known.items() if value is not None}
