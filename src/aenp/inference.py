"""Free functions that work on every model: log-likelihood, prediction in chunks, coherent samples."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import Distribution

from aenp.process import NeuralProcess
from aenp.task import Task


def loglik(model: NeuralProcess, task: Task) -> Float[Tensor, " batch"]:
    """(1/N_t) Σ_n log p(y_n | x_n, D_c) for each task: per target point, over the targets that count.

    The paper's score is the mean of this over tasks, `loglik(model, task).mean()`.

    Example:
        >>> import torch
        >>> import aenp
        >>> x, y = torch.rand(4, 30, 1), torch.randn(4, 30, 1)
        >>> task = aenp.Task(x[:, :10], y[:, :10], x[:, 10:], y[:, 10:])
        >>> loss = -aenp.loglik(aenp.CNP(dim_x=1, dim_y=1), task).mean()
        >>> loss.backward()
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

    Example:
        >>> import torch
        >>> import aenp
        >>> x = torch.linspace(-2, 2, 5001)[None, :, None]
        >>> task = aenp.Task(torch.tensor([[[0.5]]]), torch.tensor([[[1.0]]]), x)
        >>> prediction = aenp.predict(aenp.pretrained("gp/convcnp-approx"), task)
        >>> prediction.mean.shape, prediction.mean.requires_grad
        (torch.Size([1, 5001, 1]), False)
    """
    if chunk < 1:
        raise ValueError(f"chunk, the number of targets at a time, must be at least 1; got {chunk}")
    task, unit = model.normalise(model.task(task))
    with torch.inference_mode(), evaluating(model):
        state = model.encode(task)
        parts = [slice(start, start + chunk) for start in range(0, task.xt.shape[1], chunk)]
        raw = [model.decode(state, *task.at_targets(part)) for part in parts]
    with torch.no_grad():  # what is made here may take part in a later computation with gradients
        return model.likelihood(torch.cat(raw, dim=1), unit)


def ar_sample(
    model: NeuralProcess, task: Task, num_samples: int, points: int | None = None, noise: bool = True
) -> Float[Tensor, "samples batch target dim_y"]:
    """Coherent samples: y_n ~ p(y_n | x_n, D_c ∪ {(x_m, y_m) already drawn}), from coarse to fine.

    Independent draws from a model's marginals are not coherent; draws one after another, each conditioned on those
    before it, are. Each target drawn is the farthest from the context and from those drawn before, and as their number
    grows several are drawn at a time, a third as many as there are: they are far apart, with others between them. So
    the number of passes through the model grows with the logarithm of that of the targets. Masked targets come out as
    NaN.

    Args:
        model: any neural process; used in evaluation mode.
        task: the context and the targets.
        num_samples: how many samples of each task.
        points: how many targets are drawn in this way; by default all. The others are then drawn independently given
            these, which is coherent if what these leave open is mostly noise.
        noise: if False, a sample is the median at every target given the values drawn: a field as smooth as the
            model's predictions, without the noise of single observations and what the drawn points leave open.

    Example:
        >>> import torch
        >>> import aenp
        >>> task = aenp.Task(torch.tensor([[[0.5]]]), torch.tensor([[[1.0]]]), torch.linspace(-2, 2, 20)[None, :, None])
        >>> aenp.ar_sample(aenp.pretrained("gp/convcnp-approx"), task, num_samples=3).shape
        torch.Size([3, 1, 20, 1])
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1; got {num_samples}")
    if points is not None and points < 1:
        raise ValueError(f"points, the number of targets drawn one after another, must be at least 1; got {points}")
    task = model.task(task)
    targets = task.xt.shape[1]
    order = spread(task, min(points or targets, targets))
    grown = ar_context(model, task, num_samples, order)
    drawn = grown.yc[:, task.xc.shape[1] :]
    samples = drawn.new_empty(len(grown), targets, task.dim_y)
    if not noise or order.shape[1] < targets:
        prediction = predict(model, grown)
        samples = (prediction.sample() if noise else median(prediction)).to(drawn)
    if noise:
        samples = samples.scatter(1, order.repeat(num_samples, 1).unsqueeze(-1).expand_as(drawn), drawn)
    if grown.target_mask is not None:
        samples = torch.where(grown.target_mask.unsqueeze(-1), samples, torch.nan)
    return samples.unflatten(0, (num_samples, -1))


def ar_context(model: NeuralProcess, task: Task, num_samples: int, order: Int[Tensor, "batch points"]) -> Task:
    """The task `num_samples` times, each with values drawn at its targets of these numbers as further context."""
    precise = task.yc.to(torch.promote_types(task.yc.dtype, torch.float32))
    grown = Task.stack([replace(task, yc=precise, yt=None)] * num_samples)
    order = order.repeat(num_samples, 1)
    chain = grown.some_targets(order)
    counts = _mask(chain.xt, chain.target_mask)
    start = 0
    with torch.no_grad(), evaluating(model):
        while start < order.shape[1]:
            now = slice(start, start + 1 + start // 3)
            # The task holds all targets at every step, so that a model with a grid uses the same one each time.
            seen, unit = model.normalise(grown)
            part, known = chain.at_targets(now), grown.context_covariates
            y = model.likelihood(model.decode(model.encode(seen), *part), unit).sample()
            grown = replace(
                grown,
                xc=torch.cat([grown.xc, part[0]], dim=1),
                yc=torch.cat([grown.yc, y.to(grown.yc)], dim=1),
                context_mask=torch.cat([_mask(grown.xc, grown.context_mask), counts[:, now]], dim=1),
                context_covariates=None if known is None else torch.cat([known, part[1]], dim=1),
            )
            start = now.stop
    return grown


def spread(task: Task, points: int) -> Int[Tensor, "batch points"]:
    """The numbers of `points` targets of each task, each the farthest from the context and from those before it.

    Covariates count like coordinates, so that of several kinds of observation each comes early. Masked targets come
    last.
    """
    xc = torch.cat([each for each in (task.xc, task.context_covariates) if each is not None], dim=-1)
    xt = torch.cat(task.at_targets(), dim=-1)
    context, targets = _mask(xc, task.context_mask), _mask(xt, task.target_mask)
    distance = torch.where(targets, torch.inf, -1.0).to(xt)
    for n in range(xc.shape[1]):
        nearer = torch.minimum(distance, torch.linalg.vector_norm(xt - xc[:, n : n + 1], dim=-1))
        distance = torch.where(context[:, n : n + 1], nearer, distance)
    chosen = []
    for _ in range(points):
        farthest = distance.argmax(dim=1, keepdim=True)
        chosen.append(farthest)
        x = xt.take_along_dim(farthest.unsqueeze(-1), 1)
        distance = torch.minimum(distance, torch.linalg.vector_norm(xt - x, dim=-1))
        distance = distance.scatter(1, farthest, -2.0)
    return torch.cat(chosen, dim=1)


def median(prediction: Distribution) -> Float[Tensor, "batch target dim_y"]:
    """The y with P(Y ≤ y) = ½ at each target."""
    return prediction.icdf(prediction.mean.new_tensor(0.5))


def _mask(x: Tensor, mask: Tensor | None) -> Bool[Tensor, "batch points"]:
    """The mask, or that of points that all count."""
    return torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask


@contextmanager
def evaluating(model: NeuralProcess) -> Iterator[None]:
    """Within this context the model and all its parts are in evaluation mode."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
