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


def predict(model: NeuralProcess, task: Task, chunk: int = 4096) -> Distribution:
    """The predictive distribution at all targets, decoded `chunk` targets at a time, without gradients.

    The same as `model(task)` in evaluation mode, in memory that does not grow with the number of targets but for the
    prediction itself.
    """
    if chunk < 1:
        raise ValueError(f"chunk, the number of targets at a time, must be at least 1; got {chunk}")
    task = model.task(task)
    with torch.no_grad(), _evaluating(model):
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
    with torch.no_grad(), _evaluating(model):
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
def _evaluating(model: NeuralProcess) -> Iterator[None]:
    """Within this context the model is in evaluation mode."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def points_per_unit(tasks: Task | Iterable[Task]) -> float | list[float]:
    """How many cells per unit of x suit a grid for these tasks.

    Where the points lie on a lattice: one over its spacing, for each dimension if that differs between them. Else: two
    cells in the median distance from a point to its nearest neighbour.
    """
    clouds = [points.double() for task in ([tasks] if isinstance(tasks, Task) else tasks) for points in _clouds(task)]
    steps = [_lattice_step([cloud[:, d] for cloud in clouds]) for d in range(clouds[0].shape[1])]
    counts = [float(f"{1 / step:.6g}") for step in steps if step is not None]
    if len(counts) == len(steps):
        return counts[0] if len(set(counts)) == 1 else counts
    nearest = [(torch.cdist(c, c) + torch.diag(torch.full((len(c),), torch.inf))).amin(0) for c in clouds if len(c) > 1]
    if not nearest:
        raise ValueError("points_per_unit needs a task with at least two points; got none")
    return float(f"{2 / torch.cat(nearest).median().item():.6g}")


def _clouds(task: Task, most: int = 1024) -> list[Tensor]:
    """The points of each task that count, context and targets together; some of them where there are many."""
    clouds = []
    for one in (task[i] for i in range(len(task))):
        sets = ((one.xc, one.context_mask), (one.xt, one.target_mask))
        points = torch.cat([x[0] if mask is None else x[mask] for x, mask in sets]).cpu()
        clouds.append(points[:: max(1, -(-len(points) // most))])
    return clouds


def _lattice_step(coordinates: Iterable[Tensor]) -> float | None:
    """The spacing of which all distances between the coordinates of a task are multiples; None if there is none."""
    gaps = torch.cat([values.sort().values.diff() for values in coordinates])
    extent = gaps.max() if len(gaps) else 0
    gaps = gaps[gaps > 1e-5 * extent]
    if len(gaps) == 0:
        return None
    step = gaps.min()
    multiples = gaps / step
    return None if ((multiples - multiples.round()).abs() > 1e-2).any() else step.item()
