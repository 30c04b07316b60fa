"""Metrics: what a model's predictions are measured by."""

import torch

from aenp.process import NeuralProcess
from aenp.symmetry import Motion
from aenp.task import Task


@torch.no_grad()
def equivariance_error(model: NeuralProcess, task: Task, motion: Motion) -> float:
    """How far a prediction is from moving along with the data: max |θ(g·ξ) − θ(ξ)| / max |θ(ξ)|.

    θ holds the predictive means and standard deviations, which share a unit, at the targets that are not masked.
    """
    original, moved = model(task), model(motion(task))
    mask = torch.ones_like(task.xt[..., 0], dtype=torch.bool) if task.target_mask is None else task.target_mask
    before, after = (torch.cat([p.mean[mask], p.stddev[mask]]) for p in (original, moved))
    return ((after - before).abs().max() / before.abs().max()).item()
