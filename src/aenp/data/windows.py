"""Tasks from stations: all observations in a window of space and time, of which some are the context."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from aenp.data.kinds import context_first, largest_share, with_kind
from aenp.data.patches import check_covariates, split
from aenp.task import Task

ROUNDING = 1e-6
"Of a duration, by which times may be rounded."


@dataclass(frozen=True, eq=False)
class Windows:
    """Windows of `extent` around random stations, and of some time; a random part of each is the context.

    Of N observations in a window, ⌊N/100⌋ to ⌊N/3⌋ are context, or up to another share, at least one, and the others
    targets; of several variables, up to `largest_share`.

    Args:
        values: `(time, stations)`; NaN where there is no observation. Of several variables it is `(time, stations,
            kinds)`: each value is a point, whose last covariates say of which it is.
        places: where the stations are, `(stations, dimensions)`; the first two dimensions make the window.
        extent: side of the window, or its smallest and largest.
        times: the time of each step, which becomes the third input; by default time is not an input.
        steps: number of steps in a window.
        stride: from one step of a window to the next, in steps of the values: 24 for one in each day of hourly values.
        box: lower and upper bound of the first two dimensions, within which windows lie at random places, as in a grid;
            by default windows lie around random stations.
        max_points: largest number of observations in a task; a window with more of them is sampled.
        min_points: smallest number.
        num_targets: score at most this many targets, to train faster; by default all.
        covariates: what else is known of each station, `(stations, covariates)`, or of each observation,
            `(time, stations, covariates)`; by default nothing.
        unseen: which stations are the only targets, and never context; by default any may be either.
        share: the largest share of the observations of one variable that is context.
        duration: length of a window in the units of `times`, both ends included, in place of `steps`.

    Example:
        >>> import numpy as np
        >>> from aenp.data import Windows
        >>> rng = np.random.default_rng(0)
        >>> values, places = rng.standard_normal((5, 200)), rng.uniform(0, 10, (200, 2))  # 5 times, 200 stations
        >>> task = Windows(values, places, extent=4.0).batch(batch_size=2, index=0, seed=0)
        >>> len(task), task.dim_x, task.xt.shape[1] > task.xc.shape[1]
        (2, 2, True)
    """

    values: Float[ndarray, "time stations *kinds"]
    places: Float[ndarray, "stations dimensions"]
    extent: float | tuple[float, float]
    times: Float[ndarray, " time"] | None = None
    steps: int = 1
    stride: int = 1
    box: tuple[tuple[float, float], tuple[float, float]] | None = None
    max_points: int = 1024
    min_points: int = 8
    num_targets: int | None = None
    covariates: Float[ndarray, "*time_and_stations covariates"] | None = None
    unseen: Bool[ndarray, " stations"] | None = None
    share: float = 1 / 3
    duration: float = 0.0

    def __post_init__(self) -> None:
        check_covariates(self.covariates, self.values.shape[:2])
        if (self.steps > 1 or self.duration > 0) and self.times is None:
            raise ValueError("observations of several steps differ by their times; give `times`")
        if self.duration < 0 or (self.duration > 0 and self.steps > 1):
            raise ValueError(f"give a positive duration or several steps; got {self.duration} and {self.steps}")
        if not 0 < self.share < 1:
            raise ValueError(f"share is a part of the observations, between 0 and 1; got {self.share}")
        if not 2 <= self.min_points <= self.max_points:
            raise ValueError(
                f"a task needs 2 ≤ min_points ≤ max_points observations; got {self.min_points} and {self.max_points}"
            )
        if len(self.values) < self.span:
            raise ValueError(f"{len(self.values)} time steps are too few for a window of {self.span}")
        if self.box is not None and not all(upper - lower >= np.max(self.extent) for lower, upper in self.box):
            raise ValueError(f"a window of {self.extent} does not fit into the box {self.box}; make `extent` smaller")

    @property
    def kinds(self) -> int:
        """The number of variables."""
        return self.values.shape[2] if self.values.ndim > 2 else 1

    @property
    def span(self) -> int:
        """Steps of the values from the first of a window to the last, both included."""
        return (self.steps - 1) * self.stride + 1

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream that belongs to `seed`."""
        return self.batch_with_starts(batch_size, index, seed)[0]

    def batch_with_starts(self, batch_size: int, index: int, seed: int) -> tuple[Task, list[int]]:
        """The same batch, and for each task its first step."""
        rng = np.random.default_rng((seed, index))
        tasks, starts = zip(*(self._draw(rng) for _ in range(batch_size)), strict=True)
        return Task.stack(tasks), list(starts)

    def _draw(self, rng: np.random.Generator) -> tuple[Task, int]:
        """One task, from the first of up to a thousand random windows that holds enough observations; and its start."""
        for _ in range(1000):
            start = int(rng.integers(len(self.values) - self.span + 1))
            extent = self._side(rng)
            centre = self._centre(rng, extent)
            inside = np.flatnonzero((np.abs(self.places[:, :2] - centre) <= extent / 2).all(axis=1))
            values = self.values[start : self._stop(start) : self.stride, inside]
            time, station, *kind = np.nonzero(~np.isnan(values))
            if len(time) >= self.min_points and self._divides(inside[station]):
                break
        else:
            raise ValueError(f"no window of {self.extent} holds {self.min_points} observations; make `extent` larger")
        order, points = rng.permutation(len(time)), min(len(time), self.max_points)
        least, most = max(1, points // 100), int(largest_share(self.kinds, self.share) * points)
        seen = int(rng.integers(least, max(least, most), endpoint=True))
        if kind:
            order = order[:points]
            order = order[context_first(rng, kind[0][order], self.kinds, seen)]
        context, targets = order[:seen], order[seen:points]
        if self.unseen is not None:
            hidden = self.unseen[inside[station[order]]]
            context, targets = order[~hidden][:seen], order[hidden][: self.max_points - seen]
        order = np.concatenate([context, targets])
        where = tuple(each[order] for each in (time, station, *kind))
        time, station = where[:2]
        moment = start + self.stride * time
        x = self.places[inside[station]]
        if self.times is not None:
            x = np.concatenate([x[:, :2], self.times[moment, None], x[:, 2:]], axis=1)
        known = self.covariates
        if known is not None:
            known = known[moment, inside[station]] if known.ndim == 3 else known[inside[station]]
        known = with_kind(known, where[-1], self.kinds)
        return split(x, values[where][:, None], len(context), self.num_targets, known), start

    def _centre(self, rng: np.random.Generator, extent: float) -> Float[ndarray, "2"]:
        """The middle of a window with such sides."""
        if self.box is not None:
            lower, upper = np.transpose(self.box)
            return rng.uniform(lower + extent / 2, upper - extent / 2)
        return self.places[rng.integers(len(self.places)), :2] + extent * rng.uniform(-0.5, 0.5, size=2)

    def _stop(self, start: int) -> int:
        """The step after the last one in a window."""
        if self.times is None or not self.duration:
            return start + self.span
        last = self.times[start] + (1 + ROUNDING) * self.duration
        return int(np.searchsorted(self.times, last, side="right"))

    def _side(self, rng: np.random.Generator) -> float:
        """The side of a window; of those in a range, small and large ones are as likely."""
        if isinstance(self.extent, tuple):
            return float(np.exp(rng.uniform(*np.log(self.extent))))
        return self.extent

    def _divides(self, stations: Int[ndarray, " observations"]) -> bool:
        """Whether observations of these stations can be context and targets."""
        return self.unseen is None or len(np.unique(self.unseen[stations])) == 2
