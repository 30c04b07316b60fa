"""Vecchia's likelihood: how well reference kernels explain some points, each given its nearest predecessors."""

import math
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.linalg import expm
from torch import Tensor

from aenp.nn.matern import matern

STRETCH = math.log(2.0)
"Logarithm of the ratio by which anisotropic references stretch one direction and shrink another."
ROWS, NEIGHBOURS = 128, 8
SMALL = 1e-4
"A nugget below which factors need double precision."
HUGE = 1e9
"More than the squared norm of values in standard deviations."
WAVE = (17.31, 29.87, 23.57, 41.13)
"Generic wave vector, in turns per spacing, whose phases order points as if at random."
PHASE = 0.371127
"Its phase at the mean, generic too, so that no place of a lattice lies where a turn ends."
TILT = (1.3e-3, 2.9e-3, 1.9e-3, 3.7e-3)
"Generic and small: makes distances on a lattice differ, so that neighbours do not depend on round-off."

APART = 1e-6
"How far values move points that lie at the same place."


class Reference(NamedTuple):
    """A kernel of variance one: its smoothness, lengthscale in spacings, nugget, stretch and variance of a trend."""

    smoothness: float
    lengthscale: float
    nugget: float
    stretch: int = 0
    "Number of its stretch, 0 for none."
    trend: float = 0.0


def references(dim_x: int) -> list[Reference]:
    """The reference kernels in `dim_x` dimensions."""
    rough = product((0.5,), (2.0, 8.0, 32.0, 128.0), (1e-3, 0.1, 0.5))
    smooth = product((2.5,), (1.5, 5.0, 16.0, 50.0), (1e-6, 1e-3, 0.03, 0.4))
    analytic = product((math.inf,), (1.0, 3.0, 9.0), (1e-6, 1e-3, 0.05, 0.5))
    stretched = product((1e-3, 0.3), range(1, 2 * len(traceless(dim_x)) + 1))
    return [
        *(Reference(*each) for each in (*rough, *smooth, *analytic)),
        *(Reference(1.5, 3.0, nugget, stretch) for nugget, stretch in stretched),
        *(Reference(1.5, 3.0, nugget, trend=10.0) for nugget in (1e-3, 0.3)),
    ]


def traceless(dim_x: int) -> Float[Tensor, "directions dim_x dim_x"]:
    """A basis of the symmetric matrices of trace zero: the directions of anisotropy."""
    basis = []
    for i, j in product(range(dim_x), repeat=2):
        matrix = torch.zeros(dim_x, dim_x, dtype=torch.float64)
        if i < j:
            matrix[i, j] = matrix[j, i] = 1.0
        elif i == j > 0:
            matrix[i, i], matrix[i - 1, i - 1] = -1.0, 1.0
        else:
            continue
        basis.append(matrix)
    return torch.stack(basis) if basis else torch.zeros(0, dim_x, dim_x, dtype=torch.float64)


def spacing(x: Float[Tensor, "batch points dim_x"], mask: Bool[Tensor, "batch points"]) -> Float[Tensor, " batch"]:
    """The median distance of a point, of points whose extent is one, to the nearest other.

    At least a fiftieth of the distance that as many evenly spread points would have, and that if there is one point.
    """
    distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    itself = torch.eye(x.shape[1], dtype=torch.bool, device=x.device)
    nearest = distance.masked_fill(itself | ~mask.unsqueeze(1), torch.inf).amin(dim=2)
    median = nearest.masked_fill(~(mask & nearest.isfinite()), torch.nan).nanmedian(dim=1).values
    even = mask.sum(dim=1).clamp(min=1) ** (-1 / x.shape[2])
    return torch.where(median.isnan(), even, torch.maximum(median, even / 50))


def profile(
    x: Float[Tensor, "batch points dim_x"],
    y: Float[Tensor, "batch points"],
    mask: Bool[Tensor, "batch points"],
    covariates: Float[Tensor, "batch points dim_covariates"] | None = None,
) -> tuple[Float[Tensor, "batch references"], Float[Tensor, "batch references"]]:
    """The mean log-likelihood of a point under each reference at its best variance, and the logarithm of that variance.

    Args:
        x: places relative to their mean, in units of their spacing.
        y: values relative to their mean.
        mask: which points count.
        covariates: regressors with coefficients of variance one.
    """
    near, valid = _nearest_predecessors(x, y, mask)
    places, values = take(x, near), take(y.unsqueeze(-1), near) * valid.unsqueeze(-1)
    drift = torch.ones_like(values)
    if covariates is not None:
        drift = torch.cat([drift, take(covariates, near)], dim=-1)
    constant = drift @ drift.mT
    square = x.square().sum(dim=(1, 2)) / (mask.sum(dim=1) * x.shape[2]).clamp(min=1)
    linear = places @ places.mT / square.clamp(min=1e-12)[:, None, None, None]
    distances = _distance(places @ torch.from_numpy(_stretches(x.shape[2])).to(places)[:, None, None])
    own, count = valid[..., -1], valid[..., -1].sum(dim=1).clamp(min=1)
    numbers, logliks, scales = [], [], []
    for group in _alike(x.shape[2]).values():
        dtype = torch.float64 if group[0][1].nugget < SMALL else torch.float32
        facts = [[each.lengthscale, each.nugget, each.trend] for _, each in group]
        lengthscale, nugget, trend = x.new_tensor(facts, dtype=dtype).T[..., None, None, None, None]
        distance = distances.to(dtype)[[each.stretch for _, each in group]]
        cov = matern(distance / lengthscale, group[0][1].smoothness) + constant.to(dtype)
        if any(each.trend for _, each in group):
            cov = cov + trend * linear.to(dtype)
        log_variance, square = _conditional(cov, values.to(dtype), valid, nugget.squeeze(-1))
        scale = ((square * own).sum(dim=-1) / count).clamp(min=1e-8).log()
        logliks.append(-(scale + (log_variance * own).sum(dim=-1) / count).double() / 2)
        scales.append(scale.double())
        numbers += [number for number, _ in group]
    order = torch.tensor(numbers, device=x.device).argsort()
    return torch.cat(logliks)[order].T, torch.cat(scales)[order].T


