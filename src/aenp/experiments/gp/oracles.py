"""Oracles: the best predictions of tasks from `GibbsTasks`, which on average no model can beat.

Each returns the distribution of the noisy y at every target, elementwise over `(batch, targets, 1)`, in float64.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal
from torch.nn.utils.rnn import pad_sequence

from aenp.data.gp import GibbsTasks, gibbs
from aenp.task import Task

_EITHER = torch.tensor([True, False])


def ground_truth(source: GibbsTasks, task: Task, short_left: Bool[Tensor, " batch"]) -> Normal:
    """p(y_t | x_t, D_c, β), for a predictor that knows on which side the lengthscale is short, unlike any model."""
    parts = [_posterior(source, *row, one)[:2] for row, one in zip(_rows(task), short_left.split(1), strict=True)]
    mean, stddev = (torch.stack(values).mT for values in zip(*parts, strict=True))
    return Normal(mean, stddev, validate_args=False)


def bayes(source: GibbsTasks, task: Task) -> MixtureSameFamily:
    """Σ_β p(β | D_c) p(y_t | x_t, D_c, β): the best any position-aware model can do."""
    return _mixture([_posterior(source, *row, _EITHER) for row in _rows(task)])


def equivariant(source: GibbsTasks, task: Task) -> MixtureSameFamily:
    """Σ_β ∫ p(z, β | D_c) p(y_t | x_t, D_c, z, β) dz: the best any translation-equivariant model can do.

    To such a model, which knows inputs up to a shift only, the change point z may lie anywhere. Seen from the interval
    it is uniform in −`source.centre`, a range that covers the interval wherever its points are. So its density is
    1 / (range of centres) throughout the span of context and target, whatever these are; with the remaining
    probability z lies outside, and one lengthscale holds everywhere. The integral is a finite sum, because nothing
    changes while z stays between two neighbouring points. The sum is equivariant to reflections too.

    Args:
        source: the training tasks of a model; the task may come from elsewhere.
        task: the context and the targets.
    """
    reach = source.width / 2 + source.margin
    if not source.centre[0] <= -reach <= reach <= source.centre[1]:
        raise ValueError(f"source.centre must cover ({-reach}, {reach}), for z to be uniform; got {source.centre}")
    return _mixture([_anywhere(source, *row) for row in _rows(task)])


def as_normal(prediction: Distribution) -> Normal:
    """N(y; E[y], Var[y]): of all Normals the one with the highest expected log-likelihood under `prediction`."""
    return Normal(prediction.mean, prediction.stddev, validate_args=False)


def _rows(task: Task) -> Iterator[tuple[Float[Tensor, " n"], Float[Tensor, " n"], Float[Tensor, " t"]]]:
    """Context inputs, context outputs and target inputs of each task, without masked context points."""
    if (task.dim_x, task.dim_y) != (1, 1):
        raise ValueError(f"oracles are for dim_x = dim_y = 1; got {task.dim_x} and {task.dim_y}")
    mask = torch.ones_like(task.xc[..., 0], dtype=torch.bool) if task.context_mask is None else task.context_mask
    for xc, yc, xt, seen in zip(task.xc.double(), task.yc.double(), task.xt.double(), mask, strict=True):
        yield xc[seen, 0], yc[seen, 0], xt[:, 0]


def _posterior(
    source: GibbsTasks,
    xc: Float[Tensor, " n"],
    yc: Float[Tensor, " n"],
    xt: Float[Tensor, " t"],
    short_left: Bool[Tensor, " h"],
) -> tuple[Float[Tensor, "h t"], Float[Tensor, "h t"], Float[Tensor, "h t"]]:
    """Means, standard deviations and log p(y_c | β), for the change point at 0 and each orientation given."""
    scale_c, scale_t = (source.lengthscale(x < 0, short_left[:, None]) for x in (xc, xt))
    factor, white, evidence = _factor(source, xc, yc, scale_c)
    mean, stddev = _condition(source, factor, white, gibbs(xc, scale_c, xt, scale_t))
    return mean, stddev, evidence[..., None].expand_as(mean)


def _anywhere(
    source: GibbsTasks, xc: Float[Tensor, " n"], yc: Float[Tensor, " n"], xt: Float[Tensor, " t"]
) -> tuple[Float[Tensor, "h t"], Float[Tensor, "h t"], Float[Tensor, "h t"]]:
    """Means, standard deviations and log p(y_c, z, β), with h for (gap that holds z, orientation, side of the target).

    The gaps are those between neighbouring context points; one that holds the target has z on either side of it.
    """
    xc, order = xc.sort()
    gaps, targets = len(xc) + 1, len(xt)
    scale_c = source.lengthscale(torch.ones(gaps, len(xc), dtype=torch.bool).tril(-1)[:, None], _EITHER[:, None])
    inputs = torch.cat([xc[:, None].expand(-1, targets), xt[None]])
    edges = torch.cat([inputs.amin(0, keepdim=True), inputs[:-1], inputs.amax(0, keepdim=True)])
    split = xt.clamp(edges[:-1], edges[1:])
    mass = torch.stack([edges[1:] - split, split - edges[:-1]], dim=1) / (source.centre[1] - source.centre[0])
    # Outside the span, z on the left with one orientation is the same as z on the right with the other.
    mass[0, 1] = (1 - mass.sum((0, 1))).clamp(min=0)

    factor, white, evidence = _factor(source, xc, yc[order], scale_c)
    possible = torch.where(mass.sum(1).amax(-1)[:, None] > 0, evidence, -torch.inf)
    # Terms e⁶⁰ times less likely than the best do not matter in float64, and are most of the work.
    gap, orientation = kept = (possible > possible.max() - 60).nonzero(as_tuple=True)
    scale_t = source.lengthscale(_EITHER.repeat_interleave(targets), _EITHER[:, None])[orientation]
    cross = gibbs(xc, scale_c[kept], xt.repeat(2), scale_t)
    mean, stddev = _condition(source, factor[kept], white[kept], cross)
    weight = evidence[kept][:, None, None] + mass[gap].log()
    return mean.view(-1, targets), stddev.view(-1, targets), weight.flatten(0, 1)


def _factor(
    source: GibbsTasks, xc: Float[Tensor, " n"], yc: Float[Tensor, " n"], scale: Float[Tensor, "*h n"]
) -> tuple[Float[Tensor, "*h n n"], Float[Tensor, "*h n 1"], Float[Tensor, "*h"]]:
    """L, L⁻¹ y and log N(y; 0, K) up to a constant, with L Lᵀ = K = k_cc + noise² I."""
    covariance = gibbs(xc, scale, xc, scale)
    covariance.diagonal(dim1=-2, dim2=-1).add_(source.noise**2)
    factor = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(factor, yc[:, None].expand(*factor.shape[:-1], 1), upper=False)
    evidence = -white.square().sum((-2, -1)) / 2 - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return factor, white, evidence


def _condition(
    source: GibbsTasks,
    factor: Float[Tensor, "*h n n"],
    white: Float[Tensor, "*h n 1"],
    cross: Float[Tensor, "*h n t"],
) -> tuple[Float[Tensor, "*h t"], Float[Tensor, "*h t"]]:
    """GP regression: k_tc K⁻¹ y and (1 + noise² − k_tc K⁻¹ k_ct)^½."""
    half = torch.linalg.solve_triangular(factor, cross, upper=False)
    return (half * white).sum(-2), (1 + source.noise**2 - half.square().sum(-2)).sqrt()


def _mixture(rows: list[tuple[Tensor, Tensor, Tensor]]) -> MixtureSameFamily:
    """Σ_h w_h N(y; μ_h, σ_h²), from means, standard deviations and log-weights of each task, which may differ in h."""
    mean, stddev, weight = (
        pad_sequence(values, batch_first=True, padding_value=fill).mT.unsqueeze(-2)
        for values, fill in zip(map(list, zip(*rows, strict=True)), (0.0, 1.0, -torch.inf), strict=True)
    )
    normals = Normal(mean, stddev, validate_args=False)
    return MixtureSameFamily(Categorical(logits=weight, validate_args=False), normals, validate_args=False)
