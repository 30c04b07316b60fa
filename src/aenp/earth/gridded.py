"""Gridded fields from any file that xarray opens, in one standard form."""

import warnings
from collections.abc import Mapping

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike

from aenp.earth.regions import TOLERANCE, Period, Region, check_degrees, inside, no_data, wrap
from aenp.earth.sources import (
    EPOCH,
    FieldLike,
    describe,
    find,
    further_dimensions,
    open_dataset,
    pick,
    with_coordinates,
    without_fills,
)
from aenp.earth.units import converted, units_of

DIMS = ("time", "latitude", "longitude")


def open_gridded(
    source: FieldLike, variable: str | None = None, region: Region | None = None, period: Period | None = None
) -> xr.DataArray:
    """The field as `(time, latitude, longitude)`: all ascending, longitudes in [−180, 180), with its own attributes.

    Data are read in chunks, only when they are needed. A field without time has one step, without a date. In a region
    across the date line longitudes continue beyond 180. Dates of other calendars become those of the common one, as
    `common_dates` tells.

    Args:
        source: a NetCDF, GRIB or Zarr file, or an xarray object.
        variable: its name, here or in another product; by default the only one with coordinates.
        region: south, north, west, east in degrees, borders included; if west > east, it lies across the date line
            or, in degrees from 0 to 360, across Greenwich.
        period: first and last date, such as ("2019-03-01", "2019-03-15"), both included.
    """
    where = describe(source)
    field = pick(with_coordinates(open_dataset(source), *DIMS), variable, where)
    whole = _standard(field if field.chunks else field.chunk("auto"), where)
    if period is not None and "time" not in whole.coords:
        raise ValueError(f"{where} has no dates, so `period` cannot be used; leave it out")
    field = whole.assign_coords(longitude=_replaced(whole.longitude, wrap(whole.longitude.values, region)))
    for name in (name for name in DIMS if name in field.coords):
        if name == "time" and not field.indexes[name].is_unique:
            warnings.warn(f"{where}: some times occur more than once; the first of each is used", stacklevel=2)
        field = _ascending(field, name)
        known = field[name].notnull().values
        if not known.all():
            warnings.warn(f"{where}: {(~known).sum()} of its {name}s are missing and left out", stacklevel=2)
        field = _where(field, name, known & inside(name, field[name].values, region, period))
    if 0 in field.shape:
        raise no_data(where, region, period, {name: whole[name] for name in DIMS if name in whole.coords})
    return field


def elevation_at(topography: FieldLike, latitude: ArrayLike, longitude: ArrayLike) -> Float[ndarray, "..."]:
    """Metres above sea level by bilinear interpolation; NaN outside the grid and beside missing values.

    Heights below zero are kept: the sea floor, where the topography has it, and land below sea level. A global
    grid has no seam. Only chunks around the points are read.

    Args:
        topography: a gridded field of heights without time, as for `open_gridded`.
        latitude: degrees; any shape that broadcasts with that of `longitude`.
        longitude: degrees, from −180 or from 0.
    """
    where, field = describe(topography), open_gridded(topography)
    if field.sizes["time"] > 1 or min(field.shape[1:]) < 2:
        raise ValueError(f"{where}: elevation needs one field of at least 2 × 2 points; it has {dict(field.sizes)}")
    y, x = np.broadcast_arrays(np.asarray(latitude, float), np.asarray(longitude, float))
    heights = interpolated(field, y.ravel(), x.ravel(), where).reshape(y.shape)
    return converted(heights, units_of(field.attrs), "m", f"elevation from {where}")


def interpolated(
    field: xr.DataArray,
    latitude: Float[ndarray, " points"],
    longitude: Float[ndarray, " points"],
    where: str,
    times: ndarray | None = None,
) -> Float[ndarray, " points"]:
    """The values of a field as `open_gridded` returns it, by linear interpolation: at points' times, or at its first.

    They are NaN outside the grid and beside missing values. A global grid has no seam. Only what is around the points
    is read.
    """
    brackets = {"latitude": _bracket(field.latitude.values.astype(float), latitude, np.inf)}
    brackets["longitude"] = _bracket(field.longitude.values.astype(float), wrap(longitude), 360.0)
    if times is None:
        field = field.isel(time=0)
    else:
        brackets["time"] = _bracket(_days(field["time"].values), _days(times), np.inf)
    sides = {name: f"{name}_side" for name in brackets}
    corners = field.isel({name: ((sides[name], "point"), nodes) for name, (nodes, _, _) in brackets.items()})
    corners = without_fills(corners.drop_vars(list(corners.coords)).compute(), where)
    weights, there = xr.DataArray(1.0), np.ones(len(latitude), bool)
    for name, (_, fraction, between) in brackets.items():
        weights = weights * xr.DataArray(np.stack([1 - fraction, fraction]), dims=(sides[name], "point"))
        there &= between
    values = xr.where(weights == 0, 0.0, weights * corners).sum(list(sides.values()), skipna=False)
    return np.where(there, values.values, np.nan)


