"""Oracles: the best predictions of tasks from `GibbsTasks`, which on average no model can beat.

Each gives the distribution of the noisy y at every target, elementwise over `(batch, targets, 1)`, in float64.
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
    """p(y_t | x_t, D_c, β), for one who is told on which side the lengthscale is short, as no model is."""
    parts = [_posterior(source, *row, one)[:2] for row, one in zip(_rows(task), short_left.split(1), strict=True)]
    mean, stddev = (torch.stack(values).mT for values in zip(*parts, strict=True))
    return Normal(mean, stddev, validate_args=False)


def bayes(source: GibbsTasks, task: Task) -> MixtureSameFamily:
    """Σ_β p(β | D_c) p(y_t | x_t, D_c, β): the most that a model can know that sees where it is."""
    return _mixture([_posterior(source, *row, _EITHER) for row in _rows(task)])


def equivariant(source: GibbsTasks, task: Task) -> MixtureSameFamily:
    """Σ_β ∫ p(z, β | D_c, x_t) p(y_t | x_t, D_c, z, β) dz: the most that a translation-equivariant model can know.

    To such a model the change point z may lie anywhere. Its prior follows from how `source` draws inputs: seen from a
    model that knows inputs up to a shift only, z = c − c₀, with c₀ uniform in `source.centre` and c uniform where the
    interval's centre can lie, so that the interval holds the context and, with its margin, the target. The integral is
    a finite sum, because nothing changes while z stays between two neighbouring points. Where `source.centre` is
    symmetric about 0, this is the most that a model can know that is equivariant to reflections too.

    Args:
        source: what a model has been trained on; the task may come from elsewhere.
        task: the context and the targets. A target that `source` would not draw is taken for the nearest it would.
    """
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
    scales = (source.lengthscale(x < 0, short_left[:, None]) for x in (xc, xt))
    mean, stddev, evidence = _condition(source, xc, yc, xt, *scales)
    return mean, stddev, evidence.expand_as(mean)


def _anywhere(
    source: GibbsTasks, xc: Float[Tensor, " n"], yc: Float[Tensor, " n"], xt: Float[Tensor, " t"]
) -> tuple[Float[Tensor, "h t"], Float[Tensor, "h t"], Float[Tensor, "h t"]]:
    """Means, standard deviations and log p(y_c, z, β), with h for (gap that holds z, orientation, side of the target).

    The gaps are those between neighbouring context points; one that holds the target has z on either side of it.
    """
    xc, order = xc.sort()
    gaps, targets = len(xc) + 1, len(xt)
    scale_c = source.lengthscale(torch.ones(gaps, len(xc), dtype=torch.bool).tril(-1)[:, None], _EITHER[:, None])
    scale_t = source.lengthscale(_EITHER.repeat_interleave(targets), _EITHER[:, None])
    mean, stddev, evidence = _condition(source, xc, yc[order], xt.repeat(2), scale_c, scale_t)

    edges = torch.cat([xc.new_tensor([-torch.inf]), xc, xc.new_tensor([torch.inf])])[:, None].expand(-1, targets)
    cdf = _change_point_cdf(source, edges, xt, edges)
    split = _change_point_cdf(source, edges, xt, xt.clamp(edges[:-1], edges[1:]))
    mass = torch.stack([cdf[1:] - split, split - cdf[:-1]], dim=1).clamp(min=0)[:, None]
    weight = evidence[..., None] + mass.log()
    return mean.view_as(weight).flatten(0, 2), stddev.view_as(weight).flatten(0, 2), weight.flatten(0, 2)


def _change_point_cdf(
    source: GibbsTasks, edges: Float[Tensor, "e t"], xt: Float[Tensor, " t"], z: Float[Tensor, "z t"]
) -> Float[Tensor, "z t"]:
    """P(c − c₀ ≤ z), c and c₀ uniform: a trapezoid's distribution function, from four second-order ramps."""
    half = source.width / 2
    lowest, highest = edges[-2] - half, edges[1] + half
    if (lowest > highest + 1e-4 * half).any():
        raise ValueError(f"a context from this source spans at most {source.width}; got one that spans more")
    low, high = (xt + side * (half + source.margin) for side in (-1, 1))
    low, high = low.clamp(lowest, highest), high.clamp(lowest, highest)
    high = torch.maximum(high, low + 1e-6 * half)
    a, b = source.centre
    z = z.clamp(low - b, high - a)
    corners = ((1, low, b), (-1, high, b), (-1, low, a), (1, high, a))
    area = sum((sign * (z - c + c0).clamp(min=0) ** 2 / 2 for sign, c, c0 in corners), torch.zeros_like(z))
    return area / ((high - low) * (b - a))


def _condition(
    source: GibbsTasks,
    xc: Float[Tensor, " n"],
    yc: Float[Tensor, " n"],
    xt: Float[Tensor, " t"],
    scale_c: Float[Tensor, "*h n"],
    scale_t: Float[Tensor, "*#h t"],
) -> tuple[Float[Tensor, "*h t"], Float[Tensor, "*h t"], Float[Tensor, "*h #t"]]:
    """GP regression: k_tc K⁻¹ y, (1 + noise² − k_tc K⁻¹ k_ct)^½ and log N(y; 0, K), K = k_cc + noise² I, but for 2π."""
    covariance = gibbs(xc, scale_c, xc, scale_c)
    covariance.diagonal(dim1=-2, dim2=-1).add_(source.noise**2)
    factor = torch.linalg.cholesky(covariance)
    cross = torch.linalg.solve_triangular(factor, gibbs(xc, scale_c, xt, scale_t), upper=False)
    white = torch.linalg.solve_triangular(factor, yc[:, None].expand(*factor.shape[:-1], 1), upper=False)
    stddev = (1 + source.noise**2 - cross.square().sum(-2)).sqrt()
    evidence = -white.square().sum(-2) / 2 - factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
    return (cross * white).sum(-2), stddev, evidence


def _mixture(rows: list[tuple[Tensor, Tensor, Tensor]]) -> MixtureSameFamily:
    """Σ_h w_h N(y; μ_h, σ_h²), from means, standard deviations and log-weights of each task, which may differ in h."""
    mean, stddev, weight = (
        pad_sequence(values, batch_first=True, padding_value=fill).mT.unsqueeze(-2)
        for values, fill in zip(map(list, zip(*rows, strict=True)), (0.0, 1.0, -torch.inf), strict=True)
    )
    normals = Normal(mean, stddev, validate_args=False)
    return MixtureSameFamily(Categorical(logits=weight, validate_args=False), normals, validate_args=False)
