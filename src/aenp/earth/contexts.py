"""Contexts: what is observed, as a model sees it, in parts and together."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from aenp.earth.tiles import Tiles
from aenp.task import Task


@dataclass(frozen=True)
class Context:
    """What is known at one time, or at all.

    Args:
        task: the observations; its targets are the corners of the whole target.
        tiles: the windows in which they are seen.
        samples: the observations and the values drawn for each sample; None without samples.
    """

    task: Task
    tiles: Tiles
    samples: Task | None = None


def at_places(
    x: Float[ndarray, "points dim_x"], known: Float[ndarray, "points covariates"], batch: int = 1
) -> tuple[Tensor, ...]:
    """What `decode` sees of places: their inputs and, if there are any, their covariates."""
    parts = (x, known.astype(np.float32))[: 2 if known.shape[1] else 1]
    return tuple(torch.from_numpy(part).expand(batch, -1, -1) for part in parts)


def places_of(task: Task) -> Float[ndarray, "points dim_x"]:
    """Where the context is, in all tasks of a batch alike."""
    return np.asarray(task.xc[0])


def content(task: Task) -> bytes:
    """What tells a task with one batch from others."""
    known = (task.xc, task.yc, task.xt, task.context_covariates)
    return b"".join(each.numpy().tobytes() for each in known if each is not None)


def within(task: Task, keep: Bool[ndarray, " points"]) -> Task:
    """The task with only these points of its context."""
    if keep.all():
        return task
    which, mask, known = torch.from_numpy(keep), task.context_mask, task.context_covariates
    return replace(
        task,
        xc=task.xc[:, which],
        yc=task.yc[:, which],
        context_mask=None if mask is None else mask[:, which],
        context_covariates=None if known is None else known[:, which],
    )


def joined(task: Task, other: Task) -> Task:
    """The task with the context of the other too."""
    masks = [
        torch.ones_like(each.xc[..., 0], dtype=torch.bool) if each.context_mask is None else each.context_mask
        for each in (task, other)
    ]
    known = task.context_covariates, other.context_covariates
    return replace(
        task,
        xc=torch.cat([task.xc, other.xc], dim=1),
        yc=torch.cat([task.yc, other.yc], dim=1),
        context_mask=torch.cat(masks, dim=1),
        context_covariates=None if known[0] is None or known[1] is None else torch.cat([known[0], known[1]], dim=1),
    )
