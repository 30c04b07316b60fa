"""Held-out blocks: parts of a single field or set of stations, to be predicted from what surrounds them."""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from aenp.data.patches import split
from aenp.task import Task

SHARE = 0.1
"The largest part of the values that is held out."
BATCHES, BATCH_SIZE = 4, 16


def hold_out_blocks(
    values: Float[ndarray, "*points"],
    places: Float[ndarray, "*points 2"],
    side: float,
    extent: float,
    covariates: Float[ndarray, "*points dim_covariates"] | None = None,
) -> tuple[Float[ndarray, "*points"], list[Task]]:
    """The values with NaN in some of the square blocks of this side, and tasks that predict these.

    The targets of a task are held out, its context is not; both lie in a window of `extent` around a random target.
    Values that are too few for that stay as they are, and there are no tasks.

    Example:
        >>> import numpy as np
        >>> from aenp.data import hold_out_blocks
        >>> rng = np.random.default_rng(0)
        >>> kept, tasks = hold_out_blocks(rng.standard_normal(500), rng.uniform(0, 10, (500, 2)), side=1.0, extent=4.0)
        >>> bool(0 < np.isnan(kept).mean() <= 0.1), len(tasks)
        (True, 4)
    """
    known = ~np.isnan(values)
    x, y = places[known], values[known, None]
    hidden = in_blocks(x, side, SHARE)
    if not hidden.any():
        return values, []
    rng = np.random.default_rng(0)
    centres = x[rng.choice(np.flatnonzero(hidden), BATCHES * BATCH_SIZE)]
    known_there = None if covariates is None else covariates[known]
    tasks = [_around(centre, x, y, hidden, extent, known_there) for centre in centres]
    kept = values.copy()
    kept[known] = np.where(hidden, np.nan, y[:, 0])
    return kept, [Task.stack(tasks[start::BATCHES]) for start in range(BATCHES)]


def in_blocks(x: Float[ndarray, "points 2"], side: float, share: float) -> Bool[ndarray, " points"]:
    """Whether each point is in one of the random square blocks of this side that hold at most a share of them."""
    block, sizes = np.unique(np.floor(x / side), axis=0, return_inverse=True, return_counts=True)[1:]
    order = np.random.default_rng(0).permutation(len(sizes))
    return np.isin(block.ravel(), order[np.cumsum(sizes[order]) <= share * len(x)])


def _around(
    centre: Float[ndarray, " 2"],
    x: Float[ndarray, "points 2"],
    y: Float[ndarray, "points 1"],
    hidden: Bool[ndarray, " points"],
    extent: float,
    covariates: Float[ndarray, "points dim_covariates"] | None,
) -> Task:
    """The task that predicts the hidden points in a window from the others there."""
    near = (np.abs(x - centre) <= extent / 2).all(axis=1)
    seen, predicted = np.flatnonzero(near & ~hidden), np.flatnonzero(near & hidden)
    order = np.concatenate([seen, predicted])
    return split(x[order], y[order], len(seen), covariates=None if covariates is None else covariates[order])