def _alike(dim_x: int) -> dict[tuple[float, bool], list[tuple[int, Reference]]]:
    """The references with their numbers, in groups of one smoothness and precision, to be computed together."""
    groups: dict[tuple[float, bool], list[tuple[int, Reference]]] = {}
    for number, each in enumerate(references(dim_x)):
        groups.setdefault((each.smoothness, each.nugget < SMALL), []).append((number, each))
    return groups


@cache
def _stretches(dim_x: int) -> Float[ndarray, "stretches dim_x dim_x"]:
    """No stretch, then every direction's with either sign."""
    signed = [sign * STRETCH * matrix for matrix in traceless(dim_x).numpy() for sign in (1, -1)]
    return np.stack([np.eye(dim_x), *map(expm, signed)])


def order(
    x: Float[Tensor, "batch points dim_x"], y: Float[Tensor, "batch points"], mask: Bool[Tensor, "batch points"]
) -> Float[Tensor, "batch points"]:
    """Numbers that put points into an order as good as random, whatever the order in which they are given.

    Those at the same place are told apart by their values, and masked points come last. Places are in spacings.
    """
    turns = PHASE + x @ x.new_tensor(WAVE[: x.shape[2]])
    return (turns - turns.floor() + APART * y.tanh()).masked_fill(~mask, torch.inf)


def take(values: Float[Tensor, "batch points dim"], near: Int[Tensor, "batch *numbers"]) -> Tensor:
    """The values at some of the points."""
    return values.take_along_dim(near.flatten(1).unsqueeze(-1), 1).unflatten(1, near.shape[1:])


def _nearest_predecessors(
    x: Float[Tensor, "batch points dim_x"], y: Float[Tensor, "batch points"], mask: Bool[Tensor, "batch points"]
) -> tuple[Int[Tensor, "batch rows family"], Bool[Tensor, "batch rows family"]]:
    """For some points the numbers of their nearest predecessors in an order that is as good as random, and their own.

    The second tensor says which of them there are.
    """
    key, count = order(x, y, mask), mask.sum(dim=1, keepdim=True)
    rows = torch.arange(min(ROWS, x.shape[1]), device=x.device)
    thinned = ((rows + 0.5) * count / len(rows)).long()
    rank = torch.where(count <= len(rows), rows, thinned)
    own = key.argsort(dim=1).take_along_dim(rank.clamp(max=x.shape[1] - 1), 1)
    difference = x.take_along_dim(own.unsqueeze(-1), 1).unsqueeze(2) - x.unsqueeze(1)
    distance = difference.norm(dim=-1) + difference @ x.new_tensor(TILT[: x.shape[2]]) + APART * y.tanh().unsqueeze(1)
    earlier = key.unsqueeze(1) < key.take_along_dim(own, 1).unsqueeze(2)
    distance = distance.masked_fill(~earlier, torch.inf)
    near = distance.topk(min(NEIGHBOURS, x.shape[1]), dim=2, largest=False)
    exists = rank < count
    valid = torch.cat([near.values.isfinite() & exists.unsqueeze(-1), exists.unsqueeze(-1)], dim=2)
    return torch.cat([near.indices, own.unsqueeze(-1)], dim=2), valid


def _distance(x: Float[Tensor, "*batch points dim"]) -> Float[Tensor, "*batch points points"]:
    return (x.unsqueeze(-2) - x.unsqueeze(-3)).norm(dim=-1)


def _conditional(
    cov: Float[Tensor, "references batch rows family family"],
    values: Float[Tensor, "batch rows family 1"],
    valid: Bool[Tensor, "batch rows family"],
    nugget: Float[Tensor, "references 1 1 1"],
) -> tuple[Float[Tensor, "references batch rows"], Float[Tensor, "references batch rows"]]:
    """The logarithm of each last value's variance given those before it, and its squared error in that variance.

    One factor gives both: below that of the covariance, the values become their errors in standard deviations.
    """
    size = cov.shape[-1]
    cov = cov * (valid.unsqueeze(-1) & valid.unsqueeze(-2))
    cov.diagonal(dim1=-2, dim2=-1).add_(torch.where(valid, nugget, 1.0))
    values = values.expand(*cov.shape[:-1], 1)
    above = torch.cat([cov, values], dim=-1)
    below = torch.cat([values.mT, torch.full_like(values[..., :1, :], HUGE)], dim=-1)
    factor = torch.linalg.cholesky(torch.cat([above, below], dim=-2))
    return 2 * factor[..., size - 1, size - 1].log(), factor[..., size, size - 1].square()
