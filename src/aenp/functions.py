"""Free functions that work on every model: log-likelihood, prediction in chunks, coherent samples."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from aenp.process import NeuralProcess
from aenp.task import Task


def loglik(model: NeuralProcess, task: Task) -> Float[Tensor, " batch"]:
    """(1/N_t) Σ_n log p(y_n | x_n, D_c) for each task: per target point, over the targets that count.

    The paper's score is the mean of this over tasks, `loglik(model, task).mean()`.
    """
    if task.yt is None:
        raise ValueError("loglik needs the target outputs yt; this task has none")
    values = model(task).log_prob(task.yt).sum(dim=-1)
    if task.target_mask is None:
        return values.mean(dim=-1)
    count = task.target_mask.sum(dim=-1)
    if not torch.compiler.is_compiling() and not bool(count.all()):
        raise ValueError("loglik needs at least one target point that is not masked in every task")
    return torch.where(task.target_mask, values, 0.0).sum(dim=-1) / count


def predict(model: NeuralProcess, task: Task, chunk: int = 1024) -> Distribution:
    """The predictive distribution at all targets, decoded `chunk` targets at a time, without gradients.

    The same as `model(task)` in evaluation mode, in memory that does not grow with the number of targets but for the
    prediction itself.
    """
    if chunk < 1:
        raise ValueError(f"chunk, the number of targets at a time, must be at least 1; got {chunk}")
    task = model.task(task)
    with torch.no_grad(), evaluating(model):
        state = model.encode(task)
        raw = torch.cat([model.decode(state, xt) for xt in task.xt.split(chunk, dim=1)], dim=1)
        return model.likelihood(raw)


def ar_sample(model: NeuralProcess, task: Task, num_samples: int) -> Float[Tensor, "samples batch target dim_y"]:
    """Coherent samples: y_n ~ p(y_n | x_n, D_c ∪ {(x_m, y_m) already drawn}), in an order drawn anew for each call.

    Targets drawn independently from a model's marginals do not hang together; drawn one after another, each seeing
    those before it, they do. Takes one pass through the model for each target. Masked targets come out as NaN.

    Args:
        model: any neural process; used in evaluation mode.
        task: the context and the targets.
        num_samples: how many samples of each task.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1; got {num_samples}")
    task = model.task(task)
    grown = Task.stack([task.with_targets(task.xt, None, task.target_mask)] * num_samples)
    xt, target_mask = grown.xt, grown.target_mask
    drawn = torch.ones_like(xt[..., 0], dtype=torch.bool) if target_mask is None else target_mask
    samples = grown.yc.new_full((len(grown), xt.shape[1], task.dim_y), torch.nan)
    with torch.no_grad(), evaluating(model):
        for n in torch.randperm(xt.shape[1]).tolist():
            now = slice(n, n + 1)
            # The task holds all targets at every step, so that a model with a grid lays the same one each time.
            prediction = model.likelihood(model.decode(model.encode(grown), xt[:, now]))
            y = torch.where(drawn[:, now, None], prediction.sample().to(samples.dtype), torch.nan)
            samples[:, now] = y
            mask = None
            if grown.context_mask is not None:
                mask = torch.cat([grown.context_mask, drawn[:, now]], dim=1)
            xc, yc = torch.cat([grown.xc, xt[:, now]], dim=1), torch.cat([grown.yc, y], dim=1)
            grown = Task(xc, yc, xt, None, mask, target_mask)
    return samples.unflatten(0, (num_samples, -1))


@contextmanager
def evaluating(model: NeuralProcess) -> Iterator[None]:
    """Within this context the model and all its parts are in evaluation mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def points_per_unit(tasks: Task | Iterable[Task]) -> float | list[float]:
    """How many cells per unit of x suit a grid for these tasks.

    Where the points fill a lattice, if only in part: one over its spacing, for each dimension if that differs between
    them. Else: two cells in the median distance from a point to its nearest neighbour.
    """
    clouds = _clouds(tasks)
    steps = [_lattice_step([cloud[:, d] for cloud in clouds]) for d in range(clouds[0].shape[1])]
    if all(steps) and _filled(clouds, steps) > 0.01:
        counts = [float(f"{1 / step:.6g}") for step in steps]
        return counts[0] if len(set(counts)) == 1 else counts
    return float(f"{2 / _spacing(clouds):.6g}")


def wavelengths(tasks: Task | Iterable[Task]) -> tuple[float, float]:
    """The wavelengths that suit spectral attention: from twice the context's spacing to twice the extent of a task."""
    tasks = [tasks] if isinstance(tasks, Task) else list(tasks)
    extent = torch.stack([(cloud.amax(0) - cloud.amin(0)).max() for cloud in _clouds(tasks)]).median().item()
    contexts = [task.with_targets(task.xc, None, task.context_mask) for task in tasks if task.xc.shape[1] > 1]
    shortest = 2 * _spacing(_clouds(contexts or tasks))
    return float(f"{shortest:.6g}"), float(f"{max(2 * extent, shortest):.6g}")


def _clouds(tasks: Task | Iterable[Task]) -> list[Tensor]:
    """The distinct points of each task that count, context and targets together: `(points, dim_x)` each."""
    clouds = []
    for task in [tasks] if isinstance(tasks, Task) else tasks:
        for one in (task[i] for i in range(len(task))):
            sets = ((one.xc, one.context_mask), (one.xt, one.target_mask))
            points = torch.cat([x[0] if mask is None else x[mask] for x, mask in sets])
            clouds.append(points.detach().cpu().double().unique(dim=0))
    if not any(len(cloud) > 1 for cloud in clouds):
        raise ValueError("there must be a task with at least two distinct points; got none")
    return [cloud for cloud in clouds if len(cloud)]


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
    """The median distance from a point, of some, to its nearest neighbour, of all."""
    nearest = []
    for cloud in (cloud for cloud in clouds if len(cloud) > 1):
        distances = torch.cdist(cloud[:: -(-len(cloud) // queries)], cloud)
        nearest.append(distances.topk(2, dim=1, largest=False).values[:, 1])
    return torch.cat(nearest).median().item()
