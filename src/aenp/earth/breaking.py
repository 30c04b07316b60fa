"""Is the symmetry broken? What places are worth to a model, on data that are held out."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from scipy import stats
from torch import Tensor

from aenp.data.patches import split
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import FitOptions, fit_in
from aenp.earth.gridded import open_gridded
from aenp.earth.holdout import Choice, held_out_table
from aenp.earth.points import PointsLike, is_scattered, open_points
from aenp.earth.regions import Period, Region
from aenp.earth.sources import describe
from aenp.fixed_inputs import FixedInputs
from aenp.inference import evaluating, loglik
from aenp.process import NeuralProcess, Symmetry
from aenp.task import Task
from aenp.training.directory import CHECKPOINT
from aenp.training.loop import Outcome

PLACE = ("latitude", "longitude")
WINDOW, MIN_POINTS, MAX_TARGETS = 2.0, 8, 256
"The largest side of a window in the model's unit, the observations that it needs, and the targets that are scored."
WINDOWS = 8
"Windows at each time, which exchange their places."
LEVEL, MIN_DAYS = 0.95, 4
"Probability of the intervals, and the number of days that these need."
TRAINED = 0.7
"The share of the dates that the models are trained on."
SLACK = 1e-6
DRAWN = ("variable", "region", "seed")
"The options that matter for tests of models that are given."


class Gain(NamedTuple):
    """A mean gain in log-likelihood per target point, and its confidence interval."""

    mean: float
    low: float
    high: float

    @staticmethod
    def of(values: Float[ndarray, " days"]) -> "Gain":
        """The mean of independent values, with Student's interval."""
        reach = stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stats.sem(values)
        return Gain(float(values.mean()), float(values.mean() - reach), float(values.mean() + reach))

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Block:
    """Tasks of one time that lie at random places.

    Args:
        task: the tasks, as a batch.
        places: the middle of each task's window.
        day: tasks of one day resemble each other; those of different days count as independent.
    """

    task: Task
    places: Float[Tensor, "tasks dim_x"]
    day: int

    def exchanged(self) -> Task:
        """The same tasks, each at the place of the next."""
        shift = (self.places.roll(-1, 0) - self.places).unsqueeze(1)
        return self.task.map_inputs(lambda x: x + shift.to(x))


@dataclass(frozen=True)
class SymmetryTest:
    """What places are worth to an approximately equivariant model, in nats per target point of held-out data.

    Args:
        place: the gain of predictions for tasks where they are over those for the same tasks moved to the places of
            others. If no place differs from another its mean is zero, whatever the model has learned: it is the test.
        equivariant: the gain of the model over its own equivariant part.
        exact: the gain over an exact model. Its interval leaves out the luck of two separate trainings.
        days: number of days, over which the intervals are.
    """

    place: Gain
    equivariant: Gain
    exact: Gain | None
    days: int

    @property
    def broken(self) -> bool:
        """Whether the places clearly differ."""
        return self.place.low > 0

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        if not self.broken:
            return (
                "There is no sign that the symmetry is broken: the right places are worth "
                f"{self.place.mean:.3f} nats per target more than others, at most {max(self.place.high, 0):.3f}."
            )
        found = f"The symmetry is broken: the right places are worth {self.place} nats per target more than others"
        if self.equivariant.low > 0:
            return f"{found}, and knowing them gains the model {self.equivariant}."
        return f"{found}, but this model does not clearly gain by it; train it for longer."

    def __str__(self) -> str:
        rows = {"right places over others": self.place, "over its own equivariant part": self.equivariant}
        if self.exact is not None:
            rows["over the exact model"] = self.exact
        title = f"gain of the approximate model, nats per target, {LEVEL:.0%} interval over {self.days} days"
        return "\n".join([title, *(f"  {name:<30} {gain}" for name, gain in rows.items()), self.verdict])


def symmetry_test(
    data: PointsLike,
    approximate: FieldModel | None = None,
    exact: FieldModel | None = None,
    minutes: float = 10.0,
    out: str | os.PathLike[str] | None = None,
    days: Period | None = None,
    tasks: int = 60,
    **options: Any,
) -> SymmetryTest:
    """Whether the symmetry is broken in `data`: whether places differ in a way that a model can learn and use.

    The test is made for error rates: on data whose law is the same everywhere, tasks and places are independent, and
    places gain nothing on average, for any model. For a field on a grid that is exact. Stations are more in some places
    than in others, which a model may have learned too.

    Args:
        data: a field or stations, as for `fit`.
        approximate: a model with fixed inputs that has not seen the days to test on; by default it is fitted, and an
            exact one too, to the first 70 % of the dates.
        exact: an exactly equivariant model of the same kind, to compare with.
        minutes: how long to train each model, if they are fitted.
        out: directory for their runs; by default none is kept.
        days: first and last date to test on; by default those after the training period.
        tasks: the largest number of times to test on, spread over the days.
        options: `variable`, `region` and `seed`, and, if models are fitted, further ones of `fit`; no covariates, which
            would move with the tasks.
    """
    if exact is not None and approximate is None:
        raise ValueError("the exact model is compared with an approximate one; give both, or neither")
    fitting = [each.name for each in fields(FitOptions) if each.name not in ("symmetry", "minutes", "given")]
    allowed = fitting if approximate is None else DRAWN
    if unknown := [name for name in options if name not in allowed]:
        raise ValueError(f"the test's further options are {', '.join(allowed)}; got {', '.join(unknown)}. Leave it out")
    if approximate is None:
        chosen = FitOptions(minutes=minutes, **options)
        with TemporaryDirectory() as temporary:
            approximate, exact = (model for model, _ in fit_pair(Path(out or temporary), data, chosen))
    if approximate.frame.kinds:
        raise ValueError("the test needs models of one variable; fit one, with `variable`")
    if approximate.frame.covariates:
        raise ValueError(
            "the test needs models without covariates, which would move with the tasks; fit one without them"
        )
    choice = Choice(days=days, tasks=tasks, **{name: options[name] for name in DRAWN if name in options})
    blocks = draw_blocks(approximate, held_out_table(approximate, data, choice), choice.seed)
    return measure(approximate.process, blocks, None if exact is None else exact.process)


