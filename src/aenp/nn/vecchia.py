"""Vecchia's likelihood: how well reference kernels explain some points, each given its nearest predecessors."""

import math
from functools import cache
from itertools import groupby, product
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.linalg import expm
from torch import Tensor

from aenp.nn import compiled
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
def _numbers(dim_x: int) -> Float[ndarray, "references 5"]:
    """The references as rows of numbers."""
    return np.array(references(dim_x), dtype=float)


@cache
def logarithms(dim_x: int) -> Float[ndarray, "references 2"]:
    """Of the references' lengthscales and nuggets."""
    return np.log(_numbers(dim_x)[:, 1:3])


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
    nearest = (compiled.nearest_distances if compiled.usable(x) else _nearest_distances)(x, mask)
    median = torch.where(mask & (nearest < torch.inf), nearest, torch.nan).nanmedian(dim=1).values
    even = mask.sum(dim=1).clamp(min=1) ** (-1 / x.shape[2])
    return torch.where(median.isnan(), even, torch.maximum(median, even / 50))


def _nearest_distances(
    x: Float[Tensor, "batch points dim_x"], mask: Bool[Tensor, "batch points"]
) -> Float[Tensor, "batch points"]:
    """Of each point to the nearest other that counts, infinite where there is none."""
    itself = x.new_full((x.shape[1],), torch.inf).diag()
    return (distances(x, x) + itself + torch.where(mask, 0.0, torch.inf).unsqueeze(1)).amin(dim=2)


def profile(
    x: Float[Tensor, "batch points dim_x"],
    y: Float[Tensor, "batch points"],
    mask: Bool[Tensor, "batch points"],
    covariates: Float[Tensor, "batch points dim_covariates"] | None = None,
) -> tuple[Float[Tensor, "batch references"], Float[Tensor, "batch references"]]:
    """The mean log-likelihood of a point under each reference at its best variance, and the logarithm of that variance.

    These have no gradients.

    Args:
        x: places relative to their mean, in units of their spacing.
        y: values relative to their mean.
        mask: which points count.
        covariates: regressors with coefficients of variance one.
    """
    in_c, dim_x, count = compiled.usable(x), x.shape[2], mask.sum(dim=1)
    with torch.no_grad():
        key, numbers = order(x, y, mask).sort(dim=1)
        each = [y.unsqueeze(-1), x, torch.ones_like(y).unsqueeze(-1), *([] if covariates is None else [covariates])]
        points = take(torch.cat(each, dim=2), numbers)
        y, places = points[..., 0], points[..., 1 : 1 + dim_x]
        lift = APART * y.tanh() - places @ x.new_tensor(TILT[:dim_x])
        extent = (x.square().sum(dim=(1, 2)) / (count * dim_x).clamp(min=1)).clamp(min=1e-12)
        if in_c:
            return compiled.profile(points, key, lift, count, extent, ROWS, _numbers(dim_x), _stretches(dim_x))
        near, valid = _nearest_predecessors(places, key, lift, count)
        known, own = _at(points, near) * valid, valid[-1]  # zero for a neighbour that there is not
        nugget = torch.from_numpy(_bank(dim_x, len(near)).nugget).to(x)
        variance, error = _conditional(_covariances(known[1:], dim_x, extent), known[:1], nugget)
        count = own.sum(dim=1).clamp(min=1)
        scales = ((error.square() / variance).sum(dim=-1) / count).clamp(min=1e-8).log()
        logliks = -(scales + (variance.log() * own).sum(dim=-1) / count) / 2
        return logliks.T, scales.T


def _covariances(
    known: Float[Tensor, "regressors family batch rows"], dim_x: int, extent: Float[Tensor, " batch"]
) -> Float[Tensor, "pairs references batch rows"]:
    """Under each reference without nugget, of the pairs (j, i) with i ≥ j in order.

    Args:
        known: places, one and covariates of the points; all zero for one that there is not, which covaries with none.
        dim_x: number of coordinates.
        extent: the mean square coordinate, which linear trends are in proportion to.
    """
    family, bank = known.shape[1], _bank(dim_x, known.shape[1])
    pairs = torch.triu_indices(family, family, device=known.device)
    one, other = (known.index_select(1, each) for each in pairs)
    apart, products = one[:dim_x] - other[:dim_x], one * other
    stretched = torch.from_numpy(_stretches(dim_x)).to(apart) @ apart.flatten(1)
    distance = stretched.square_().sum(dim=1).sqrt_().unflatten(1, apart.shape[1:])
    alike = [(nu, number, torch.from_numpy(scale).to(apart)) for nu, (number, scale) in bank.alike.items()]
    correlation = torch.cat([matern(distance[:number], nu, scale) for nu, number, scale in alike])
    constant, linear = products[dim_x:].sum(dim=0), products[:dim_x].sum(dim=0) / extent.unsqueeze(1)
    cov = correlation.mul_(products[dim_x]).add_(constant).addcmul_(linear, torch.from_numpy(bank.trend).to(apart))
    which = torch.from_numpy(bank.which).to(apart.device)
    return cov.flatten(0, 1).index_select(0, which).unflatten(0, (len(constant), -1))


