"""Adjustment: how far local effects can be trusted, and how wide intervals must be, at places left out of training."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.distributions import Normal

from aenp import likelihoods
from aenp.evaluation.scores import Score
from aenp.likelihoods import widened
from aenp.process import NeuralProcess
from aenp.task import Task

LEVEL = 0.9
"Probability of the intervals whose coverage is reported, and calibrated."
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"Factors of the fixed inputs among which the best is chosen."
MIN_PLACES = 8
"The smallest number of places that tell how wide intervals must be."


@dataclass(frozen=True)
class Adjustment:
    """What places left out of training tell about a model.

    Args:
        strength: the factor of its fixed inputs that serves it best there; 0 if it is better without.
        gain: what they then add to the log-likelihood of a target, with the standard error over places.
        spread: the factor of its standard deviations with which 90 % of the targets are in its 90 % intervals.
    """

    strength: float
    gain: Score
    spread: float

    def __str__(self) -> str:
        if self.strength == 0:
            return "local effects are worth nothing at places left out of training, and are switched off"
        worth = f"{self.gain.mean:+.2f} ± {self.gain.standard_error:.2f} nats at places left out of training"
        return f"local effects are worth {worth}" + (f", at {self.strength:g} of their strength" * (self.strength < 1))


def adjust(model: NeuralProcess, tasks: Sequence[Task]) -> Adjustment:
    """What suits the model for tasks whose targets are at places left out of training; its strength is set to that.

    Of several strengths, that is the one whose gain less its standard error is the largest.
    """
    model.eval()
    where = torch.cat([_counted(task.xt[..., :2], task) for task in tasks]).unique(dim=0, return_inverse=True)[1]
    normal = isinstance(model.likelihood, likelihoods.Normal | likelihoods.NormalMixture)
    can_widen = normal and int(where.max()) + 1 >= MIN_PLACES
    tried = {}
    for strength in STRENGTHS if model.fixed_inputs is not None else (0.0,):
        _set_strength(model, strength)
        tried[strength] = _spread_and_loglik(model, tasks, can_widen)
    without = tried[0.0][1]
    gains = {strength: Score.of((values - without)[None], where[None]) for strength, (_, values) in tried.items()}
    best = max(gains, key=lambda strength: gains[strength].mean - gains[strength].standard_error)
    _set_strength(model, best)
    return Adjustment(best, gains[best], tried[best][0])


def widening(depths: Float[ndarray, " targets"]) -> float:
    """The factor of standard deviations that brings 90 % of these standardised errors into the 90 % intervals."""
    normal = Normal(0.0, 1.0).icdf(torch.tensor((1 + LEVEL) / 2)).item()
    return float(np.quantile(depths, LEVEL)) / normal


def _set_strength(model: NeuralProcess, strength: float) -> None:
    if model.fixed_inputs is not None:
        model.fixed_inputs.strength = strength


@torch.no_grad()
def _spread_and_loglik(
    model: NeuralProcess, tasks: Sequence[Task], can_widen: bool
) -> tuple[float, Float[Tensor, " targets"]]:
    """The factor of the standard deviations, 1 if they must stay, and with it the log-likelihood of each target."""
    predictions = [(model(task), task.yt, task) for task in tasks if task.yt is not None]
    spread = 1.0
    if can_widen:
        depths = [_counted((y - each.mean).abs() / each.stddev, task) for each, y, task in predictions]
        spread = widening(torch.cat(depths).double().numpy().ravel())
    values = [_counted(widened(each, spread).log_prob(y).sum(-1), task) for each, y, task in predictions]
    return spread, torch.cat(values).double()


def _counted(values: Float[Tensor, "tasks targets *rest"], task: Task) -> Float[Tensor, "counted *rest"]:
    """Those of the targets that count."""
    return values.flatten(0, 1) if task.target_mask is None else values[task.target_mask]
