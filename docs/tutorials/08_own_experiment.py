"""
An experiment of your own
=========================

An experiment is one class in one file: where its tasks come from, which models at which sizes, and on what they are
tested. Training that resumes, fair scores with standard errors, reports and the command line then come with it. Ours is
a line across a coast: over the sea temperatures vary slowly, over land there is more to see.

In a package of yours, an entry point of the group ``aenp.experiments`` that names the class's module makes it known to
the commands, so that ``aenp train coast --model convcnp --symmetry approx`` works.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from matplotlib import pyplot as plt

import aenp
from aenp.evaluation.scores import Stratum
from aenp.experiments import Experiment
from aenp.experiments.comparison import Comparison
from aenp.experiments.experiment import FamilySetup
from aenp.experiments.runs import RunConfig, train_model
from aenp.training import Recipe

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 600))

# %%
# A source of tasks
# -----------------
# A source draws batches of tasks; the batch must be a function of its arguments alone, so that a run can be repeated
# and resumed. Places are in units of 100 km from the coast, land is where x > 0.


@dataclass(frozen=True)
class Transects:
    """Temperatures along lines 4 units long: slow waves everywhere, and quick ones over land."""

    centre: tuple[float, float] = (-4.0, 4.0)
    land_begins: float = 0.0
    num_context: int = 12
    num_targets: int = 64

    def batch(self, batch_size: int, index: int, seed: int) -> aenp.Task:
        rng = np.random.default_rng((seed, index))
        points = self.num_context + self.num_targets
        x = rng.uniform(*self.centre, (batch_size, 1)) + rng.uniform(-2, 2, (batch_size, points))
        slow, quick = rng.uniform(0, 2 * np.pi, (2, batch_size, 1))
        land = 1 / (1 + np.exp(-8 * (x - self.land_begins)))
        y = np.sin(x + slow) + 0.7 * land * np.sin(6 * x + quick) + rng.normal(0, 0.1, x.shape)
        (xc, xt), (yc, yt) = (
            torch.tensor(each[..., None], dtype=torch.float32).split([self.num_context, self.num_targets], dim=1)
            for each in (x, y)
        )
        return aenp.Task(xc, yc, xt, yt)


# %%
# The experiment
# --------------
# ``setups`` has the sizes and the training of each family. Each test set is a list of strata, here one for each number
# of observations. The second set lies far out at sea, where the fixed inputs are off.


class Coast(Experiment):
    name = "coast"
    title = "Temperatures across a coast"
    dim_x = 1
    domain = ((-6.0, 6.0),)
    norm = 1
    outside = ("open sea",)
    models = (("convcnp", "exact"), ("convcnp", "approx"))
    setups = {  # noqa: RUF012
        "cpu": {"convcnp": FamilySetup(Recipe(STEPS), {"points_per_unit": 8.0, "channels": 32}, {"fourier": 4})}
    }

    def source(self) -> Transects:
        return Transects()

    def validation(self) -> tuple[list[aenp.Task], None]:
        return [Transects().batch(64, 0, seed=1)], None

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        sets = {"at the coast": Transects(), "open sea": Transects(centre=(-30.0, -20.0))}
        sizes = (6, 12, 24)
        return {
            name: [Stratum(replace(source, num_context=n).batch(tasks // len(sizes), n, 2**31 + seed)) for n in sizes]
            for name, source in sets.items()
        }

    def figures(self, models: Mapping[str, aenp.NeuralProcess], out: Path, seed: int) -> list[Path]:
        task, x = Transects(centre=(0.0, 0.0)).batch(1, 0, seed), torch.linspace(-2, 2, 401)
        figure, axes = plt.subplots(1, len(models), figsize=(10, 3.5), sharey=True, layout="constrained")
        for axis, model in zip(axes, models.values(), strict=True):
            prediction = aenp.predict(model, task.with_targets(x[None, :, None]))
            mean, spread = prediction.mean.flatten(), 1.96 * prediction.stddev.flatten()
            axis.plot(x, mean)
            axis.fill_between(x, mean - spread, mean + spread, alpha=0.2)
            axis.scatter(task.xt, task.yt, s=4, color="grey", label="targets")
            axis.scatter(task.xc, task.yc, s=16, color="black", label="observations")
            axis.set(title=model.label, xlabel="distance from the coast [100 km]")
        axes[0].set_ylabel("temperature anomaly [K]")
        axes[0].legend()
        figure.savefig(out / "coast.png")
        return [out / "coast.png"]


# %%
# Train and compare
# -----------------
# As ``aenp train``, ``aenp evaluate`` and ``aenp plot`` do. Differences between two models are paired, on the same
# tasks.

models = {}
with TemporaryDirectory() as folder:
    for symmetry in ("exact", "approx"):
        run = Path(folder, symmetry)
        train_model(run, RunConfig("coast", "convcnp", symmetry))
        models[f"convcnp-{symmetry}"] = aenp.load(run / "model.safetensors")
    Coast().figures(models, Path(folder), seed=3)
comparison = Comparison(Coast(), models, tasks=384, seed=0)
print(comparison.loglik_table())
print(f"gain at the coast: {comparison.difference('at the coast', 'convcnp-approx', 'convcnp-exact')}")