class Bank(NamedTuple):
    """The references in numbers. Those that differ in the nugget alone have one correlation."""

    alike: dict[float, tuple[int, Float[ndarray, "some 1 1 1"]]]
    "The correlations of a smoothness: the number of their stretches, one for all or one for each, and lengthscales."
    trend: Float[ndarray, "correlations 1 1 1"]
    nugget: Float[ndarray, "references 1 1"]
    which: Int[ndarray, " numbers"]
    "Of all pairs of each correlation, one after the other: first those of the first pair for each reference."


@cache
def _bank(dim_x: int, family: int) -> Bank:
    kernels, pairs = references(dim_x), family * (family + 1) // 2
    correlations = sorted({each._replace(nugget=0.0) for each in kernels})
    alike = {}
    for smoothness, some in groupby(correlations, key=attrgetter("smoothness")):
        _, lengthscale, _, stretches, _ = zip(*some, strict=True)
        alike[smoothness] = len(set(stretches)), np.reshape(lengthscale, (-1, 1, 1, 1))
    which = np.array([correlations.index(each._replace(nugget=0.0)) for each in kernels])
    trend, nugget = np.array([each.trend for each in correlations]), np.array([each.nugget for each in kernels])
    numbers = np.arange(pairs)[:, None] + pairs * which
    return Bank(alike, trend.reshape(-1, 1, 1, 1), nugget.reshape(-1, 1, 1), numbers.ravel())


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
    phase = (PHASE + x @ x.new_tensor(WAVE[: x.shape[2]])).remainder_(1)
    return torch.where(mask, phase + APART * y.tanh(), torch.inf)


def take(values: Float[Tensor, "batch points dim"], near: Int[Tensor, "batch *numbers"]) -> Tensor:
    """The values at some of the points."""
    return values.take_along_dim(near.flatten(1).unsqueeze(-1), 1).unflatten(1, near.shape[1:])


def _nearest_predecessors(
    x: Float[Tensor, "batch points dim_x"],
    key: Float[Tensor, "batch points"],
    lift: Float[Tensor, "batch points"],
    count: Int[Tensor, " batch"],
) -> tuple[Int[Tensor, "family batch rows"], Bool[Tensor, "family batch rows"]]:
    """For some of the points, which are in the order of `key`, the numbers of their nearest predecessors and their own.

    `lift` is added to the distance of each. The second tensor says which of them there are.
    """
    count, rank = count.unsqueeze(1), torch.arange(min(ROWS, x.shape[1]), device=x.device).expand(len(x), -1)
    rows, own = x, key
    if x.shape[1] > ROWS:
        rank = torch.where(count <= ROWS, rank, ((rank + 0.5) * count / ROWS).long())
        rows, own = take(x, rank), key.gather(1, rank)
    distance = distances(rows, x).add_(lift.unsqueeze(1))
    distance.masked_fill_(key.unsqueeze(1) >= own.unsqueeze(2), torch.inf)
    near, exists = distance.topk(min(NEIGHBOURS, x.shape[1]), dim=2, largest=False), (rank < count).unsqueeze(-1)
    valid = torch.cat([(near.values < torch.inf) & exists, exists], dim=2)
    return torch.cat([near.indices, rank.unsqueeze(-1)], dim=2).permute(2, 0, 1), valid.permute(2, 0, 1)


def _at(
    values: Float[Tensor, "batch points dim"], near: Int[Tensor, "family batch rows"]
) -> Float[Tensor, "dim family batch rows"]:
    """The values at the points of these numbers, rows last: arithmetic on many rows at a time is fast."""
    each = values.permute(2, 0, 1).unsqueeze(1).expand(-1, len(near), -1, -1)
    return each.gather(3, near.expand(len(each), -1, -1, -1))


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
        variance = column[0].clamp(min=0).add_(nugget)
        ratios = column[1:] / variance
        errors[j + 1 :].addcmul_(ratios, errors[j], value=-1)
        for k, (later, ratio) in enumerate(zip(columns[j + 1 :], ratios.unbind(), strict=True)):
            later.addcmul_(column[k + 1 :], ratio, value=-1)
    return variance, errors[-1]
