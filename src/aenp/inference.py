"""Free functions that work on every model: log-likelihood, prediction in chunks, coherent samples."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

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
    task = model.task(task)
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

    The same as `model(task)` in evaluation mode, but memory does not grow with the number of targets, apart from the
    prediction itself.
    """
    if chunk < 1:
        raise ValueError(f"chunk, the number of targets at a time, must be at least 1; got {chunk}")
    task, unit = model.normalise(model.task(task))
    with torch.no_grad(), evaluating(model):
        state = model.encode(task)
        raw = torch.cat([model.decode(state, xt) for xt in task.xt.split(chunk, dim=1)], dim=1)
        return model.likelihood(raw, unit)


def ar_sample(model: NeuralProcess, task: Task, num_samples: int) -> Float[Tensor, "samples batch target dim_y"]:
    """Coherent samples: y_n ~ p(y_n | x_n, D_c ∪ {(x_m, y_m) already drawn}), in a new random order for each call.

    Independent draws from a model's marginals are not coherent; draws one after another, each conditioned on those
    before it, are. Takes one pass through the model for each target. Masked targets come out as NaN.

    Args:
        model: any neural process; used in evaluation mode.
        task: the context and the targets.
        num_samples: how many samples of each task.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1; got {num_samples}")
    task = model.task(task)
    task = replace(task, yc=task.yc.to(torch.promote_types(task.yc.dtype, torch.float32)))
    grown = Task.stack([task.with_targets(task.xt, None, task.target_mask)] * num_samples)
    xt, target_mask = grown.xt, grown.target_mask
    drawn = torch.ones_like(xt[..., 0], dtype=torch.bool) if target_mask is None else target_mask
    samples = grown.yc.new_full((len(grown), xt.shape[1], task.dim_y), torch.nan)
    with torch.no_grad(), evaluating(model):
        for n in torch.randperm(xt.shape[1]).tolist():
            now = slice(n, n + 1)
            # The task holds all targets at every step, so that a model with a grid uses the same one each time.
            seen, unit = model.normalise(grown)
            prediction = model.likelihood(model.decode(model.encode(seen), xt[:, now]), unit)
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
