"""Where to predict: places and times from grids, tables, files and a few numbers, in one standard form."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.gridded import FieldLike, elevation_at
from aenp.earth.points import (
    TITLE,
    check_columns,
    is_table,
    numbers_in,
    plain_names,
    read_table,
    usual,
    utc,
    with_dates,
    with_index,
)
from aenp.earth.regions import DEGREES, check_degrees
from aenp.earth.sources import (
    NAMES,
    as_coordinates,
    common_dates,
    describe,
    find,
    is_identifier,
    open_dataset,
    with_coordinates,
    without_fills,
)
from aenp.earth.units import converted, units_of

KINDS = ("latitude", "longitude", "time", "elevation")
MAX_PLACES = 1e8
"The largest number of places of a grid given as text."
CF = {
    kind: {"standard_name": kind, "units": f"degrees_{side}"}
    for kind, side in (("latitude", "north"), ("longitude", "east"))
}

PlacesLike: TypeAlias = str | os.PathLike[str] | xr.Dataset | xr.DataArray | pd.DataFrame | Mapping[str, Any]


def open_target(target: PlacesLike, further: Sequence[str] = ()) -> xr.Dataset:
    """A data set whose coordinates are where to predict.

    Args:
        target: a table, data set or field with latitudes and longitudes, or a file of one; the two as a mapping; or
            a grid as text, "south,north,west,east,step" in degrees.
        further: names of further coordinates, which may be variables or columns of the target.
    """
    if isinstance(target, xr.Dataset | xr.DataArray):
        return _with_further(with_coordinates(open_dataset(target), *KINDS), further)
    if isinstance(target, pd.DataFrame):
        return _from_table(target, describe(target), further)
    if isinstance(target, Mapping):
        if deep := [name for name, values in target.items() if np.ndim(values) > 1]:
            raise ValueError(
                f"{deep[0]} of the given mapping has several dimensions without names; give a table or a data set"
            )
        dataset = xr.Dataset(coords={name: np.asarray(values) for name, values in target.items()})
        for name in (name for name in dataset.coords if str(name).lower() in NAMES["time"]):
            times = utc(pd.Series(np.atleast_1d(dataset[name].values)), "the given mapping")
            dataset = dataset.assign_coords({name: times.to_numpy().reshape(dataset[name].shape)})
        return dataset
    if is_table(target):
        return _from_table(read_table(target), describe(target), further)
    if isinstance(target, str) and "," in target and not Path(target).exists():
        return _grid(target)
    # Only the coordinates: what else the file holds, and in which chunks, does not matter.
    return _with_further(with_coordinates(open_dataset(target), *KINDS), further).coords.to_dataset().compute()


def _with_further(dataset: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    return as_coordinates(dataset, [name for name in names if name in dataset.data_vars])


def _from_table(table: pd.DataFrame, where: str, further: Sequence[str]) -> xr.Dataset:
    """The table's columns, of which places, times, elevations, labels and further ones are coordinates."""
    check_columns(table, where)
    names = plain_names(list(map(str, table)))
    plain = _as_dataset(_indexed(table.set_axis(list(names), axis=1), where, further))
    for name, title in names.items():
        if units := TITLE.search(title):
            plain[name].attrs["units"] = units[1]
    labelled = as_coordinates(plain, [str(name) for name in plain if _is_label(plain[name])])
    return _with_further(with_coordinates(labelled, *KINDS), further)


def _as_dataset(table: pd.DataFrame) -> xr.Dataset:
    """As `table.to_xarray()`, in less time where the index has one level."""
    if isinstance(table.index, pd.MultiIndex):
        return table.to_xarray()
    along = "index" if table.index.name is None else str(table.index.name)
    columns = {name: (along, values.to_numpy()) for name, values in table.items()}
    index = table.index if isinstance(table.index.dtype, np.dtype) else table.index.to_numpy()
    return xr.Dataset({along: (along, index)} | columns)


def _is_label(values: xr.DataArray) -> bool:
    """Whether these are names or numbers of stations, which a prediction keeps."""
    is_number = is_identifier(values.name) and values.name not in values.dims
    return is_number or pd.api.types.infer_dtype(values.values.ravel()) == "string"


def _indexed(table: pd.DataFrame, where: str, further: Sequence[str]) -> pd.DataFrame:
    """The table in numpy's types; an index of several levels that is no grid becomes columns."""
    index = table.index
    if isinstance(index, pd.MultiIndex | pd.DatetimeIndex | pd.PeriodIndex) or str(index.name).lower() in NAMES["time"]:
        table = with_index(table)
    dated = _in_numpy(with_dates(table, where), where, further)
    names = [name for name in index.names if name in dated]
    if len(names) > 1:
        counts = [dated[name].nunique() for name in names]
        if len(dated) != math.prod(counts) or dated.duplicated(names).any():
            return dated
    return dated.set_index(names) if names else dated


