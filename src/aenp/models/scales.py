"""Scales of a model that suit given data: cells of a grid, wavelengths of an attention, where outputs count from."""

from collections.abc import Iterable

import torch
from torch import Tensor

from aenp.process import Values, masked_mean
from aenp.task import Task, each_task


def points_per_unit(tasks: Task | Iterable[Task]) -> float | list[float]:
    """How many cells per unit of x suit a grid for these tasks.

    Where the points lie on a lattice, even with gaps: one over its spacing, for each dimension if these differ.
    Otherwise: two cells per median distance from a point to its nearest neighbour.

    Example:
        >>> import torch
        >>> import aenp
        >>> x = torch.arange(20)[None, :, None] / 4  # four points per unit
        >>> aenp.points_per_unit(aenp.Task(x[:, ::2], torch.zeros(1, 10, 1), x[:, 1::2]))
        4.0
    """
    clouds = _clouds(tasks)
    steps = [_lattice_step([cloud[:, d] for cloud in clouds]) for d in range(clouds[0].shape[1])]
    if all(steps) and _filled(clouds, steps) > 0.01:
        counts = [float(f"{1 / step:.6g}") for step in steps]
        return counts[0] if len(set(counts)) == 1 else counts
    return float(f"{2 / _spacing(clouds):.6g}")


def wavelengths(tasks: Task | Iterable[Task]) -> tuple[float, float]:
    """The wavelengths that suit spectral attention: from twice the context's spacing to twice the extent of a task.

    Example:
        >>> import torch
        >>> import aenp
        >>> x = torch.arange(101)[None, :, None] / 10
        >>> shortest, longest = aenp.wavelengths(aenp.Task(x[:, ::2], torch.zeros(1, 51, 1), x[:, 1::2]))
        >>> shortest < 1 < longest
        True
    """
    tasks = list(each_task(tasks))
    clouds = _clouds(tasks)
    extent = torch.stack([(cloud.amax(0) - cloud.amin(0)).max() for cloud in clouds]).median().item()
    contexts = _distinct(
        task.with_targets(task.xc, None, task.context_mask, task.context_covariates)
        for task in tasks
        if task.xc.shape[1]
    )
    shortest = 2 * _spacing([cloud for cloud in contexts if len(cloud) > 1] or clouds)
    return float(f"{shortest:.6g}"), float(f"{max(2 * extent, shortest):.6g}")


def relative_values(tasks: Task | Iterable[Task]) -> Values:
    """`centred` where the mean of a context is closer to the targets than zero is, or else `raw`."""
    raw = centred = 0.0
    for task in each_task(tasks):
        if task.yt is None:
            raise ValueError("tasks must have target outputs; got some without")
        mean = masked_mean(task.yc.double(), task).unsqueeze(1)
        counts = 1.0 if task.target_mask is None else task.target_mask.unsqueeze(-1)
        raw += (task.yt.double().square() * counts).sum().item()
        centred += ((task.yt.double() - mean).square() * counts).sum().item()
    return "centred" if centred < raw else "raw"


def _clouds(tasks: Task | Iterable[Task]) -> list[Tensor]:
    """The distinct points of each task that count, context and targets together: `(points, dim_x)` each."""
    clouds = _distinct(tasks)
    if not any(len(cloud) > 1 for cloud in clouds):
        raise ValueError("at least one of the tasks must have two distinct points; got none")
    return [cloud for cloud in clouds if len(cloud)]


def _distinct(tasks: Task | Iterable[Task]) -> list[Tensor]:
    """The same, where a task may have no points."""
    clouds = []
    for task in each_task(tasks):
        for one in (task[i] for i in range(len(task))):
            sets = ((one.xc, one.context_mask), (one.xt, one.target_mask))
            points = torch.cat([x[0] if mask is None else x[mask] for x, mask in sets])
            clouds.append(points.detach().cpu().double().unique(dim=0))
    return clouds


def _lattice_step(coordinates: Iterable[Tensor]) -> float:
    """The spacing of which all distances between the coordinates of a task are multiples; 0 if there is none."""
    gaps = torch.cat([values.unique().diff() for values in coordinates])
    gaps = gaps[gaps > 1e-5 * gaps.max()] if len(gaps) else gaps
    if len(gaps) == 0:
        return 0.0
    multiples = gaps / gaps.min()
    return 0.0 if ((multiples - multiples.round()).abs() > 1e-2).any() else gaps.min().item()


def _filled(clouds: list[Tensor], steps: list[float]) -> float:
    """The share of a lattice's nodes within the tasks' boxes that hold a point."""
    sides = torch.stack([cloud.amax(0) - cloud.amin(0) for cloud in clouds])
    nodes = ((sides / torch.tensor(steps, dtype=torch.float64)).round() + 1).prod(dim=1).sum()
    return sum(map(len, clouds)) / nodes.item()


def _spacing(clouds: list[Tensor], queries: int = 256) -> float:
    """The median distance from some of the points to their nearest neighbours among all."""
    nearest = []
    for cloud in (cloud for cloud in clouds if len(cloud) > 1):
        # Not by products of matrices, which lose small distances far from the origin.
        some = cloud[:: -(-len(cloud) // queries)]
        distances = torch.cdist(some, cloud, compute_mode="donot_use_mm_for_euclid_dist")
        nearest.append(distances.topk(2, dim=1, largest=False).values[:, 1])
    spacing = torch.cat(nearest).median().item()
    if spacing == 0:
        raise ValueError("the tasks' points are too close together to measure their distances; scale their inputs")
    return spacing
