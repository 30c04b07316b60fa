"""Kinds: tasks of several variables hold each value as a point, and say which variable it is of."""

import numpy as np
import torch

from aenp.data.kinds import CountedFromLevels, context_first, counted_from, largest_share, levels
from aenp.data.patches import Patches
from aenp.data.windows import Windows
from aenp.task import Task

RNG = np.random.default_rng(0)
AXIS = np.arange(8.0)
FIELDS = 100.0 * np.arange(3) + RNG.random((5, 8, 8, 3))
"Values whose hundreds are the number of the variable."
FIELDS[RNG.random(FIELDS.shape) < 0.3] = np.nan


def check(task: Task, covariates: int = 0) -> None:
    """Every value is told the variable that it is of."""
    assert task.yt is not None and task.context_covariates is not None and task.target_covariates is not None
    for y, known, mask in (
        (task.yc, task.context_covariates, task.context_mask),
        (task.yt, task.target_covariates, task.target_mask),
    ):
        there = torch.ones(y.shape[:2], dtype=torch.bool) if mask is None else mask
        kind = known[..., covariates:]
        assert kind.shape[-1] == 3 and torch.equal(kind[there].sum(-1), torch.ones(int(there.sum())))
        assert torch.equal((y[..., 0][there] / 100).floor().long(), kind[there].argmax(-1))


def test_patches_tell_the_variable_of_each_value_wherever_some_are_missing() -> None:
    source = Patches(FIELDS, (AXIS, AXIS), 8, (0.1, largest_share(3)), num_targets=50)
    check(source.batch(16, 0, seed=0))
    known = RNG.random((8, 8, 2)).astype(np.float32)
    task = Patches(FIELDS, (AXIS, AXIS), 8, (0.1, 0.3), covariates=known).batch(4, 0, seed=0)
    check(task, covariates=2)
    row, column = task.xt[0, 0].long().tolist()
    assert np.array_equal(task.target_covariates[0, 0, :2], known[row, column])  # type: ignore[index]


def test_windows_tell_the_variable_of_each_value_wherever_some_are_missing() -> None:
    places = RNG.random((64, 2))
    flat = FIELDS.reshape(5, 64, 3)
    check(Windows(flat, places, 0.8, max_points=60).batch(16, 0, seed=0))
    timed = Windows(flat, places, 0.8, times=np.arange(5.0), duration=2.0, covariates=RNG.random((5, 64, 1)))
    check(timed.batch(4, 0, seed=0), covariates=1)


def test_contexts_hold_much_of_one_variable_and_little_of_another() -> None:
    kind = np.arange(600) % 2
    shares = [np.mean(kind[context_first(np.random.default_rng(seed), kind, 2, 300)[:300]]) for seed in range(200)]
    assert min(shares) < 0.15 and max(shares) > 0.85 and 0.4 < np.mean(shares) < 0.6
    order = context_first(np.random.default_rng(0), kind, 2, 300)
    assert np.array_equal(np.sort(order), np.arange(600))


def test_each_variable_counts_from_its_own_mean_and_one_not_observed_from_zero() -> None:
    task = Patches(FIELDS, (AXIS, AXIS), 8, (0.1, largest_share(3))).batch(8, 0, seed=0)
    found = levels(task, 3)
    assert torch.allclose(found, 100 * torch.arange(3).double() + 0.5, atol=0.5) or bool((found == 0).any())
    relative = CountedFromLevels(Patches(FIELDS, (AXIS, AXIS), 8, (0.1, largest_share(3))), 3).batch(8, 0, seed=0)
    assert torch.allclose(levels(relative, 3), torch.zeros(8, 3).double(), atol=1e-9)
    again = counted_from(relative, -found)
    assert torch.allclose(again.yc, task.yc) and torch.allclose(again.yt, task.yt)  # type: ignore[arg-type]
    only = task.context_covariates[..., -3] == 1  # type: ignore[index]
    alone = Task(task.xc, task.yc, task.xt, None, only, None, task.context_covariates, task.target_covariates)
    assert torch.equal(levels(alone, 3)[:, 1:], torch.zeros(8, 2).double())
