"""Regions and periods: which places and times lie in them, and longitudes around the globe."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool
from numpy import ndarray

TOLERANCE = 1e-4
"Degrees by which a point may lie outside a region: coordinates are often rounded to 32 bits."

DEGREES = {"latitude": 90.0, "longitude": 360.0}
"The largest size of proper coordinates."

Region = tuple[float, float, float, float]
Period = tuple[str, str]


def wrap(longitude: Any, region: Region | None = None) -> Any:
    """Longitudes minus whole turns: in [−180, 180) or, in a region, in the 360 degrees from its western border."""
    start = -180.0 if region is None or _width(region) >= 360 else wrap(region[2]) - TOLERANCE
    turns = np.floor((longitude - start) / 360)
    return longitude - (360 * turns).astype(getattr(longitude, "dtype", float))


def _width(region: Region) -> float:
    west, east = region[2:]
    return 360.0 if east - west >= 360 else (east - west) % 360


def inside(kind: str, values: ndarray, region: Region | None, period: Period | None) -> Bool[ndarray, "..."]:
    """Which coordinates of this kind are in the region and period, borders included; longitudes must be wrapped."""
    if kind == "time" and period is not None:
        first, last = _instants(period)
        return (values >= first) & (values <= last)
    if kind == "latitude" and region is not None:
        if region[0] > region[1]:
            raise ValueError(f"region must be south, north, west, east, with south below north; got {region}")
        return (values >= region[0] - TOLERANCE) & (values <= region[1] + TOLERANCE)
    if kind == "longitude" and region is not None and _width(region) < 360:
        return values <= wrap(region[2]) + _width(region) + TOLERANCE
    return np.ones(values.shape, bool)


def _instants(period: Period) -> tuple[np.datetime64, np.datetime64]:
    """The first and last instant; a date such as 2019-03 stands for all of that month."""
    try:
        first, last = pd.Period(period[0]).start_time, pd.Period(period[1]).end_time
    except (ValueError, AttributeError):
        raise ValueError(f"period must be two dates such as ('2019-03-01', '2019-03-15'); got {period}") from None
    if first > last:
        raise ValueError(f"period must begin before it ends; got {' to '.join(period)}")
    return first.to_datetime64(), last.to_datetime64()


def check_degrees(latitude: ndarray, longitude: ndarray, where: str) -> None:
    """Raises an error if these cannot be degrees."""
    for kind, coordinate, low, high in (("latitude", latitude, -90, 90), ("longitude", longitude, -360, 540)):
        values = coordinate[~np.isnan(coordinate)]
        if values.size and (values.min() < low - TOLERANCE or values.max() > high + TOLERANCE):
            found = f"{values.min():.6g} to {values.max():.6g}"
            raise ValueError(
                f"{where}: its {kind} ranges from {found}, not valid degrees; give coordinates in degrees, and check "
                "that latitude and longitude are not swapped"
            )


def no_data(where: str, region: Region | None, period: Period | None, coordinates: Mapping[str, Any]) -> ValueError:
    """The error for a region or period without data."""
    requested = [f"region {region} (south, north, west, east)"] * (region is not None)
    requested += [f"period {period}"] * (period is not None)
    part = f" in {' and '.join(requested)}" if requested else ""
    return ValueError(f"{where} has no data{part}; it covers {_extent(coordinates) or 'nothing'}")


def _extent(coordinates: Mapping[str, Any]) -> str:
    """The range of each coordinate, in words."""
    values = {name: np.asarray(v) for name, v in coordinates.items() if np.size(v)}
    text = [f"{k} {np.nanmin(v):.6g} to {np.nanmax(v):.6g}" for k, v in values.items() if k != "time"]
    if "time" in values:
        times = pd.to_datetime(values["time"].ravel())
        text.append(f"time {times.min():%Y-%m-%d %H:%M} to {times.max():%Y-%m-%d %H:%M}")
    return ", ".join(text)
