"""Interpolation without training: the base model in the coordinates and units of a few observations."""

import math
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Frame, Variable
from aenp.earth.places import PlacesLike
from aenp.earth.points import PointsLike, each_once, open_points
from aenp.earth.prediction import outputs_of
from aenp.earth.sources import describe
from aenp.models.krigingnp import is_constant, scale_of
from aenp.shipped import base_model

SIDE = 100
"Number of places along the longer side of the grid that is predicted by default."
FEWEST, LONGEST, STEEPEST, WIDEST = 3, 6.0, 0.95, 60.0
"Beyond these the base model was not trained: points, length over width, share of a plane in the variance, degrees."


def interpolate(
    context: PointsLike,
    target: PlacesLike | None = None,
    variable: str | None = None,
    quantiles: Sequence[float] = (),
    samples: int = 0,
    seed: int = 0,
    progress: bool = False,
) -> xr.Dataset:
    """The prediction at the target's places from the observations alone, at once, by a model trained on random fields.

    The result lies on the target's own coordinates: `mean` and `std` of what would be observed there, and `in_domain`,
    whether a place is within the box of the observations. Several times are predicted one by one. Where observations
    are unlike those that the model was trained on, a warning says so.

    Args:
        context: a table with latitude, longitude, a value and perhaps time; a gridded field with NaN where nothing was
            observed; or a file of either kind.
        target: where to predict, as for `FieldModel.predict`; by default a grid over the observations.
        variable: the name of the values in `context`; by default the only one.
        quantiles: probabilities, such as (0.05, 0.5, 0.95).
        samples: number of coherent samples.
        seed: of the samples.
        progress: show a progress bar.

    Example:
        >>> import numpy as np
        >>> import pandas as pd
        >>> import aenp
        >>> rng = np.random.default_rng(0)
        >>> stations = pd.DataFrame({"latitude": rng.uniform(44, 51, 30), "longitude": rng.uniform(2, 11, 30)})
        >>> stations["t2m"] = 288 + np.sin(stations["longitude"])
        >>> field = aenp.interpolate(stations, "44,51,2,11,1")  # south, north, west, east, step
        >>> dict(field.sizes), sorted(field)
        ({'latitude': 8, 'longitude': 10}, ['in_domain', 'mean', 'std'])
    """
    observed = open_points(context, variable)
    if "elevation" in observed:  # which tells the base model nothing, nor places apart
        observed = each_once(observed.drop(columns="elevation"), describe(context))
    for doubt in doubts(observed):
        warnings.warn(doubt, stacklevel=2)
    model = around(observed)
    outputs = outputs_of(model.process, quantiles, samples, parts=False)
    places = grid_over(model.frame) if target is None else target
    return model.predict_observed(observed, describe(context), places, outputs, progress=progress, seed=seed)


def around(observed: pd.DataFrame) -> FieldModel:
    """The base model in the units of observations as `open_points` returns them, and in degrees of equal length."""
    return FieldModel(base_model(), frame_of(observed)).eval()


def frame_of(observed: pd.DataFrame) -> Frame:
    """The frame of the base model around these observations."""
    latitude, longitude, values = (observed[name].to_numpy(float) for name in ("latitude", "longitude", "value"))
    west, east = arc(longitude)
    south, north = float(latitude.min()), float(latitude.max())
    length = max(math.cos(math.radians((south + north) / 2)), 0.02)
    axes = [Axis("latitude", 1.0, (south + north) / 2, south, north)]
    axes.append(Axis("longitude", 1 / length, (west + east) / 2, west, east))
    name, units, long_name = (observed.attrs.get(key) or "" for key in ("name", "units", "long_name"))
    value = Variable(name or "value", float(values.mean()), scale_of(observed["value"].to_numpy()), units, long_name)
    return Frame(axes, [value])


def arc(longitude: Float[ndarray, " points"]) -> tuple[float, float]:
    """West and east of the shortest arc that holds all longitudes; east may exceed 180."""
    turned = np.unique(longitude % 360)
    gaps = np.diff(turned, append=turned[0] + 360)
    west = turned[(gaps.argmax() + 1) % len(turned)]
    first = float((west + 180) % 360 - 180)
    return first, first + max(0.0, float(360 - gaps.max()))


def grid_over(frame: Frame) -> dict[str, Float[ndarray, " axis"]]:
    """A grid over the observations with a margin of a twentieth on each side, its cells as long as they are wide."""
    sides = {name: (axis.high - axis.low) / axis.unit or 1.0 for name, axis in frame.axes.items()}
    step = max(sides.values()) / SIDE
    grid = {}
    for name, axis in frame.axes.items():
        middle, half = (axis.low + axis.high) / 2, 0.55 * axis.unit * sides[name]
        count = max(2, round(sides[name] / step))
        if name == "latitude":
            ends = max(middle - half, -90.0), min(middle + half, 90.0)
        else:
            half = min(half, 180.0 * (1 - 1 / count))  # around the globe, the last cell is beside the first
            ends = middle - half, middle + half
        grid[name] = np.linspace(*ends, count)
    return grid


def doubts(observed: pd.DataFrame) -> Iterator[str]:
    """What makes these observations unlike those that the base model was trained on, in sentences.

    Of several times, that with the fewest and that with the most observations stand for all.
    """
    values = observed["value"].to_numpy()
    if is_constant(values) and len(values) >= FEWEST:
        yield f"all values are {values[0]:g}, which does not tell how they vary; the standard deviations are a guess"
    tables = [table for _, table in observed.groupby("time")] if "time" in observed else [observed]
    by_size = {len(table): table for table in tables}
    for size in sorted({min(by_size), max(by_size)}):
        yield from _doubts_at_one_time(by_size[size])


def _doubts_at_one_time(table: pd.DataFrame) -> Iterator[str]:
    advice = "so the prediction may be poor; compare it with `aenp.fit`"
    if len(table) < FEWEST:
        number = "is 1 observation" if len(table) == 1 else f"are {len(table)} observations"
        yield f"there {number}, and the base model was trained on {FEWEST} or more, {advice}"
        return
    frame = frame_of(table)
    x = frame.x({name: table[name].to_numpy() for name in frame.axes})
    x, y = x - x.mean(axis=0), table["value"].to_numpy(float)
    length, width = np.linalg.svd(x, compute_uv=False)
    if length > LONGEST * width:
        yield f"the observations lie nearly on a line, {length / max(width, 1e-9):.0f} times as long as wide, {advice}"
    if np.ptp(x, axis=0).max() > WIDEST:
        yield f"the observations span {np.ptp(x, axis=0).max():.0f}°, where the globe is not flat, {advice}"
    rest = y - y.mean() - x @ np.linalg.lstsq(x, y - y.mean(), rcond=None)[0]
    if len(table) >= 10 and not is_constant(table["value"].to_numpy()) and rest.var() < (1 - STEEPEST) * y.var():
        yield f"a plane explains {100 * (1 - rest.var() / y.var()):.0f} % of the variance, {advice} after removing it"
