"""Scores that are to be expected given a task's observations, for one who knows the law of its field."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor
from torch.distributions import Distribution, Normal

from aenp.evaluation.metrics import crps
from aenp.task import Task

NODES = 40
"Values of each target over which scores are averaged."


class Case(NamedTuple):
    """A task, and what one who knows the field's law predicts of each target."""

    task: Task
    truth: Normal


def normal(mean: Float[Tensor, " targets"], std: Float[Tensor, " targets"]) -> Normal:
    """The distribution of each target of a task."""
    return Normal(mean[None, :, None], std[None, :, None])


def expected(prediction: Distribution, truth: Normal) -> list[float]:
    """The expectations of log-likelihood, CRPS and share in 95 % intervals, by Gauss and Hermite's rule."""
    nodes, weights = hermegauss(NODES)
    loglik, error = 0.0, 0.0
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        y = (truth.mean + node * truth.stddev).to(prediction.mean)
        loglik += weight * prediction.log_prob(y).mean().item()
        error += weight * crps(prediction, y).mean().item()
    return [loglik, error, expected_share(prediction, truth)]


def expected_share(prediction: Distribution, truth: Normal) -> float:
    """The probability of the prediction's 95 % intervals, a mean over targets."""
    low, high = (prediction.icdf(torch.full_like(prediction.mean, p)).to(truth.mean) for p in (0.025, 0.975))
    return (truth.cdf(high) - truth.cdf(low)).mean().item()
