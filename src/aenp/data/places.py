"""Where to predict: places and times from grids, tables, files and a few numbers, in one form."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

from aenp.data.points import is_table, read_table
from aenp.data.sources import NAMES, open_dataset, with_coordinates

KINDS = ("latitude", "longitude", "time")

Target: TypeAlias = str | os.PathLike[str] | xr.Dataset | xr.DataArray | pd.DataFrame | Mapping[str, Any]


def open_places(target: Target) -> xr.Dataset:
    """A data set whose coordinates are where to predict.

    Args:
        target: a table, data set or field with latitudes and longitudes, or a file of one; the two as a mapping; or
            a grid as text, "south,north,west,east,step" in degrees.
    """
    if isinstance(target, xr.Dataset | xr.DataArray):
        return with_coordinates(open_dataset(target), *KINDS)
    if isinstance(target, pd.DataFrame):
        dates = {str(name): pd.to_datetime(target[name]) for name in target if _is_date(target, str(name))}
        return with_coordinates(target.assign(**dates).to_xarray(), *KINDS)
    if isinstance(target, Mapping):
        return xr.Dataset(coords={name: np.asarray(values) for name, values in target.items()})
    if is_table(target):
        return open_places(read_table(target))
    if isinstance(target, str) and not Path(target).exists() and target.count(",") == 4:
        return _grid(target)
    # Only the coordinates: what else the file holds, and in which chunks, does not matter.
    return with_coordinates(open_dataset(target), *KINDS).coords.to_dataset()


def _is_date(table: pd.DataFrame, name: str) -> bool:
    return name.lower() in NAMES["time"] and not pd.api.types.is_numeric_dtype(table[name])


def _grid(text: str) -> xr.Dataset:
    """The grid that `text` describes, borders included."""
    try:
        south, north, west, east, step = map(float, text.split(","))
        if not (south < north and west < east and step > 0):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"a grid is south,north,west,east,step in degrees, such as 36,47,6,19,0.25; got {text}"
        ) from None
    axes = (np.arange(low, high + step / 2, step) for low, high in ((south, north), (west, east)))
    coordinates = zip(("latitude", "longitude"), axes, ("degrees_north", "degrees_east"), strict=True)
    return xr.Dataset(coords={name: (name, values, {"units": units}) for name, values, units in coordinates})