def _in_numpy(table: pd.DataFrame, where: str, further: Sequence[str]) -> pd.DataFrame:
    """The table with dates in UTC, places, elevations and further columns as numbers, and no types of pandas' own."""
    numbers = [*further, *(usual(map(str, table), kind) for kind in KINDS if kind != "time")]
    time, table = usual(map(str, table), "time"), table.copy()
    for name, column in table.items():
        is_plain = isinstance(column.dtype, np.dtype) and column.dtype != object
        if name == time or isinstance(column.dtype, pd.DatetimeTZDtype | pd.PeriodDtype):
            table[name] = utc(column, where)
        elif not is_plain and (name in numbers or pd.api.types.is_numeric_dtype(column)):
            table[name] = numbers_in(column, where)
        elif isinstance(column.dtype, pd.CategoricalDtype):
            table[name] = column.astype(object)
    return table


def _grid(text: str) -> xr.Dataset:
    """The grid that `text` describes, borders included."""
    try:
        south, north, west, east, step = map(float, text.split(","))
        if not (south < north and west != east and step > 0):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"a grid is south,north,west,east,step in degrees, such as 36,47,6,19,0.25; got {text}"
        ) from None
    if west > east:
        further = f"{south:g},{north:g},{west:g},{east + 360:g},{step:g}"
        raise ValueError(f"the grid {text} ends west of where it begins; across the date line, write {further}")
    if (north - south) / step * (east - west) / step > MAX_PLACES:
        raise ValueError(
            f"the grid {text} has over {MAX_PLACES:g} places, {north - south:g}° × {east - west:g}° every {step:g}°; "
            "predict it in parts, or with a larger step"
        )
    sides = ((south, north), (west, east))
    axes = (low + step * np.arange(int((high - low) / step + 1e-6) + 1) for low, high in sides)
    return xr.Dataset(coords=dict(zip(("latitude", "longitude"), axes, strict=True)))


@dataclass(frozen=True)
class Places:
    """Where and when to predict, and the names of the coordinates in the result.

    Args:
        coordinates: latitude, longitude, and perhaps time, elevation and covariates. Time shares the places' dimension
            if each has its own time, and otherwise has its own dimension; without time there is one prediction.
        labels: the target's own coordinates.
        chunks: the sizes of the chunks along each dimension, if the target's data are Dask arrays.
    """

    coordinates: Mapping[str, xr.DataArray]
    labels: Mapping[str, xr.DataArray]
    chunks: Mapping[Any, tuple[int, ...]]

    def with_elevation(self, topography: FieldLike | None, where: str) -> "Places":
        """The places, with elevations from the topography where they have none of their own."""
        latitude, longitude = (self.coordinates[kind] for kind in ("latitude", "longitude"))
        own = self.coordinates.get("elevation", xr.full_like(latitude, np.nan, float))
        own, latitude, longitude = xr.broadcast(own, latitude, longitude)
        values = elevation_or_error(own.values, latitude.values, longitude.values, topography, where)
        return replace(self, coordinates={**self.coordinates, "elevation": own.copy(data=values)})

    def at_time(self, time: np.datetime64) -> "Places":
        """The places with what is known of them at this time, if time has a dimension of its own."""
        times = self.coordinates["time"]
        if times.ndim != 1 or times.dims[0] in self.coordinates["latitude"].dims:
            return self
        which = {times.dims[0]: int(np.argmax(times.values == time))}
        every = {name: values.isel(which, missing_dims="ignore") for name, values in self.coordinates.items()}
        return replace(self, coordinates=every)

    def times_apart(
        self, observed: pd.DataFrame, reach: np.timedelta64 | None
    ) -> tuple[ndarray | None, Sequence[pd.DataFrame | None]]:
        """The times to predict, in order, and the observations within `reach` of each, if any; or all observations."""
        if reach is None or "time" not in self.coordinates:
            return None, [observed]
        times, ordered = np.unique(self.coordinates["time"]), observed.sort_values("time", kind="stable")
        seen = ordered["time"].to_numpy()
        first, last = np.searchsorted(seen, times - reach), np.searchsorted(seen, times + reach, side="right")
        return times, [ordered.iloc[a:b] if a < b else None for a, b in zip(first, last, strict=True)]


