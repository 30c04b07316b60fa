"""Tasks of observations some time apart, so that those of one time tell about another."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy import ndarray

from aenp.data.windows import Windows
from aenp.earth.climatology import DAY, YEAR, cycles_in
from aenp.earth.frame import Axis, Frame
from aenp.earth.sources import EPOCH
from aenp.task import Task

TARGETS = 256
"Targets of a task that are scored, to train faster."


class InTime(NamedTuple):
    """Tasks for training and validation, the frame with time as an axis, and the lengths of the cycles, in days."""

    source: Windows
    validation: list[Task]
    frame: Frame
    cycles: tuple[float, ...]


def days_in(time: str) -> float:
    """The length of a window of time, such as "2 days" or "6 hours", in days."""
    try:
        days = pd.Timedelta(time) / pd.Timedelta(days=1)
    except ValueError:
        days = np.nan
    if not 0 < days < np.inf:
        raise ValueError(f"time must be the length of a window, such as '2 days' or '6 hours'; got {time!r}")
    return float(days)


def in_time(windows: Windows, times: ndarray, frame: Frame, days: float) -> InTime:
    """Windows of one time as windows of so many days, the last tenth of the times for validation.

    A unit of time is as much of a window as a unit of place.

    Args:
        windows: all values, each time a task of its own.
        times: when they were observed, in order.
        frame: of the values, without time.
        days: length of the windows, both ends included.
    """
    covered = (times[-1] - times[0]) / np.timedelta64(1, "D") if len(times) else 0.0
    if covered < days:
        raise ValueError(
            f"the data cover {covered:.3g} days, less than a window of {days:.3g}; give data of more dates, or a "
            "shorter `time`"
        )
    first = float((times[0] - EPOCH) / np.timedelta64(1, "D"))
    axis = Axis("time", days / windows.extent, first, window=days)
    frame = Frame([*frame.axes.values(), axis], frame.variables, frame.period, frame.covariates, frame.reference)
    windows = replace(windows, times=axis.x(times), duration=windows.extent, num_targets=TARGETS)
    held_out = len(times) // 10
    training, last = (
        _part(windows, part) for part in (slice(len(times) - held_out), slice(len(times) - held_out, None))
    )
    validation = [last.batch(16, index, seed=0) for index in range(4)] if held_out else []
    known = cycles_in(times)
    return InTime(training, validation, frame, tuple(1 / each for each, _ in (YEAR, DAY) if each in known))


def _part(windows: Windows, part: slice) -> Windows:
    """The windows within some of the times."""
    values, times, covariates = windows.values, windows.times, windows.covariates
    if covariates is not None and covariates.ndim == 3:
        covariates = covariates[part]
    return replace(windows, values=values[part], times=None if times is None else times[part], covariates=covariates)
