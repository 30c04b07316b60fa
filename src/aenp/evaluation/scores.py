"""Evaluation: scores of a model on each of an experiment's test tasks, beside the oracles."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Distribution

from aenp.evaluation.metrics import covered, crps, equivariance_deviation, moved_distances
from aenp.inference import loglik
from aenp.process import NeuralProcess, Predictions
from aenp.symmetry import Translation
from aenp.task import Task

LEVELS = (0.5, 0.9, 0.95)
TaskValues = dict[str, Float[Tensor, "strata tasks"]]
"The values of each metric on each task."
Blocks = Int[Tensor, "strata tasks"]


@dataclass(frozen=True)
class Stratum:
    """A batch of similar tasks.

    Args:
        task: the tasks.
        oracles: what oracles predict for such tasks, by name, where there are any.
        blocks: for each task the number of the block, such as a day, that it is from; tasks of one block resemble each
            other, also those in different strata. By default every task is a block of its own.
    """

    task: Task
    oracles: Callable[[Task], Mapping[str, Distribution]] | None = None
    blocks: Sequence[int] | None = None


@dataclass(frozen=True)
class Score:
    """A mean over tasks and its standard error, with blocks of tasks drawn independently."""

    mean: float
    standard_error: float

    @staticmethod
    def of(values: Float[Tensor, "strata tasks"], blocks: Blocks | None = None) -> "Score":
        strata, tasks = values.shape
        if blocks is None:
            error = (values.var(dim=1) / tasks).sum().sqrt() / strata
        else:
            deviations = (values - values.mean(dim=1, keepdim=True)).flatten()
            sums = torch.zeros(int(blocks.max()) + 1, dtype=values.dtype).index_add(0, blocks.flatten(), deviations)
            error = (sums.square().sum() * len(sums) / (len(sums) - 1)).sqrt() / values.numel()
        return Score(values.mean().item(), error.item())

    @property
    def sign(self) -> int:
        """1 or −1 if the mean is more than two standard errors above or below zero, or else 0."""
        return int(self.mean > 2 * self.standard_error) - int(self.mean < -2 * self.standard_error)

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"


def blocks_of(strata: Sequence[Stratum]) -> Blocks | None:
    """The block of each task, counted from zero without gaps; None if every task is a block of its own."""
    if strata[0].blocks is None:
        return None
    return torch.tensor([stratum.blocks for stratum in strata]).unique(return_inverse=True)[1]


@torch.no_grad()
def model_values(model: NeuralProcess, strata: Iterable[Stratum], norm: int) -> TaskValues:
    """Each metric of `model` on each task: averages over the task's targets.

    The equivariance distance is that for a random translation of each stratum, the same for every model.
    """
    values, shifts = defaultdict(list), torch.Generator().manual_seed(0)
    model.eval()
    for task in (stratum.task for stratum in strata):
        prediction = model(task)
        for name, value in distribution_values(prediction, task).items():
            values[name].append(value)
        values["context_loglik"].append(loglik(model, _context(task)))
        both = Predictions(prediction, prediction)
        if model.symmetry == "approx":
            with model.equivariant():
                both = Predictions(prediction, model(task))
            values["equivariance_deviation"].append(equivariance_deviation(both, norm, task.target_mask))
            values["equivariant_loglik"].append(distribution_values(both.equivariant, task)["loglik"])
        moved = model(Translation(model.dim_x).sample(generator=shifts)(task))
        values["equivariance_distance"].append(moved_distances(moved, both, norm, task.target_mask).mean)
    return {name: torch.stack(value).double() for name, value in values.items()}


@torch.no_grad()
def oracle_values(strata: Iterable[Stratum]) -> dict[str, TaskValues]:
    """The log-likelihoods of every oracle on each task's targets and context, where there are oracles."""
    values: dict[str, dict[str, list[Tensor]]] = defaultdict(lambda: defaultdict(list))
    for stratum in strata:
        for name, task in (("loglik", stratum.task), ("context_loglik", _context(stratum.task))):
            assert task.yt is not None
            for oracle, prediction in stratum.oracles(task).items() if stratum.oracles else ():
                values[oracle][name].append(_average(prediction.log_prob(task.yt.to(prediction.mean)).sum(-1), task))
    return {oracle: {name: torch.stack(v).double() for name, v in each.items()} for oracle, each in values.items()}


def distribution_values(prediction: Distribution, task: Task) -> dict[str, Float[Tensor, " tasks"]]:
    """Log-likelihood, CRPS and coverage, averaged over each task's targets."""
    y = task.yt.to(prediction.mean)  # type: ignore[union-attr]
    pointwise = {"loglik": prediction.log_prob(y).sum(-1), "crps": crps(prediction, y).mean(-1)}
    for level in LEVELS:
        pointwise[f"coverage_{100 * level:g}"] = covered(prediction, y, level).to(y).mean(-1)
    return {name: _average(value, task) for name, value in pointwise.items()}


def _average(values: Float[Tensor, "tasks target"], task: Task) -> Float[Tensor, " tasks"]:
    """The mean over the targets that count."""
    if task.target_mask is None:
        return values.mean(-1)
    return torch.where(task.target_mask, values, 0.0).sum(-1) / task.target_mask.sum(-1)


def _context(task: Task) -> Task:
    """The task of predicting the context's own outputs."""
    return task.with_targets(task.xc, task.yc, task.context_mask, task.context_covariates)


def summary(
    values: TaskValues, oracles: Mapping[str, TaskValues] | None = None, blocks: Blocks | None = None
) -> dict[str, Any]:
    """Scores as JSON values: each metric, and the gap in log-likelihood to each oracle on the same tasks."""
    scores: dict[str, Any] = {name: asdict(Score.of(value, blocks)) for name, value in values.items()}
    if oracles:
        gaps = {oracle: Score.of(best["loglik"] - values["loglik"], blocks) for oracle, best in oracles.items()}
        scores["gap"] = {oracle: asdict(gap) for oracle, gap in gaps.items()}
    return scores