def fit_pair(out: Path, data: PointsLike, options: FitOptions) -> list[tuple[FieldModel, Outcome]]:
    """An approximate and an exact model fitted to the period, or else to the first dates, in directories of their own.

    A run that is there is continued.
    """
    if not (options.variable is None or isinstance(options.variable, str)):
        raise ValueError(f"the test is of one variable; got {', '.join(options.variable)}. Choose one with `variable`")
    period = options.period or _first_dates(data, options.variable, options.region)
    pair = []
    symmetries: tuple[Symmetry, ...] = ("approx", "exact")
    for symmetry in symmetries:
        chosen = replace(options, symmetry=symmetry, period=period)
        pair.append(fit_in(out / symmetry, data, chosen, (out / symmetry / CHECKPOINT).exists()))
    return pair


def _first_dates(data: PointsLike, variable: str | None, region: Region | None) -> Period:
    """The first and last date to train on."""
    source = open_points(data, variable, region) if is_scattered(data) else open_gridded(data, variable, region)
    known = source.coords if isinstance(source, xr.DataArray) else source.columns
    times = np.asarray(source["time"] if "time" in known else ())
    dates = np.unique(times.astype("datetime64[D]")) if np.issubdtype(times.dtype, np.datetime64) else times
    number = int(TRAINED * len(dates))
    if len(dates) - number < MIN_DAYS:
        raise ValueError(
            f"{describe(data)} has {len(dates)} dates, of which {len(dates) - number} would be left to test on; a "
            f"confidence interval needs {MIN_DAYS}. Give data of more days"
        )
    return str(dates[0]), str(dates[number - 1])


def draw_blocks(model: FieldModel, table: pd.DataFrame, seed: int) -> list[Block]:
    """Windows of the observations of each time, all within the box of the training data, in the model's units."""
    rng, frame = np.random.default_rng(seed), model.frame
    dims = [list(frame.axes).index(name) for name in PLACE]
    x = frame.x({name: table[name].to_numpy() for name in frame.axes})
    y = frame.y(table["value"].to_numpy(float), table)[:, None]
    low, high = np.array([frame.domain[d] or (x[:, d].min(), x[:, d].max()) for d in dims]).T
    half = min(WINDOW, (high - low).min() / 2) / 2
    inner = ((x[:, dims] >= low + half - SLACK) & (x[:, dims] <= high - half + SLACK)).all(axis=1)
    day = pd.factorize(table["time"].dt.floor("D"))[0]
    blocks = []
    for rows in table.groupby("time").indices.values():
        tasks, places = [], []
        for centre in rng.permutation(rows[inner[rows]])[:WINDOWS]:
            near = rows[(np.abs(x[rows][:, dims] - x[centre, dims]) <= half + SLACK).all(axis=1)]
            if len(near) >= MIN_POINTS:
                order = rng.permutation(near)
                seen = int(rng.integers(max(1, len(near) // 100), len(near) // 3, endpoint=True))
                tasks.append(split(x[order], y[order], seen, MAX_TARGETS))
                places.append(np.where(np.isin(np.arange(x.shape[1]), dims), x[centre], 0.0))
        if len(tasks) > 1:
            task = Task.stack(tasks)
            task = replace(task, yc=task.yc.to(model.process.dtype), yt=task.yt.to(model.process.dtype))  # type: ignore[union-attr]
            blocks.append(Block(task, torch.from_numpy(np.stack(places)), int(day[rows[0]])))
    return blocks


def measure(model: NeuralProcess, blocks: Sequence[Block], exact: NeuralProcess | None = None) -> SymmetryTest:
    """The gains of an approximate model on these tasks, with its local effects in full."""
    if model.symmetry != "approx" or model.fixed_inputs is None:
        raise ValueError(f"the test needs an approximate model, with fixed inputs; got symmetry {model.symmetry!r}")
    if (days := len({block.day for block in blocks})) < MIN_DAYS:
        raise ValueError(
            f"a confidence interval needs {MIN_DAYS} days with windows of {MIN_POINTS} observations within the box of "
            f"the training data; got {days}. Give data of more days"
        )
    with torch.no_grad(), evaluating(model), _full_strength(model.fixed_inputs):
        gains = pd.DataFrame([_gains(model, block, exact) for block in blocks])
    means = gains.groupby([block.day for block in blocks]).mean()
    found = {str(name): Gain.of(means[name].to_numpy()) for name in means}
    return SymmetryTest(found["place"], found["equivariant"], found.get("exact"), days)


@contextmanager
def _full_strength(fixed_inputs: FixedInputs) -> Iterator[None]:
    """With the fixed inputs as they were learned, before places left out of training told how far to trust them."""
    strength, fixed_inputs.strength = fixed_inputs.strength, 1.0
    try:
        yield
    finally:
        fixed_inputs.strength = strength


def _gains(model: NeuralProcess, block: Block, exact: NeuralProcess | None) -> dict[str, float]:
    """The mean gains on one block."""
    here, exchanged = loglik(model, block.task), loglik(model, block.exchanged())
    with model.equivariant():
        without = loglik(model, block.task)
    gains = {"place": here - exchanged, "equivariant": here - without}
    if exact is not None:
        with evaluating(exact):
            gains["exact"] = here - loglik(exact, block.task)
    return {name: gain.mean().item() for name, gain in gains.items()}
