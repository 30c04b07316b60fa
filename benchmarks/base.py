"""The base model beside Gaussian processes fitted to the same points: `python -m benchmarks.base` writes `base.md`."""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from torch import Tensor
from torch.distributions import Distribution, Normal

import aenp
from aenp.data.random_fields import RandomFields, log_uniform, places
from aenp.evaluation.metrics import covered, crps
from aenp.evaluation.scores import Score
from aenp.evaluation.tables import markdown_table
from aenp.shipped import base_model
from aenp.task import Task
from benchmarks.speed import machine

HERE = Path(__file__).parent
SEED = 2**34
TARGETS = 64
PAGE = """\
# The base model

Written by `python -m benchmarks.base --points {points} --tasks {tasks}`. {machine}

The base model beside an exact Gaussian process with an anisotropic Matérn kernel, ν = 3/2, and a nugget, fitted to the
same points by maximum likelihood (scikit-learn's own optimiser, L-BFGS, from {starts} starts; its time is about
proportional to their number). *Nats above*: the base model's log-likelihood for each target minus the other's, mean ±
standard error, and median, over tasks. CRPS is relative to the other's. *95 %*: the share of targets in 95 % intervals.
*s*: seconds of CPU for fitting and {targets} predictions, the median over the same tasks; *faster*: how many times.

*Trained on*: as in training. The others are kernels that training does not have, with nuggets from 10⁻³ of the field's
variance to all of it: Matérn with ν = 1, spherical, and exponential in each coordinate. With ten points, a fitted
process may take noise for none at all, which a mean over tasks does not forgive.

{table}
"""
HEADER = [
    "points",
    "fields",
    "tasks",
    "nats above",
    "median",
    "CRPS",
    "base: 95 %",
    "fitted: 95 %",
    "base: s",
    "fitted: s",
    "faster",
]
Correlation = Callable[[Float[Tensor, "n n 2"]], Float[Tensor, "n n"]]


def spherical(d: Float[Tensor, "n n 2"]) -> Float[Tensor, "n n"]:
    """In three dimensions, hence also in two, a covariance of finite range."""
    r = d.norm(dim=-1).clamp(max=1)
    return 1 - 1.5 * r + 0.5 * r**3


def whittle(d: Float[Tensor, "n n 2"]) -> Float[Tensor, "n n"]:
    """Matérn with ν = 1: r K_1(r)."""
    r = d.norm(dim=-1).clamp(min=1e-8)
    return r * torch.special.modified_bessel_k1(r)


def separable(d: Float[Tensor, "n n 2"]) -> Float[Tensor, "n n"]:
    return (-d.abs().sum(dim=-1)).exp()


@dataclass(frozen=True)
class Fields:
    """Tasks of fields with one correlation, of a lengthscale and a nugget that are drawn for each."""

    correlation: Correlation

    def task(self, rng: np.random.Generator, count: int) -> Task:
        x = torch.from_numpy(places(rng, count, TARGETS))
        difference = (x[:, None] - x) / log_uniform(rng, 0.1, 1.5)
        nugget = log_uniform(rng, 1e-3, 1.0)
        cov = self.correlation(difference) + (nugget + 1e-6) * torch.eye(len(x), dtype=x.dtype)
        y = torch.linalg.cholesky(cov) @ torch.from_numpy(rng.standard_normal(len(x)))
        (xc, xt), (yc, yt) = (each[None].split([count, TARGETS], dim=1) for each in (x, y[:, None]))
        return Task(xc, yc, xt, yt)


def trained_on(rng: np.random.Generator, count: int) -> Task:
    source = RandomFields(num_targets=TARGETS)
    return source.task(rng, source.field(rng), count)


KINDS: dict[str, Callable[[np.random.Generator, int], Task]] = {
    "trained on": trained_on,
    "Matérn, ν = 1": Fields(whittle).task,
    "spherical": Fields(spherical).task,
    "exponential in each coordinate": Fields(separable).task,
}


def fitted(task: Task, starts: int) -> Distribution:
    """A Gaussian process whose kernel maximises the likelihood of the context."""
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern([0.5, 0.5], (1e-2, 1e2), 1.5) + WhiteKernel(0.1, (1e-6, 10.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=starts - 1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(task.xc[0].numpy(), task.yc[0, :, 0].numpy())
        mean, std = model.predict(task.xt[0].numpy(), return_std=True)
    return Normal(torch.from_numpy(mean)[None, :, None], torch.from_numpy(std)[None, :, None])


def scores(predict: Callable[[Task], Distribution], task: Task) -> list[float]:
    """Log-likelihood, CRPS, share in 95 % intervals and seconds of CPU."""
    start = time.process_time()
    prediction = predict(task)
    seconds = time.process_time() - start
    y = task.yt.to(prediction.mean)  # type: ignore[union-attr]
    values = prediction.log_prob(y), crps(prediction, y), covered(prediction, y, 0.95).to(y)
    return [*(value.mean().item() for value in values), seconds]


def main(
    points: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000), tasks: int = 24, starts: int = 2, out: Path = HERE
) -> None:
    """Compares both on the same tasks.

    Args:
        points: numbers of context points.
        tasks: number of tasks of each kind of up to a hundred points; fewer where there are more points.
        starts: starts of the maximisation.
        out: directory for `base.md`.
    """
    torch.set_num_threads(1)
    model, rows = base_model(), []
    aenp.predict(model, trained_on(np.random.default_rng(0), 10))
    for count in points:
        for name, draw in KINDS.items():
            number = max(2, round(tasks * min(1, 100 / count)))
            drawn = [draw(np.random.default_rng((SEED, count, index)), count) for index in range(number)]
            ours = torch.tensor([scores(lambda task: aenp.predict(model, task), task) for task in drawn])
            theirs = torch.tensor([scores(lambda task: fitted(task, starts), task) for task in drawn])
            rows.append([f"{count:,}", name, str(number), *row(ours, theirs)])
            print(" | ".join(rows[-1]), flush=True)
    shown = {"points": " ".join(map(str, points)), "tasks": tasks, "starts": starts, "targets": TARGETS}
    (out / "base.md").write_text(PAGE.format(machine=machine(), table=markdown_table(HEADER, rows), **shown))


def row(ours: Float[Tensor, "tasks scores"], theirs: Float[Tensor, "tasks scores"]) -> list[str]:
    """The cells of the table from the scores of both on each task."""
    gain, base, other = Score.of((ours - theirs)[None, :, 0]), ours.mean(dim=0), theirs.mean(dim=0)
    seconds = [each[:, 3].median().item() for each in (ours, theirs)]
    return [
        f"{gain.mean:+.3f} ± {gain.standard_error:.3f}",
        f"{(ours - theirs)[:, 0].median():+.3f}",
        f"{base[1] / other[1]:.3f}",
        *(f"{each[2]:.3f}" for each in (base, other)),
        *(f"{each:.2g}" for each in seconds),
        f"{seconds[1] / seconds[0]:.0f} ×",
    ]


if __name__ == "__main__":
    tyro.cli(main)
