"""The base model beside Gaussian processes fitted to the same points: `python -m benchmarks.base` writes `base.md`.

What was measured is kept in `base.json`, so that numbers of points can be run one by one.
"""

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pandas as pd
import torch
import tyro
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.distributions import Distribution

import aenp
from aenp.data.random_fields import RandomFields, conditional, log_uniform, places
from aenp.evaluation.scores import Score
from aenp.evaluation.tables import markdown_table
from aenp.shipped import base_model
from aenp.sklearn import Interpolator
from aenp.task import Task
from benchmarks.expected import Case, expected, normal
from benchmarks.speed import machine

HERE = Path(__file__).parent
SEED = 2**34
TARGETS = 64
LONG = 0.05
"Seconds that are measured at least."
STEPS, MOST = 100, 800
"Steps of Adam that GPyTorch takes, and the number of points up to which it computes exactly."
PAGE = """\
# The base model

Written by `python -m benchmarks.base`, with `--points` and `--tasks` for what the table has. {machines}.

The base model beside an exact Gaussian process with an anisotropic Matérn kernel, ν = 3/2, and a nugget, fitted to the
same points by maximum likelihood (scikit-learn's own optimiser, L-BFGS, from {starts} starts; its time is about
proportional to their number). Scores are what is to be expected given the points: means over the targets' distribution
for one who knows the field's law, so that no luck of drawn targets is in them. *Nats above*: the base model's
log-likelihood for each target minus the other's, mean ± standard error, and median, over tasks. CRPS is relative to the
other's. *95 %*: the share of targets in 95 % intervals. *s*: seconds of CPU for fitting and {targets} predictions, or a
sixth as many as points if that is more, the median over the same tasks; *faster*: how many times. *Estimator*: the same
by `aenp.sklearn.Interpolator` from arrays to arrays, as scikit-learn's own. *Table*: by `aenp.interpolate` from a table
to a table, where most of the time of few points is that of pandas and xarray; *map*: onto 10⁴ places, of one task.
*GPyTorch* fits the same kernel by {steps} steps of Adam; beyond {most} points it would not compute exactly.

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
    "table: s",
    "map: s",
    "fitted: s",
    "faster",
    "estimator: faster",
    "table: faster",
    "nats above GPyTorch",
    "GPyTorch: s",
    "faster than it",
    "estimator: faster than it",
    "table: faster than it",
]
Correlation = Callable[[Float[Tensor, "n n 2"]], Float[Tensor, "n n"]]


def targets_of(count: int) -> int:
    """The number of targets of a task: more where fits take long and tasks are few."""
    return max(TARGETS, count // 6)


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

    def case(self, rng: np.random.Generator, count: int) -> Case:
        targets = targets_of(count)
        x = torch.from_numpy(places(rng, count, targets))
        difference = (x[:, None] - x) / log_uniform(rng, 0.1, 1.5)
        nugget = log_uniform(rng, 1e-3, 1.0)
        cov = self.correlation(difference) + (nugget + 1e-6) * torch.eye(len(x), dtype=x.dtype)
        y = torch.linalg.cholesky(cov) @ torch.from_numpy(rng.standard_normal(len(x)))
        (xc, xt), (yc, yt) = (each[None].split([count, targets], dim=1) for each in (x, y[:, None]))
        return Case(Task(xc, yc, xt, yt), normal(*conditional(cov, y[:count])))


def trained_on(rng: np.random.Generator, count: int) -> Case:
    source = RandomFields(num_targets=targets_of(count))
    field = source.field(rng)
    task = source.task(rng, field, count)
    return Case(task, normal(*field.predict(task.xc[0], task.yc[0, :, 0], task.xt[0])))


KINDS: dict[str, Callable[[np.random.Generator, int], Case]] = {
    "trained on": trained_on,
    "Matérn, ν = 1": Fields(whittle).case,
    "spherical": Fields(spherical).case,
    "exponential in each coordinate": Fields(separable).case,
}


def interpolated(task: Task) -> Distribution:
    """The base model's prediction of a table; its moments alone."""
    return _on(pd.DataFrame({"latitude": task.xt[0, :, 0].numpy(), "longitude": task.xt[0, :, 1].numpy()}), task)


def mapped(task: Task) -> Distribution:
    """The same of a grid of 10⁴ places over the observations."""
    (low, high), side = torch.aminmax(task.xc[0], dim=0), np.linspace(0, 1, 100)
    axes = [a + (b - a) * side for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    return _on(dict(zip(("latitude", "longitude"), axes, strict=True)), task)


def _on(target: pd.DataFrame | dict[str, np.ndarray], task: Task) -> Distribution:
    observed = {"latitude": task.xc[0, :, 0].numpy(), "longitude": task.xc[0, :, 1].numpy()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        field = aenp.interpolate(pd.DataFrame(observed | {"value": task.yc[0, :, 0].numpy()}), target)
    return normal(*(torch.from_numpy(field[name].values.ravel()) for name in ("mean", "std")))


def estimated(task: Task) -> Distribution:
    """The base model's prediction as an estimator of scikit-learn; its moments alone."""
    model = Interpolator().fit(task.xc[0].numpy(), task.yc[0, :, 0].numpy())
    return normal(*map(torch.from_numpy, model.predict(task.xt[0].numpy(), return_std=True)))


def fitted(task: Task, starts: int) -> Distribution:
    """A Gaussian process whose kernel maximises the likelihood of the context."""
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern([0.5, 0.5], (1e-2, 1e2), 1.5) + WhiteKernel(0.1, (1e-6, 10.0))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=starts - 1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(task.xc[0].numpy(), task.yc[0, :, 0].numpy())
        return normal(*map(torch.from_numpy, model.predict(task.xt[0].numpy(), return_std=True)))


class Process(gpytorch.models.ExactGP):
    def __init__(self, x: Float[Tensor, "n 2"], y: Float[Tensor, " n"]) -> None:
        noise = gpytorch.constraints.GreaterThan(1e-6)
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood(noise_constraint=noise))
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(1.5, ard_num_dims=2))
        self.double()

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def fitted_by_gpytorch(task: Task) -> Distribution:
    """A process of the same kind, by gradients, as GPyTorch's documentation fits it."""
    x, y, xt = task.xc[0].double(), task.yc[0, :, 0].double(), task.xt[0].double()
    shift, scale = y.mean(), y.std()
    y = (y - shift) / scale
    model = Process(x, y)
    optimiser, loss = torch.optim.Adam(model.parameters(), lr=0.1), gpytorch.ExactMarginalLogLikelihood
    for _ in range(STEPS):
        optimiser.zero_grad()
        (-loss(model.likelihood, model)(model(x), y)).backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        prediction = model.likelihood(model(xt))
    return normal(shift + scale * prediction.mean, scale * prediction.stddev)