def _days(times: ndarray) -> Float[ndarray, " times"]:
    return np.asarray((times - EPOCH) / np.timedelta64(1, "D"))


def _bracket(axis: ndarray, at: ndarray, turn: float) -> tuple[ndarray, ndarray, ndarray]:
    """The nodes before and after each point, its fraction of the way in [0, 1), and whether it is on the grid.

    The first node follows the last, `turn` further on. The widest step is a gap in the grid, unless another is about
    as wide.
    """
    for end in axis[[0, -1]]:
        at = np.where(np.abs(at - end) < TOLERANCE, end, at)
    nodes = np.append(axis, axis[0] + turn)
    steps = np.diff(nodes)
    second, widest = np.sort(steps)[-2:]
    before = np.searchsorted(axis, at, side="right") - 1
    way, step = np.where(before < 0, at + turn, at) - nodes[before % len(axis)], steps[before % len(axis)]
    between = (way == 0) | (np.isfinite(way) & ((step < widest) | (widest < 1.5 * second)))
    fraction = np.divide(way, step, out=np.zeros(way.shape), where=between)
    return np.stack([before % len(axis), (before + 1) % len(axis)]), fraction, between


def _standard(field: xr.DataArray, where: str) -> xr.DataArray:
    """The field with standard names and dimensions."""
    field = field.squeeze()
    found = {kind: name for kind in DIMS if (name := find(field.coords.variables, kind)) is not None}
    _check_dimensions(field, found, where)
    field = field.drop_vars([name for name in field.coords if name not in found.values()])
    dimensions = {field[name].dims[0]: name for name in found.values() if field[name].ndim}
    field = field.swap_dims(dimensions).rename({name: kind for kind, name in found.items() if name != kind})
    field = field.expand_dims([kind for kind in DIMS if kind not in field.dims]).transpose(*DIMS)
    check_degrees(field.latitude.values, field.longitude.values, where)
    return field


def _check_dimensions(field: xr.DataArray, found: Mapping[str, str], where: str) -> None:
    """Raises an error if the field has dimensions other than latitude, longitude and time."""
    dims = {name: field[name].dims for name in found.values()}
    points = "; interpolate it to a grid of latitudes and longitudes, or read it as points with `open_points`"
    for kind, name in found.items():
        if kind == "time" and len(dims[name]) > 1:
            raise further_dimensions(where, field.name, {str(d): field.sizes[d] for d in dims[name][1:]})
        if len(dims[name]) > 1:
            raise ValueError(f"{where}: {kind} {name} has the dimensions {dims[name]}, but a grid needs one{points}")
    used = [d for each in dims.values() for d in each]
    shared = [d for d in used if used.count(d) > 1]
    if shared:
        names = [name for name, own in dims.items() if shared[0] in own]
        raise ValueError(f"{where}: {' and '.join(names)} share the dimension {shared[0]}, so it is not a grid{points}")
    extra = {str(d): size for d, size in field.sizes.items() if d not in used}
    if extra:
        raise further_dimensions(where, field.name, extra)


def _replaced(coordinate: xr.DataArray, values: ndarray) -> xr.DataArray:
    """The coordinate with other values and the same attributes."""
    return xr.DataArray(values, dims=coordinate.dims, attrs=coordinate.attrs)


def _ascending(field: xr.DataArray, name: str) -> xr.DataArray:
    """The field in ascending order along this dimension, without duplicates; reversing it costs nothing."""
    index = field.indexes[name]
    if index.is_monotonic_decreasing:
        field, index = field.isel({name: slice(None, None, -1)}), index[::-1]
    if not index.is_monotonic_increasing:
        field = field.sortby(name)
    return field if index.is_unique else field.drop_duplicates(name)


def _where(field: xr.DataArray, name: str, keep: ndarray) -> xr.DataArray:
    """The part of an ordered dimension to keep, which is one slice."""
    kept = np.flatnonzero(keep)
    return field.isel({name: slice(kept[0], kept[-1] + 1) if len(kept) else slice(0, 0)})
