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
def logarithms(dim_x: int) -> Float[ndarray, "references 2"]:
    """Of the references' lengthscales and nuggets."""
    return np.log([[each.lengthscale, each.nugget] for each in references(dim_x)])


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


def distances(x1: Float[Tensor, "*batch n dim_x"], x2: Float[Tensor, "*batch m dim_x"]) -> Float[Tensor, "*batch n m"]:
    """From differences of coordinates: those from products of them would have more round-off."""
    return torch.cdist(x1, x2, compute_mode="donot_use_mm_for_euclid_dist")


def spacing(x: Float[Tensor, "batch points dim_x"], mask: Bool[Tensor, "batch points"]) -> Float[Tensor, " batch"]:
    """The median distance of a point, of points whose extent is one, to the nearest other.

    At least a fiftieth of the distance that as many evenly spread points would have, and that if there is one point.
    """
    distance = distances(x, x)
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
    place, its = (places[:, each] for each in (one, other))
    apart = ~(valid[one] & valid[other]) & (one != other)[:, None, None]
    extent = (x.square().sum(dim=(1, 2)) / (mask.sum(dim=1) * x.shape[2]).clamp(min=1)).clamp(min=1e-12)
    constant, linear = (drift[:, one] * drift[:, other]).sum(dim=0), (place * its).sum(dim=0) / extent.unsqueeze(1)
    constant, linear = (each.masked_fill(apart, 0.0).unsqueeze(1) for each in (constant, linear))
    stretched = torch.from_numpy(_stretches(x.shape[2])).to(x).mT @ (place - its).flatten(1)
    distance = stretched.square().sum(dim=1).sqrt().unflatten(1, apart.shape).masked_fill(apart, torch.inf)
    distance, bank = distance.transpose(0, 1).contiguous(), _bank(x.shape[2])
    lengthscale, trend, nugget = (torch.from_numpy(each).to(x)[:, None, None] for each in bank.facts)
    parts = [matern(distance[:, bank.stretches[some]], nu, lengthscale[some]) for nu, some in bank.alike.items()]
    cov = torch.cat(parts, dim=1).add_(constant).addcmul_(linear, trend)[:, bank.which]
    variance, error = _conditional(cov, values, nugget)
    count = own.sum(dim=1).clamp(min=1)
    scales = ((error.square() / variance * own).sum(dim=-1) / count).clamp(min=1e-8).log()
    logliks = -(scales + (variance.log() * own).sum(dim=-1) / count) / 2
    return logliks.T, scales.T


class Bank(NamedTuple):
    """The references in numbers. Those that differ in the nugget alone have one correlation."""

    facts: tuple[Float[ndarray, " correlations"], Float[ndarray, " correlations"], Float[ndarray, " references"]]
    "Lengthscales and variances of the trend of the correlations, and nuggets of the references."
    stretches: list[int]
    "Of the correlations."
    alike: dict[float, slice]
    "Which correlations have a smoothness."
    which: list[int]
    "Each reference's correlation."


@cache
def _bank(dim_x: int) -> Bank:
    kernels = references(dim_x)
    correlations = sorted({each._replace(nugget=0.0) for each in kernels})
    smoothness, lengthscale, _, stretches, trend = zip(*correlations, strict=True)
    alike = {each: slice(smoothness.index(each), bisect_right(smoothness, each)) for each in smoothness}
    facts = np.array(lengthscale), np.array(trend), np.array([each.nugget for each in kernels])
    return Bank(facts, list(stretches), alike, [correlations.index(each._replace(nugget=0.0)) for each in kernels])


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
    tilted = APART * y.tanh() - x @ x.new_tensor(TILT[: x.shape[2]])
    distance = distances(take(x, own), x) + tilted.unsqueeze(1)
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
) -> tuple[Float[Tensor, "references batch rows"], Float[Tensor, "references batch rows"]]:
    """Each last value's variance given those before it, and its error; `cov` has the pairs (j, i) with i ≥ j in order.

    Point by point, Σ_ik ← Σ_ik − Σ_ij Σ_kj / Σ_jj and y_i ← y_i − Σ_ij y_j / Σ_jj for all i and k after j. Every step
    is for all references and rows at once, which takes far less time than a small factor for each of them.
    """
    columns = cov.split(list(range(values.shape[1], 0, -1)))
    errors = values.transpose(0, 1).expand(-1, cov.shape[1], -1, -1).clone()
    for j, column in enumerate(columns):
        variance = (column[0] + nugget).clamp_(min=nugget)
        ratios = column[1:] / variance
        errors[j + 1 :].addcmul_(ratios, errors[j], value=-1)
        for k, (later, ratio) in enumerate(zip(columns[j + 1 :], ratios.unbind(), strict=True)):
            later.addcmul_(column[k + 1 :], ratio, value=-1)
    return variance, errors[-1]
