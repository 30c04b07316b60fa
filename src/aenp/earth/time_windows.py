"""Tasks of observations some time apart, so that those of one time tell about another."""

import re
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from aenp.data.blocks import BATCHES
from aenp.data.windows import ROUNDING, Windows
from aenp.earth.climatology import DAY, YEAR, cycles_in
from aenp.earth.frame import Axis, Frame
from aenp.earth.sources import EPOCH
from aenp.task import Task

UNITS = 2.0
"Units of time in a window, as many as there are of place in the smallest one."
UNIT = re.compile("[A-Za-z:]")
"What tells a length of time from a number, which would count nanoseconds."


class InTime(NamedTuple):
    """Tasks for training and validation, the frame with time as an axis, and the lengths of the cycles, in days."""

    source: Windows
    validation: list[Task]
    frame: Frame
    cycles: tuple[float, ...]


def days_in(time: str) -> float:
    """The length of a window of time, such as "2 days" or "6 hours", in days."""
    try:
        days = pd.Timedelta(time) / pd.Timedelta(days=1) if UNIT.search(time) else np.nan
    except (TypeError, ValueError):
        days = np.nan
    if not 0 < days < np.inf:
        raise ValueError(f"time must be the length of a window, such as '2 days' or '6 hours'; got {time!r}")
    return float(days)


def in_time(windows: Windows, held_out: Windows, times: ndarray, frame: Frame, days: float) -> InTime:
    """Windows of one time as windows of so many days, the last tenth of the times for validation.

    Args:
        windows: of all values, for training.
        held_out: of all values, for validation.
        times: when these were observed, in order.
        frame: of the values, without time.
        days: length of the windows, both ends included.
    """
    covered = (times[-1] - times[0]) / np.timedelta64(1, "D")
    if covered < days:
        raise ValueError(
            f"the data cover {covered:.3g} days, less than a window of {days:.3g}; give data of more dates, or a "
            "shorter `time`"
        )
    step = np.diff(times).min() / np.timedelta64(1, "D")
    if days < (1 - ROUNDING) * step:
        raise ValueError(
            f"the times are {step:.3g} days apart or more, so that a window of {days:.3g} never holds two; give a "
            "longer `time`, or none"
        )
    axis = Axis("time", days / UNITS, float((times[0] - EPOCH) / np.timedelta64(1, "D")), window=days)
    frame = Frame([*frame.axes.values(), axis], frame.variables, frame.period, frame.covariates, frame.reference)
    first, x = len(times) - len(times) // 10, axis.x(times)
    source, last = _part(windows, slice(first), x), _part(held_out, slice(first, None), x)
    try:
        source.batch(1, 0, seed=0)
        validation = [last.batch(16, index, seed=0) for index in range(BATCHES)] if len(last.values) else []
    except ValueError as error:
        raise ValueError(
            f"no window of {days:.3g} days holds {windows.min_points} observations; give a longer `time`"
        ) from error
    cycles = tuple(1 / slow for slow, _ in (YEAR, DAY) if slow in cycles_in(times))
    return InTime(source, validation, frame, cycles)


def _part(windows: Windows, part: slice, times: Float[ndarray, " time"]) -> Windows:
    """Windows of time, within part of the times."""
    covariates = windows.covariates
    if covariates is not None and covariates.ndim == 3:
        covariates = covariates[part]
    return replace(windows, values=windows.values[part], times=times[part], duration=UNITS, covariates=covariates)
