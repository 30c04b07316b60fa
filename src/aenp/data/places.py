"""Where to predict: places and times from grids, tables, files and a few numbers, in one form."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

from aenp.data.points import is_table, read_table, utc
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
        return with_coordinates(_with_dates(target.rename(columns=str)).to_xarray(), *KINDS)
    if isinstance(target, Mapping):
        dataset = xr.Dataset(coords={name: np.asarray(values) for name, values in target.items()})
        for name in (name for name in dataset.coords if str(name).lower() in NAMES["time"]):
            times = utc(pd.Series(np.atleast_1d(dataset[name].values)), "the given mapping")
            dataset = dataset.assign_coords({name: times.to_numpy().reshape(dataset[name].shape)})
        return dataset
    if is_table(target):
        return open_places(read_table(target))
    if isinstance(target, str) and "," in target and not Path(target).exists():
        return _grid(target)
    # Only the coordinates: what else the file holds, and in which chunks, does not matter.
    return with_coordinates(open_dataset(target), *KINDS).coords.to_dataset()


def _with_dates(table: pd.DataFrame) -> pd.DataFrame:
    """The table, with times in UTC."""
    return table.assign(**{n: utc(table[n], "the target") for n in table if str(n).lower() in NAMES["time"]})


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
    sides = ((south, north), (west, east))
    axes = (low + step * np.arange(int((high - low) / step + 1e-6) + 1) for low, high in sides)
    return xr.Dataset(coords=dict(zip(("latitude", "longitude"), axes, strict=True)))