def scores(predict: Callable[[Task], Distribution], case: Case) -> list[float]:
    """Log-likelihood, CRPS, share in 95 % intervals and seconds of CPU."""
    prediction, seconds = timed(predict, case.task)
    return [*expected(prediction, case.truth), seconds]


def timed(predict: Callable[[Task], Distribution], task: Task) -> tuple[Distribution, float]:
    """A prediction and its seconds of CPU, of short ones the median of several."""
    seconds: list[float] = []
    while sum(seconds) < LONG:
        start = time.process_time()
        prediction = predict(task)
        seconds.append(time.process_time() - start)
    return prediction, float(np.median(seconds))


def main(
    points: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000), tasks: int = 24, starts: int = 2, out: Path = HERE
) -> None:
    """Compares both on the same tasks.

    Args:
        points: numbers of context points.
        tasks: number of tasks of each kind of up to a hundred points; fewer where there are more points.
        starts: starts of the maximisation.
        out: directory for `base.md` and `base.json`.
    """
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    threadpool_limits(1)  # else scikit-learn's threads mostly wait for each other, which counts as its time
    model, file = base_model(), out / "base.json"
    for predict in (interpolated, fitted_by_gpytorch):  # first calls take longer
        predict(trained_on(np.random.default_rng(0), 10).task)
    for count in points:
        for name, draw in KINDS.items():
            number = max(2, round(tasks * min(1, 100 / count)))
            drawn = [draw(np.random.default_rng((SEED, count, index)), count) for index in range(number)]
            found: dict[str, Any] = {"points": count, "fields": name, "starts": starts, "machine": machine()}
            methods = {"base": partial(aenp.predict, model), "estimator": estimated, "table": interpolated}
            methods |= {"fitted": partial(fitted, starts=starts)}
            methods |= {"gpytorch": fitted_by_gpytorch} if count <= MOST else {}
            found |= {method: [] for method in methods}
            for case, (method, predict) in product(drawn, methods.items()):
                found[method].append(scores(predict, case))
            found["map"] = timed(mapped, drawn[0].task)[1]
            print(" | ".join(row(found)), flush=True)
            others = [each for each in known(file) if key(each) != key(found)]
            file.write_text(json.dumps([*others, found]) + "\n")
    (out / "base.md").write_text(page(known(file)))


def known(file: Path) -> list[dict[str, Any]]:
    """What was measured."""
    return json.loads(file.read_text()) if file.exists() else []


def key(found: dict[str, Any]) -> tuple[Any, ...]:
    """What tells rows of the table apart, in their order."""
    return found["points"], list(KINDS).index(found["fields"]), found["starts"]


def page(measured: list[dict[str, Any]]) -> str:
    rows = [row(each) for each in sorted(measured, key=key)]
    machines, starts = (" or ".join(sorted({str(each[key]) for each in measured})) for key in ("machine", "starts"))
    shown = {"starts": starts, "targets": TARGETS, "steps": STEPS, "most": MOST}
    return PAGE.format(machines=machines, table=markdown_table(HEADER, rows), **shown)


def row(found: dict[str, Any]) -> list[str]:
    """The cells of the table from the scores of all on each task."""
    ours, theirs = (torch.tensor(found[key]) for key in ("base", "fitted"))
    gain, base, other = Score.of((ours - theirs)[None, :, 0]), ours.mean(dim=0), theirs.mean(dim=0)
    seconds = {key: float(np.median(found[key], axis=0)[3]) for key in found if isinstance(found[key], list)}
    beside = [""] * 5
    if "gpytorch" in found:
        more = Score.of((ours - torch.tensor(found["gpytorch"]))[None, :, 0])
        beside = [f"{more.mean:+.3f} ± {more.standard_error:.3f}", *times(seconds, "gpytorch")]
    return [
        f"{found['points']:,}",
        found["fields"],
        str(len(ours)),
        f"{gain.mean:+.3f} ± {gain.standard_error:.3f}",
        f"{np.median((ours - theirs)[:, 0]):+.3f}",
        f"{base[1] / other[1]:.3f}",
        *(f"{each[2]:.3f}" for each in (base, other)),
        f"{seconds['base']:.2g}",
        f"{seconds['table']:.2g}",
        f"{found['map']:.2g}",
        *times(seconds, "fitted"),
        *beside,
    ]


def times(seconds: dict[str, float], method: str) -> list[str]:
    """A method's time, and how many times as long it is as ours from tensors, arrays and a table."""
    faster = (seconds[method] / seconds[ours] for ours in ("base", "estimator", "table"))
    return [f"{seconds[method]:.2g}", *(f"{each:.0f} ×" for each in faster)]


if __name__ == "__main__":
    tyro.cli(main)
