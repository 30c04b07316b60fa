"""Metrics: what a model's predictions are measured by."""

import torch

from aenp.process import NeuralProcess
from aenp.symmetry import Motion
from aenp.task import Task


@torch.no_grad()
def equivariance_error(model: NeuralProcess, task: Task, motion: Motion) -> float:
    """How far a prediction is from moving along with the data: max |θ(g·ξ) − θ(ξ)| / max |θ(ξ)|.

    θ is the predictive mean, or the standard deviation, whichever is further off; targets that are masked do not count.
    """
    original, moved = model(task), model(motion(task))
    mask = torch.ones_like(task.xt[..., 0], dtype=torch.bool) if task.target_mask is None else task.target_mask
    errors = []
    for before, after in (
        (original.mean[mask], moved.mean[mask]),
        (original.stddev[mask], moved.stddev[mask]),
    ):
        errors.append(((after - before).abs().max() / before.abs().max()).item())
    return max(errors)
