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
        parts = [slice(start, start + chunk) for start in range(0, task.xt.shape[1], chunk)]
        raw = torch.cat([model.decode(state, *_targets(task, part)) for part in parts], dim=1)
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
    grown = Task.stack([replace(task, yt=None)] * num_samples)
    xt, target_mask = grown.xt, grown.target_mask
    drawn = torch.ones_like(xt[..., 0], dtype=torch.bool) if target_mask is None else target_mask
    samples = grown.yc.new_full((len(grown), xt.shape[1], task.dim_y), torch.nan)
    with torch.no_grad(), evaluating(model):
        for n in torch.randperm(xt.shape[1]).tolist():
            now = slice(n, n + 1)
            # The task holds all targets at every step, so that a model with a grid uses the same one each time.
            seen, unit = model.normalise(grown)
            place, covariates = _targets(grown, now)
            prediction = model.likelihood(model.decode(model.encode(seen), place, covariates), unit)
            y = torch.where(drawn[:, now, None], prediction.sample().to(samples.dtype), torch.nan)
            samples[:, now] = y
            grown = replace(
                grown,
                xc=torch.cat([grown.xc, place], dim=1),
                yc=torch.cat([grown.yc, y], dim=1),
                context_mask=_joined(grown.context_mask, drawn[:, now]),
                context_covariates=_joined(grown.context_covariates, covariates),
            )
    return samples.unflatten(0, (num_samples, -1))


def _targets(task: Task, part: slice) -> tuple[Tensor, Tensor | None]:
    """Places and covariates of some of the targets."""
    return task.xt[:, part], None if task.target_covariates is None else task.target_covariates[:, part]


def _joined(points: Tensor | None, more: Tensor | None) -> Tensor | None:
    """What is known of some points and of more; None where nothing is known of the first."""
    return None if points is None or more is None else torch.cat([points, more], dim=1)


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
