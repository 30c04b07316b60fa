"""Tasks from random fields in the plane of every kind that interpolation meets: the base model's training data."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from aenp.nn.matern import SMOOTHNESS, matern
from aenp.task import Task

JITTER = 1e-6
"Variance added to every observation of a field of variance one, so that its covariance matrix has a factor."


class Field(NamedTuple):
    """The law of one random field; `roughness` is ν, or −α of a rational quadratic kernel."""

    roughness: float
    lengthscale: float
    stretch: Float[np.ndarray, "2 2"]
    "The map of places under which the field is isotropic."
    waves: Float[np.ndarray, "waves 3"]
    "Wave vectors and phases of the logarithm of the lengthscale; none for a stationary field."
    octave: tuple[float, float]
    "Share of the variance at a second, shorter lengthscale, and that lengthscale relative to the first."
    nugget: float
    trend: Float[np.ndarray, "5"]
    "Coefficients of x, y, x², xy and y²."

    def covariance(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, "n n"]:
        """The covariance of noisy observations, without the trend."""
        share, ratio = self.octave
        scale = self.lengthscales(x)
        cov = (1 - share) * self._correlation(x, scale)
        if share:
            cov = cov + share * self._correlation(x, ratio * scale)
        return cov + (self.nugget + JITTER) * torch.eye(len(x), dtype=x.dtype)

    def mean(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """The trend."""
        squares = torch.stack([x[:, 0], x[:, 1], x[:, 0] ** 2, x[:, 0] * x[:, 1], x[:, 1] ** 2], dim=1)
        return squares @ torch.from_numpy(self.trend)

    def draw(self, rng: np.random.Generator, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """Observations of one such field."""
        noise = torch.from_numpy(rng.standard_normal(len(x)))
        return torch.linalg.cholesky(self.covariance(x)) @ noise + self.mean(x)

    def predict(
        self, xc: Float[Tensor, "n 2"], yc: Float[Tensor, " n"], xt: Float[Tensor, "m 2"]
    ) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Mean and standard deviation of observations, for one who knows this law."""
        x, n = torch.cat([xc, xt]), len(xc)
        mean = self.mean(x)
        rest, std = conditional(self.covariance(x), yc.to(mean) - mean[:n])
        return mean[n:] + rest, std

    def lengthscales(self, x: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        waves = torch.from_numpy(self.waves)
        return self.lengthscale * (x @ waves[:, :2].T + waves[:, 2]).cos().sum(dim=1).exp()

    def _correlation(self, x: Float[Tensor, "n 2"], scale: Float[Tensor, " n"]) -> Float[Tensor, "n n"]:
        """Gibbs' kernel with any correlation in place of the squared exponential (Paciorek and Schervish)."""
        mean_square = (scale[:, None].square() + scale.square()) / 2
        moved = x @ torch.from_numpy(self.stretch).T
        r = torch.cdist(moved, moved) / mean_square.sqrt()
        alpha = -self.roughness
        rho = matern(r, self.roughness) if alpha < 0 else (1 + r.square() / (2 * alpha)) ** -alpha
        return scale[:, None] * scale / mean_square * rho


@dataclass(frozen=True)
class RandomFields:
    """Observations of random fields in a box of about [−1, 1]²: scattered, clustered or gridded, with or without a gap.

    Kernels are Matérn or rational quadratic, perhaps anisotropic, with a lengthscale that varies (Gibbs) or a second
    one (an octave); some fields have a trend. The nugget, in context and targets alike, is up to half of the variance.

    Args:
        num_context: smallest and largest number of context points, log-uniform; the same for a whole batch.
        num_targets: number of targets.
        lengthscale: its smallest and largest value, log-uniform.
        nugget: its smallest and largest variance, log-uniform, relative to the field's; every fifth field has none.
        anisotropy: the largest ratio of lengthscales in two directions.
        trend: the largest slope, in standard deviations of the field.

    Example:
        >>> from aenp.data import RandomFields
        >>> task = RandomFields(num_context=(20, 20)).batch(batch_size=2, index=0, seed=0)
        >>> task.xc.shape, task.xt.shape
        (torch.Size([2, 20, 2]), torch.Size([2, 64, 2]))
    """

    num_context: tuple[int, int] = (3, 256)
    num_targets: int = 64
    lengthscale: tuple[float, float] = (0.03, 3.0)
    nugget: tuple[float, float] = (1e-4, 1.0)
    anisotropy: float = 6.0
    trend: float = 3.0

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream `seed`, a function of these arguments alone."""
        rng = np.random.default_rng((seed, index))
        count = int(log_uniform(rng, self.num_context[0], self.num_context[1] + 1))
        tasks = [self.task(rng, self.field(rng), count) for _ in range(batch_size)]
        return Task.stack(tasks)

    def task(self, rng: np.random.Generator, field: Field, count: int) -> Task:
        """One task with `count` context points of this field."""
        x = torch.from_numpy(places(rng, count, self.num_targets))
        y = field.draw(rng, x).float().unsqueeze(-1)
        (xc, xt), (yc, yt) = (values[None].split([count, self.num_targets], dim=1) for values in (x, y))
        return Task(xc, yc, xt, yt)

    def field(self, rng: np.random.Generator) -> Field:
        """A random field's law."""
        roughness = rng.choice([*SMOOTHNESS, -log_uniform(rng, 0.1, 5.0)])
        ratio = log_uniform(rng, 1.0, self.anisotropy) if rng.random() < 0.4 else 1.0
        turn = rotation(rng)
        waves = np.empty((0, 3))
        if rng.random() < 0.25:
            waves = np.column_stack([rng.normal(0, 2.5, (3, 2)), rng.uniform(0, 2 * np.pi, 3)])
        trend = np.zeros(5)
        if rng.random() < 0.3:
            trend[:2] = rng.normal(0, 1, 2) * log_uniform(rng, 0.2, self.trend)
            trend[2:] = rng.normal(0, 1, 3) * trend[0] * (rng.random() < 0.3)
        return Field(
            roughness=float(roughness),
            lengthscale=log_uniform(rng, *self.lengthscale),
            stretch=turn.T @ np.diag([ratio**0.5, ratio**-0.5]) @ turn,
            waves=waves,
            octave=(rng.uniform(0.05, 0.5), rng.uniform(0.05, 0.4)) if rng.random() < 0.3 else (0.0, 1.0),
            nugget=0.0 if rng.random() < 0.2 else log_uniform(rng, *self.nugget),
            trend=trend,
        )


def conditional(cov: Float[Tensor, "n n"], known: Float[Tensor, " m"]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each of the other values of mean zero, where the first ones are known."""
    n = len(known)
    weights = torch.linalg.solve(cov[:n, :n], cov[:n, n:])
    variance = cov.diagonal()[n:] - (weights * cov[:n, n:]).sum(dim=0)
    return known @ weights, variance.clamp(min=JITTER).sqrt()


def places(rng: np.random.Generator, context: int, targets: int) -> Float[np.ndarray, "points 2"]:
    """Places of context points, then of targets: scattered, clustered or on a lattice, some with a gap for targets."""
    count = context + targets
    make = (scattered, clustered, gridded)[rng.choice(3, p=(0.45, 0.2, 0.35))]
    pool = rng.permutation(make(rng, 3 * count if rng.random() < 0.5 else count + count // 4)) @ rotation(rng)
    if rng.random() < 1 / 3:
        hidden = np.linalg.norm(pool - pool[0], axis=1) < rng.uniform(0.2, 0.7)
        if (~hidden).sum() >= context:
            first = np.flatnonzero(~hidden)[:context]
            return np.concatenate([pool[first], np.delete(pool, first, axis=0)[:targets]])
    return pool[:count]


def scattered(rng: np.random.Generator, count: int) -> Float[np.ndarray, "points 2"]:
    return rng.uniform(-1, 1, (count, 2)) * [1, rng.uniform(0.3, 1)]


def clustered(rng: np.random.Generator, count: int) -> Float[np.ndarray, "points 2"]:
    """Points around two to eight centres, a third of them anywhere."""
    centres = rng.uniform(-1, 1, (rng.integers(2, 9), 2))
    points = centres[rng.integers(len(centres), size=count)] + rng.normal(0, log_uniform(rng, 0.02, 0.3), (count, 2))
    return np.where(rng.random((count, 1)) < 1 / 3, rng.uniform(-1, 1, (count, 2)), points)


def gridded(rng: np.random.Generator, count: int) -> Float[np.ndarray, "points 2"]:
    """The nodes of a lattice, at least `count` of them."""
    aspect = rng.uniform(0.3, 1)
    columns = math.ceil(math.sqrt(count / aspect))
    rows = math.ceil(count / columns)
    x, y = np.meshgrid(np.arange(columns), np.arange(rows))
    nodes = np.column_stack([x.ravel(), y.ravel()]).astype(float)
    return (2 * nodes - [columns - 1, rows - 1]) / max(columns - 1, 1)


def rotation(rng: np.random.Generator) -> Float[np.ndarray, "2 2"]:
    angle = rng.uniform(0, 2 * np.pi)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
