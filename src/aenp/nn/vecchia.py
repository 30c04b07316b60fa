"""Vecchia's likelihood: how well reference kernels explain some points, each given its nearest predecessors."""

import math
from bisect import bisect_right
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.linalg import expm
from torch import Tensor
from torch.nn.functional import pad

from aenp.nn.matern import matern

STRETCH = math.log(2.0)
"Logarithm of the ratio by which anisotropic references stretch one direction and shrink another."
ROWS, NEIGHBOURS = 128, 8
SMALL = 1e-4
"A nugget below which factors need double precision."
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


@cache
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


@cache
def traceless(dim_x: int) -> Float[ndarray, "directions dim_x dim_x"]:
    """A basis of the symmetric matrices of trace zero: the directions of anisotropy."""
    basis = []
    for i, j in product(range(dim_x), repeat=2):
        matrix = np.zeros((dim_x, dim_x))
        if i < j:
            matrix[i, j] = matrix[j, i] = 1.0
        elif i == j > 0:
            matrix[i, i], matrix[i - 1, i - 1] = -1.0, 1.0
        else:
            continue
        basis.append(matrix)
    return np.array(basis).reshape(-1, dim_x, dim_x)


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
    near, valid = (each.permute(2, 0, 1) for each in _nearest_predecessors(x, y, mask))
    places, values, own = _at(x, near), _at(y.unsqueeze(-1), near) * valid, valid[-1]
    drift = torch.ones_like(values) if covariates is None else _at(pad(covariates, [1, 0], value=1.0), near)
    one, other = torch.triu_indices(len(near), len(near), device=x.device)
    (place, its), apart = (places[:, each] for each in (one, other)), ~(valid[one] & valid[other])
    extent = (x.square().sum(dim=(1, 2)) / (mask.sum(dim=1) * x.shape[2]).clamp(min=1)).clamp(min=1e-12)
    constant, linear = (drift[:, one] * drift[:, other]).sum(dim=0), (place * its).sum(dim=0) / extent.unsqueeze(1)
    constant, linear = (each.masked_fill(apart, 0.0).unsqueeze(1) for each in (constant, linear))
    stretched = torch.from_numpy(_stretches(x.shape[2])).to(x).mT @ (place - its).flatten(1)
    distances = stretched.square().sum(dim=1).sqrt().unflatten(1, apart.shape).masked_fill(apart, torch.inf)
    count, logliks, scales = own.sum(dim=1).clamp(min=1), [], []
    for bank in _banks(x.shape[2]):
        distance, parts = distances.to(bank.dtype).transpose(0, 1).contiguous(), []
        lengthscale, nugget, trend = torch.from_numpy(bank.facts).to(distance)[..., None, None]
        for smoothness, some in bank.alike.items():
            parts.append(matern(distance[:, bank.stretches[smoothness]], smoothness, lengthscale[some]))
            if smoothness in bank.with_trend:
                parts[-1].addcmul_(trend[some], linear.to(distance))
        cov = torch.cat(parts, dim=1).add_(constant.to(distance))
        variance, error = _conditional(cov, values.to(cov), nugget, valid)
        scale = ((error.square() / variance * own).sum(dim=-1) / count).clamp(min=1e-8).log()
        logliks.append(-(scale + (variance.log() * own).sum(dim=-1) / count).double() / 2)
        scales.append(scale.double())
    order = np.argsort(np.concatenate([bank.numbers for bank in _banks(x.shape[2])]))
    return torch.cat(logliks)[order].T, torch.cat(scales)[order].T


class Bank(NamedTuple):
    """References of one precision, sorted by smoothness, which are computed together."""

    dtype: torch.dtype
    numbers: Int[ndarray, " references"]
    facts: Float[ndarray, "3 references"]
    "Lengthscales, nuggets and variances of the trend."
    alike: dict[float, slice]
    "Which of them have a smoothness."
    stretches: dict[float, list[int]]
    "Their stretches, or one that is that of all."
    with_trend: set[float]
    "Smoothness of those with a trend."


@cache
def _banks(dim_x: int) -> list[Bank]:
    """The references of single and of double precision."""
    banks = []
    for dtype in (torch.float32, torch.float64):
        found = [each for each in enumerate(references(dim_x)) if (each[1].nugget < SMALL) == (dtype == torch.float64)]
        numbers, kernels = zip(*sorted(found, key=lambda each: each[1].smoothness), strict=True)
        smoothness = [each.smoothness for each in kernels]
        ends = {each: bisect_right(smoothness, each) for each in smoothness}
        alike = {each: slice(smoothness.index(each), end) for each, end in ends.items()}
        facts = np.array([[each.lengthscale, each.nugget, each.trend] for each in kernels]).T
        stretches = {each: [kernel.stretch for kernel in kernels[some]] for each, some in alike.items()}
        stretches = {each: some if any(some) else [0] for each, some in stretches.items()}
        trends = {each.smoothness for each in kernels if each.trend}
        banks.append(Bank(dtype, np.array(numbers), facts, alike, stretches, trends))
    return banks


@cache
def _stretches(dim_x: int) -> Float[ndarray, "stretches dim_x dim_x"]:
    """No stretch, then every direction's with either sign."""
    signed = [sign * STRETCH * matrix for matrix in traceless(dim_x) for sign in (1, -1)]
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


def _at(
    values: Float[Tensor, "batch points dim"], near: Int[Tensor, "family batch rows"]
) -> Float[Tensor, "dim family batch rows"]:
    """The values at the points of these numbers, rows last: arithmetic on many rows at a time is fast."""
    return values.permute(2, 0, 1).unsqueeze(1).take_along_dim(near.unsqueeze(0), dim=3)


def _conditional(
    cov: Float[Tensor, "pairs references batch rows"],
    values: Float[Tensor, "1 family batch rows"],
    nugget: Float[Tensor, "references 1 1"],
    valid: Bool[Tensor, "family batch rows"],
) -> tuple[Float[Tensor, "references batch rows"], Float[Tensor, "references batch rows"]]:
    """Each last value's variance given those before it, and its error; `cov` has the pairs (j, i) with i ≥ j in order.

    Point by point, Σ_ik ← Σ_ik − Σ_ij Σ_kj / Σ_jj and y_i ← y_i − Σ_ij y_j / Σ_jj for all i and k after j. Every step
    is for all references and rows at once, which takes far less time than a small factor for each of them.
    """
    columns, errors = cov.split(list(range(len(valid), 0, -1))), values.transpose(0, 1).repeat(1, cov.shape[1], 1, 1)
    noise = torch.where(valid.unsqueeze(1), nugget, 1.0)
    for j, column in enumerate(columns):
        variance = (column[0] + noise[j]).clamp_(min=nugget)
        ratios = column[1:] / variance
        errors[j + 1 :].addcmul_(ratios, errors[j], value=-1)
        for k, (later, ratio) in enumerate(zip(columns[j + 1 :], ratios.unbind(), strict=True)):
            later.addcmul_(column[k + 1 :], ratio, value=-1)
    return variance, errors[-1]
