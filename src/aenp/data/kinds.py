"""Kinds: values of several variables in one task, a point for each value, whose last covariates say which it is of."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from aenp.data.stream import TaskSource
from aenp.task import Task

PREFERENCE = 1.5
"Standard deviation, in logarithms, of how much sooner one kind of value is observed than another."


def one_hot(kind: Int[ndarray, "*points"], kinds: int) -> Float[ndarray, "*points kinds"]:
    """The covariates that say of which kind a value is."""
    return np.eye(kinds, dtype=np.float32)[kind]


def with_kind(
    known: Float[ndarray, "points covariates"] | None, kind: Int[ndarray, " points"], kinds: int
) -> Float[ndarray, "points covariates_and_kinds"] | None:
    """Covariates followed by those that say of which kind a value is, where there are several."""
    if kinds == 1:
        return known
    return one_hot(kind, kinds) if known is None else np.concatenate([known, one_hot(kind, kinds)], axis=1)


def largest_share(kinds: int, of_one: float = 1 / 3) -> float:
    """The largest share of a task's values that is context: by default a third, or all but two thirds of one kind."""
    return (kinds - 1 + of_one) / kinds


def context_first(
    rng: np.random.Generator, kind: Int[ndarray, " points"], kinds: int, seen: int
) -> Int[ndarray, " points"]:
    """A random order of values, the first `seen` of which are more often of some kinds than of others.

    So a model meets contexts that hold much of one variable and little or nothing of another.
    """
    rates = np.exp(PREFERENCE * rng.standard_normal(kinds))
    order = np.argsort(rng.exponential(size=len(kind)) / rates[kind])
    return np.concatenate([order[:seen], rng.permutation(order[seen:])])


def levels(task: Task, kinds: int) -> Float[Tensor, "batch kinds"]:
    """The mean of each kind of value in a task's context; zero where there are none."""
    if task.context_covariates is None:
        raise ValueError("the last covariates of a task say which kind its values are of; it has none")
    of_kind = task.context_covariates[..., -kinds:].to(task.yc)
    return (of_kind * task.yc).sum(dim=1) / of_kind.sum(dim=1).clamp(min=1)


def counted_from(task: Task, level: Float[Tensor, "#batch kinds"]) -> Task:
    """The task with each kind of value counted from its level."""

    def shift(covariates: Tensor) -> Float[Tensor, "batch points 1"]:
        return (covariates[..., -level.shape[-1] :].to(level) * level.unsqueeze(1)).sum(dim=-1, keepdim=True)

    at_context, at_targets = task.context_covariates, task.target_covariates
    if at_context is None or at_targets is None:
        raise ValueError("the last covariates of a task say which kind its values are of; it has none")
    yt = None if task.yt is None else task.yt - shift(at_targets)
    return replace(task, yc=task.yc - shift(at_context), yt=yt)


def levels_are_closer(tasks: Iterable[Task], kinds: int) -> bool:
    """Whether the targets are closer to the levels of their contexts than to zero."""
    pairs = [(_squares(task), _squares(counted_from(task, levels(task, kinds)))) for task in tasks]
    return sum(relative for _, relative in pairs) < sum(raw for raw, _ in pairs)


def _squares(task: Task) -> float:
    """The sum of the squares of the targets that count; those that do not are zero."""
    if task.yt is None:
        raise ValueError("tasks must have target outputs; got some without")
    return task.yt.double().square().sum().item()


@dataclass(frozen=True)
class CountedFromLevels:
    """Tasks whose values of each kind are counted from the mean of those in the context."""

    source: TaskSource
    kinds: int

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream that belongs to `seed`."""
        return self.relative(self.source.batch(batch_size, index, seed))

    def relative(self, task: Task) -> Task:
        """One batch so counted."""
        return counted_from(task, levels(task, self.kinds))
