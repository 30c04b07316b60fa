"""Adjustment: how far local effects can be trusted, and how wide intervals must be, at places left out of training."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.distributions import Distribution, Normal

from aenp.evaluation.scores import Score
from aenp.likelihoods import blurred, widened
from aenp.process import NeuralProcess
from aenp.task import Task

LEVEL = 0.9
"Probability of the intervals whose coverage is reported, and calibrated."
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"Factors of the fixed inputs among which the best is chosen."
FAULTY, FAULT = 0.01, 3.0
"The share of faulty observations, and their standard deviation, where that of the data is 1: one bad station must not "
"decide how far local effects are trusted."
MIN_PLACES = 16
"The smallest number of places that tell how wide intervals must be."


@dataclass(frozen=True)
class Adjustment:
    """What places left out of training tell about a model.

    Args:
        strength: the factor of its fixed inputs that serves it best there; 0 if it is better without.
        gain: what they then add to the log-likelihood of a target, with the standard error over places.
        spread: the factor of its standard deviations with which 90 % of the targets at other such places should be in
            its 90 % intervals.
    """

    strength: float
    gain: Score
    spread: float

    def __str__(self) -> str:
        if self.strength == 0:
            return "local effects are of no clear worth at places left out of training, and are switched off"
        worth = f"{self.gain.mean:+.2f} ± {self.gain.standard_error:.2f} nats at places left out of training"
        return f"local effects are worth {worth}" + (f", at {self.strength:g} of their strength" * (self.strength < 1))


def adjust(
    model: NeuralProcess,
    tasks: Sequence[Task],
    doubt: Callable[[Float[Tensor, "*points dim_x"]], Float[Tensor, "*points 1"]] | None = None,
) -> Adjustment:
    """What suits the model for tasks whose targets are at places left out of training; its strength is set to that.

    Of the strengths with which means are no further from the targets than without fixed inputs, that is the one whose
    gain less twice its standard error is the largest. `doubt` is the standard deviation of what the model cannot know
    of a place, by default zero.
    """
    model.eval()
    where = torch.cat([_counted(task.xt[..., :2], task) for task in tasks]).unique(dim=0, return_inverse=True)[1]
    places = int(where.max()) + 1
    # The quantile of a finite sample that holds for one more place.
    level = LEVEL * (1 + 1 / places) if model.likelihood.relative and places >= MIN_PLACES else None
    tried = {}
    for strength in STRENGTHS if model.fixed_inputs is not None else (0.0,):
        _set_strength(model, strength)
        tried[strength] = _scores(model, tasks, level, doubt)
    without = tried[0.0]
    gains = {
        strength: Score.of((each.loglik - without.loglik)[None], where[None])
        for strength, each in tried.items()
        if each.error <= without.error
    }
    best = max(gains, key=lambda strength: gains[strength].mean - 2 * gains[strength].standard_error)
    _set_strength(model, best)
    return Adjustment(best, gains[best], tried[best].spread)


TAILS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
"The quantiles that are the ends of an interval."


def depth(y: ndarray, mean: ndarray, low: ndarray, high: ndarray) -> ndarray:
    """The factors of deviations from the mean with which intervals would just hold y."""
    return np.maximum((y - mean) / (high - mean), (mean - y) / (mean - low))


def _set_strength(model: NeuralProcess, strength: float) -> None:
    if model.fixed_inputs is not None:
        model.fixed_inputs.strength = strength


class _Scores(NamedTuple):
    """How well a model with some strength predicts."""

    spread: float
    "The factor of its standard deviations, 1 if they must stay."
    loglik: Float[Tensor, " targets"]
    "With that factor."
    error: float
    "The mean absolute error."


@torch.no_grad()
def _scores(
    model: NeuralProcess, tasks: Sequence[Task], level: float | None, doubt: Callable[[Tensor], Tensor] | None
) -> _Scores:
    predictions: list[tuple[Distribution, Tensor, Task]] = []
    for task in tasks:
        if task.yt is not None:
            each = model(task)
            predictions.append((each if doubt is None else blurred(each, doubt(task.xt)), task.yt, task))
    spread = 1.0
    if level is not None:
        depths = []
        for each, y, task in predictions:
            low, high = (each.icdf(torch.full_like(y, tail)) for tail in TAILS)
            depths.append(_counted(torch.from_numpy(depth(*(v.numpy() for v in (y, each.mean, low, high)))), task))
        spread = float(np.quantile(torch.cat(depths).double().numpy(), level))
    values = [_counted(_log_prob(model, widened(each, spread), y).sum(-1), task) for each, y, task in predictions]
    errors = [_counted((each.mean - y).abs(), task) for each, y, task in predictions]
    return _Scores(spread, torch.cat(values).double(), torch.cat(errors).double().mean().item())


def _log_prob(model: NeuralProcess, prediction: Distribution, y: Tensor) -> Tensor:
    """The log-density of observations of which some are faulty, if the likelihood is one that can be widened."""
    if not model.likelihood.relative:
        return prediction.log_prob(y)
    parts = (1 - FAULTY, prediction), (FAULTY, Normal(0.0, FAULT))
    return torch.stack([math.log(share) + each.log_prob(y) for share, each in parts]).logsumexp(dim=0)


def _counted(values: Float[Tensor, "tasks targets *rest"], task: Task) -> Float[Tensor, "counted *rest"]:
    """Those of the targets that count."""
    return values.flatten(0, 1) if task.target_mask is None else values[task.target_mask]
