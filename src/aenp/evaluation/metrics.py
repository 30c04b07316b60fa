"""Metrics of a model's predictions."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal

from aenp.checks import check_floating
from aenp.distributions import CensoredNormal, quadrature
from aenp.process import NeuralProcess, Predictions
from aenp.symmetry import Group, Motion
from aenp.task import Task


@torch.no_grad()
def equivariance_error(model: NeuralProcess, task: Task, motion: Motion) -> float:
    """How far a prediction is from moving along with the data: max |θ(g·ξ) − θ(ξ)| / max |θ(ξ)|.

    θ holds the predictive means and standard deviations, which share a unit, at the targets that are not masked.
    """
    original, moved = model(task), model(motion(task))
    if task.target_mask is not None and not bool(task.target_mask.any()):
        raise ValueError("equivariance_error needs at least one target point that is not masked")
    mask = torch.ones_like(task.xt[..., 0], dtype=torch.bool) if task.target_mask is None else task.target_mask
    before, after = (torch.cat([p.mean[mask], p.stddev[mask]]) for p in (original, moved))
    return ((after - before).abs().max() / before.abs().max()).item()


def crps(prediction: Distribution, y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """E|Y − y| − ½ E|Y − Y'| with Y, Y' from the prediction; in the unit of y.

    Smaller is better. For a prediction without spread it is the absolute error. For Normals and their mixtures there is
    a formula, whose memory grows with the square of the number of components; for others it is an integral over
    quantiles.
    """
    _check(prediction, y)
    parts = prediction.component_distribution if isinstance(prediction, MixtureSameFamily) else prediction
    return _crps_of_normals(prediction, y) if isinstance(parts, Normal) else _crps_from_quantiles(prediction, y)


def _crps_of_normals(prediction: Distribution, y: Tensor) -> Tensor:
    if isinstance(prediction, MixtureSameFamily):
        weights, parts = prediction.mixture_distribution.probs, prediction.component_distribution
        means, variances = parts.mean, parts.variance
    else:
        means, variances = prediction.mean.unsqueeze(-1), prediction.variance.unsqueeze(-1)
        weights = torch.ones_like(means)
    near = (weights * _mean_distance(y.unsqueeze(-1) - means, variances)).sum(-1)
    between = _mean_distance(
        means.unsqueeze(-1) - means.unsqueeze(-2), variances.unsqueeze(-1) + variances.unsqueeze(-2)
    )
    return near - 0.5 * (weights.unsqueeze(-1) * weights.unsqueeze(-2) * between).sum((-1, -2))


def _crps_from_quantiles(prediction: Distribution, y: Tensor) -> Tensor:
    """2 ∫₀¹ (1{y < F⁻¹(p)} − p) (F⁻¹(p) − y) dp, divided at p = F(y), where the integrand has a kink."""
    split, (nodes, weights) = prediction.cdf(y), quadrature(y)
    nodes, weights = (each.view(-1, *[1] * y.ndim) for each in (nodes, weights))
    smallest = torch.finfo(y.dtype).eps

    def distance(probability: Tensor) -> Tensor:
        return (prediction.icdf(probability.clamp(smallest, 1 - smallest)) - y).abs()

    below, above = split * nodes, (1 - split) * nodes
    parts = split * below * distance(below) + (1 - split) * above * distance(1 - above)
    return 2 * (weights * parts).sum(0)


def energy_score(
    samples: Float[Tensor, "samples *batch targets dim_y"], y: Float[Tensor, "*batch targets dim_y"]
) -> Float[Tensor, "*batch"]:
    """E‖Y − y‖ − ½ E‖Y − Y'‖ over all targets of a task at once, so that it sees how they are related.

    Smaller is better. With Y' ≠ Y, so that its mean does not depend on the number of samples.
    """
    count = len(samples)
    if count < 2:
        raise ValueError(f"an energy score needs at least two samples; got {count}")
    flat = samples.flatten(-2)
    near = (flat - y.flatten(-2)).norm(dim=-1).mean(0)
    between = sum((flat - flat.roll(shift, 0)).norm(dim=-1).mean(0) for shift in range(1, count)) / (count - 1)
    return near - between / 2


def variogram_score(
    samples: Float[Tensor, "samples *batch targets dim_y"], y: Float[Tensor, "*batch targets dim_y"]
) -> Float[Tensor, "*batch"]:
    """The mean over pairs of targets of (√|y_i − y_j| − E√|Y_i − Y_j|)², which sees relations where levels hide them.

    Smaller is better.
    """

    def roots(values: Tensor) -> Tensor:
        return (values.unsqueeze(-2) - values.unsqueeze(-3)).abs().sqrt()

    return (roots(y) - torch.stack([roots(each) for each in samples]).mean(0)).square().mean((-3, -2, -1))


def pit(
    prediction: Distribution, y: Float[Tensor, "*shape"], generator: torch.Generator | None = None
) -> Float[Tensor, "*shape"]:
    """P(Y ≤ y), the probability integral transform, drawn within the jump at a mass: uniform for a true prediction."""
    _check(prediction, y)
    below, above = _cdf_below(prediction, y), prediction.cdf(y)
    return below + (above - below) * torch.rand(y.shape, generator=generator, dtype=y.dtype, device=y.device)


def _cdf_below(prediction: Distribution, y: Tensor) -> Tensor:
    """P(Y < y)."""
    return prediction.cdf_below(y) if isinstance(prediction, CensoredNormal) else prediction.cdf(y)


def _check(prediction: Distribution, y: Tensor) -> None:
    """Raises an error unless the prediction has quantiles and y is finite and has the same shape."""
    check_floating(y=y)
    if y.shape != prediction.batch_shape or not bool(y.isfinite().all()):
        raise ValueError(
            f"y must have the prediction's shape {tuple(prediction.batch_shape)} and finite values; "
            f"got shape {tuple(y.shape)}, {int((~y.isfinite()).sum())} of its values not finite"
        )
    try:
        prediction.cdf(y)
    except NotImplementedError:
        raise ValueError(f"prediction must have a cdf, as those of aenp's likelihoods do; got {prediction}") from None


def _mean_distance(mean: Tensor, variance: Tensor) -> Tensor:
    """E|Z| of Z ~ N(mean, variance)."""
    z = mean / variance.sqrt()
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return variance.sqrt() * 2 * density + mean * torch.erf(z / math.sqrt(2))


def covered(prediction: Distribution, y: Float[Tensor, "*shape"], level: float) -> Bool[Tensor, "*shape"]:
    """Whether y lies in the central interval that holds `level` of the predicted probability, bounds included."""
    _check(prediction, y)
    if not 0 <= level <= 1:
        raise ValueError(f"level is a probability, between 0 and 1; got {level}")
    return (prediction.cdf(y) >= (1 - level) / 2) & (_cdf_below(prediction, y) <= (1 + level) / 2)


def equivariance_deviation(
    predictions: Predictions, p: int, mask: Bool[Tensor, "batch target"] | None = None
) -> Float[Tensor, " batch"]:
    """Δ_equiv = ‖μ_equiv − μ_approx‖_p / ‖μ_equiv‖_p for each task, over the targets in the mask (appendix E.1).

    The paper writes the quotient inside the norm, where it has no finite mean, because μ_equiv comes close to zero.
    """
    approximate, equivariant = (prediction.mean for prediction in predictions)
    return _relative_distance(equivariant, approximate, equivariant, p, mask)


class Distances(NamedTuple):
    """Relative distances between two predictions of each task: of their means, and of their standard deviations."""

    mean: Float[Tensor, "*samples batch"]
    stddev: Float[Tensor, "*samples batch"]


@torch.no_grad()
def equivariance_distances(
    model: NeuralProcess,
    task: Task,
    group: Group,
    p: int,
    samples: int = 1,
    scale: float = 1.0,
    generator: torch.Generator | None = None,
) -> Distances:
    """How far π(g·D) is from g·π(D) for random g: `moved_distances` for each g and each task.

    Args:
        model: the model π.
        task: context sets D, with the targets at which predictions are compared.
        group: the group that g is from.
        p: of the L_p norm over targets.
        samples: number of g.
        scale: standard deviation of the translation in g.
        generator: where g is drawn from.
    """
    predictions = model.symmetry_breaking(task)
    moved = (model(group.sample(scale, generator)(task)) for _ in range(samples))
    each = [moved_distances(prediction, predictions, p, task.target_mask) for prediction in moved]
    return Distances(*map(torch.stack, zip(*each, strict=True)))


def moved_distances(
    moved: Distribution, predictions: Predictions, p: int, mask: Bool[Tensor, "batch target"] | None = None
) -> Distances:
    """‖θ(g·D) − g·θ(D)‖_p / ‖θ_equiv(D)‖_p for each task, θ being means or standard deviations.

    At most the equivariance deviation for D plus that for g·D (appendix D): 2ε where none is larger than ε.

    Args:
        moved: the prediction for g·D at g·x.
        predictions: those for D at x, with fixed inputs and without.
        p: of the norm.
        mask: the targets that count.
    """
    full, part = predictions
    return Distances(
        _relative_distance(moved.mean, full.mean, part.mean, p, mask),
        _relative_distance(moved.stddev, full.stddev, part.stddev, p, mask),
    )


def _relative_distance(one: Tensor, other: Tensor, whole: Tensor, p: int, mask: Tensor | None) -> Tensor:
    """‖one − other‖_p / ‖whole‖_p for each task, over the targets in the mask."""
    difference = one - other
    if mask is not None:
        difference, whole = (torch.where(mask.unsqueeze(-1), each, 0.0) for each in (difference, whole))
    return difference.flatten(1).norm(p, dim=1) / whole.flatten(1).norm(p, dim=1)