def open_places(target: PlacesLike, observed: pd.DataFrame, any_time: bool, further: Sequence[str] = ()) -> Places:
    """The target's places and, if the observations have a time, the times to predict.

    Args:
        target: as for `open_target`.
        observed: the observations, as `open_points` returns them.
        any_time: whether times without observations can be predicted.
        further: names of covariates, which become coordinates if the target has them.
    """
    dataset, where = open_target(target, further), describe(target)
    if 0 in dataset.sizes.values():
        raise ValueError(f"{where} has no place to predict at: it is empty")
    names = {kind: name for kind in KINDS if (name := find(dataset.coords.variables, kind)) is not None}
    if not {"latitude", "longitude"} <= set(names):
        known = ", ".join(map(str, dataset.variables)) or "nothing"
        raise ValueError(
            f"{where} needs a latitude and a longitude to predict at, as numbers in degrees; it has {known}"
        )
    if "time" not in names and "time" in observed:
        _check_dates(dataset, where)
    own = {kind: dataset[name].reset_coords(drop=True).compute() for kind, name in names.items()}
    own |= {
        kind: without_fills(values, f"{kind}s of {where}", DEGREES.get(kind, 0.0))
        for kind, values in own.items()
        if kind != "time"
    }
    latitude, longitude = broadcast(own["latitude"], own["longitude"])
    if not np.isfinite(latitude.values + longitude.values).any():
        raise ValueError(f"{where} has no place to predict at: its latitude or longitude is empty")
    check_degrees(latitude.values, longitude.values, where)
    coordinates = {"latitude": latitude, "longitude": longitude}
    if "elevation" in own:
        height = own["elevation"]
        metres = converted(height.values.astype(float), units_of(height.attrs), "m", f"elevations of {where}")
        coordinates["elevation"] = height.copy(data=metres)
    labels = {names[kind]: own[kind].assign_attrs(cf | own[kind].attrs) for kind, cf in CF.items()}
    beside = (name for name, values in dataset.coords.items() if set(values.dims) == set(latitude.dims))
    labels |= {str(name): dataset[name].reset_coords(drop=True) for name in beside if _is_label(dataset[name])}
    dates = common_dates(own["time"]) if "time" in own else None
    time = _times(dates, latitude, observed, where, any_time)
    covariates = {
        name: without_fills(dataset[name].reset_coords(drop=True).compute(), f"{name}s of {where}")
        for name in further
        if name in dataset.coords and name not in own
    }
    if time is not None and dates is not None and time.sizes != dates.sizes:
        kept = {dates.dims[0]: np.isin(dates.values, time.values)}
        covariates = {name: values.isel(kept, missing_dims="ignore") for name, values in covariates.items()}
    coordinates = covariates | coordinates
    if time is not None:
        coordinates = {"time": time, **coordinates}
        if dates is not None:
            labels[names["time"]] = _as_given(time, dates, own["time"])
    return Places(coordinates, labels, dataset.chunks)


def _check_dates(dataset: xr.Dataset, where: str) -> None:
    """Raises an error if there are times, but not as dates."""
    for name, values in dataset.coords.items():
        if str(name).lower() in NAMES["time"] and values.size > 1:
            raise ValueError(
                f"{where}: {name} is of type {values.dtype} and not of dates; convert it with pd.to_datetime, or leave "
                "it out to predict all times that were observed"
            )


def _as_given(time: xr.DataArray, dates: xr.DataArray, given: xr.DataArray) -> xr.DataArray:
    """The times in the target's own calendar."""
    if dates is given:
        return time
    own = dict(zip(dates.values.ravel(), given.values.ravel(), strict=True))
    return xr.DataArray(np.vectorize(own.get, otypes=[object])(time.values), dims=time.dims, attrs=time.attrs)


def _times(
    own: xr.DataArray | None, latitude: xr.DataArray, observed: pd.DataFrame, where: str, any_time: bool
) -> xr.DataArray | None:
    """The times to predict: each place's own, or the target's that were observed, or all that were observed."""
    if "time" not in observed:
        return None
    times = np.unique(observed["time"])
    if own is None:
        return xr.DataArray(times, dims="time", coords={"time": times})
    if any_time:
        return own
    shared = np.isin(own.values, times)
    if not shared.any():
        spans = (f"{pd.Timestamp(each.min())} to {pd.Timestamp(each.max())}" for each in (times, own.values))
        raise ValueError(
            f"the context covers {next(spans)}, the target {where} covers {next(spans)}: they share no time; give "
            "observations of the target's times, or a target without times"
        )
    return own if own.ndim == 0 or set(own.dims) & set(latitude.dims) else own[shared]


def broadcast(*coordinates: xr.DataArray) -> tuple[xr.DataArray, ...]:
    """Coordinates of one target, each along the dimensions of all."""
    return coordinates if len({each.dims for each in coordinates}) == 1 else xr.broadcast(*coordinates)


def chunked(values: xr.DataArray, chunks: Mapping[Any, tuple[int, ...]]) -> xr.DataArray:
    """The values in the target's chunks, along dimensions of the same length."""
    own = {d: sizes for d, sizes in chunks.items() if d in values.dims and sum(sizes) == values.sizes[d]}
    return values.chunk(own) if own else values


def elevation_or_error(
    known: Float[ndarray, "*points"],
    latitude: Float[ndarray, "*points"],
    longitude: Float[ndarray, "*points"],
    topography: FieldLike | None,
    where: str,
) -> Float[ndarray, "*points"]:
    """The known elevations, and those of the topography where unknown, with zero at sea."""
    missing = np.isnan(known) & np.isfinite(latitude + longitude)
    if not missing.any():
        return known
    if topography is None:
        raise ValueError(
            f"{where} lacks elevations, which the model needs; add a column or coordinate elevation in metres, or give "
            "a topography as `elevation`"
        )
    return np.where(missing, np.maximum(elevation_at(topography, latitude, longitude), 0.0), known)
