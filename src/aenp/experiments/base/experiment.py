"""The base models, trained on random fields of many kinds: one interpolates any, at the others `aenp.fit` starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributions import Distribution, Normal

from aenp.data import TaskSource
from aenp.data.random_fields import Field, RandomFields, log_uniform
from aenp.data.random_windows import RandomWindows, Window
from aenp.earth.fitting import LEARNING_RATE, OPTIONS, RECIPES
from aenp.earth.training_data import OBSERVED
from aenp.evaluation.scores import oracle_values
from aenp.experiments.experiment import Experiment, FamilySetup, Stratum, per_stratum
from aenp.process import NeuralProcess
from aenp.task import Task
from aenp.training.recipe import Recipe

SOURCE = RandomFields()
VALIDATION_SEED, TEST_SEED = 2**31, 2**32
COUNTS = (3, 6, 12, 25, 50, 100, 150, 256)
ROUGHER = RandomFields(lengthscale=(0.01, 0.03))
WINDOWS, DENSE = RandomWindows(), RandomWindows(share=OBSERVED)
KNOWN = RandomWindows(share=OBSERVED, covariate=True)
TESTED = [Window(True, 2.0, seen) for seen in (10, 40, 120, 340)]
TESTED += [Window(False, 2.0, seen) for seen in (3, 10, 20, 40)]
"The patches and the windows of stations that models are tested on."
OF_FIT = {"values": "centred", "wavelengths": (0.125, 6.0)}
"Beside the options of `aenp.fit`: scales that suit most of its tasks."


@dataclass(frozen=True)
class Tasks:
    """The tasks of one of several sources."""

    source: TaskSource = SOURCE

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        return self.source.batch(batch_size, index, seed)


def _of_fit(family: str, windows: RandomWindows, steps: int, **options: Any) -> FamilySetup:
    recipe = Recipe(steps=steps, learning_rate=LEARNING_RATE, **RECIPES[family])
    return FamilySetup(recipe, OPTIONS[family] | OF_FIT | options, tasks={"source": windows})


class Base(Experiment):
    """Random fields in the plane, fields rougher than any in training, and windows as `aenp.fit` poses them."""

    name = "base"
    title = "The base models: random fields"
    dim_x = 2
    domain = ((-1.0, 1.0), (-1.0, 1.0))
    norm = 1
    remark = """\
This experiment is not the paper's. The *truth* knows each field's kernel, nugget and trend. `python -m benchmarks.base`
compares the KrigingNP with exact Gaussian processes whose kernels are fitted to the same points. The transformers, at
which fits start, are trained on *windows as in fit* alone; the KrigingNP is not."""
    models = (("krigingnp", "exact"), ("pttnp", "exact"), ("tnp", "exact"))
    setups = {  # noqa: RUF012
        "cpu": {
            "krigingnp": FamilySetup(Recipe(steps=14_000, batch_size=8, learning_rate=2e-3, clip_by="norm")),
            "pttnp": _of_fit("pttnp", WINDOWS, 8_000),
            "tnp": _of_fit("tnp", DENSE, 8_000),
        },
        "paper": {
            "krigingnp": FamilySetup(Recipe(steps=100_000, batch_size=16, learning_rate=1e-3, clip_by="norm")),
            "pttnp": _of_fit("pttnp", WINDOWS, 100_000),
            "tnp": _of_fit("tnp", DENSE, 100_000),
        },
    }

    def source(self) -> Tasks:
        return Tasks()

    def validation(self) -> tuple[list[Task], float]:
        strata = _strata(SOURCE, 16, VALIDATION_SEED) + _windows(16, VALIDATION_SEED)
        return [stratum.task for stratum in strata], oracle_values(strata)["truth"]["loglik"].mean().item()

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        each = per_stratum(tasks, len(COUNTS))
        return {
            "fields as in training": _strata(SOURCE, each, TEST_SEED + 2 * seed),
            "rougher fields": _strata(ROUGHER, each, TEST_SEED + 2 * seed + 1),
            "windows as in fit": _windows(each, TEST_SEED + 2 * seed),
        }

    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        return []


class BaseWithCovariate(Experiment):
    """Windows as `aenp.fit` poses them for stations whose elevation, or another covariate, is known."""

    name = "base-covariate"
    title = "The base model with a covariate: random fields"
    dim_x = 2
    domain = Base.domain
    norm = 1
    remark = """\
This experiment is not the paper's. Values change linearly with a covariate, which is a random field too. The *truth*
knows the slope, and the field's kernel, nugget and trend."""
    models = (("tnp", "exact"),)
    setups = {  # noqa: RUF012
        "cpu": {"tnp": _of_fit("tnp", KNOWN, 10_000, dim_covariates=1)},
        "paper": {"tnp": _of_fit("tnp", KNOWN, 100_000, dim_covariates=1)},
    }

    def source(self) -> Tasks:
        return Tasks(KNOWN)

    def validation(self) -> tuple[list[Task], float]:
        strata = _windows(16, VALIDATION_SEED, KNOWN)
        return [stratum.task for stratum in strata], oracle_values(strata)["truth"]["loglik"].mean().item()

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        return {"windows as in fit": _windows(per_stratum(tasks, len(TESTED)), TEST_SEED + 2 * seed, KNOWN)}

    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        return []


def _strata(source: RandomFields, each: int, seed: int) -> list[Stratum]:
    """`each` tasks with each number of context points."""
    strata = []
    for count in COUNTS:
        rng = np.random.default_rng((seed, count))
        fields = [source.field(rng) for _ in range(each)]
        task = Task.stack(source.task(rng, field, count) for field in fields)
        strata.append(Stratum(task, partial(_truth, fields=fields)))
    return strata


def _windows(each: int, seed: int, source: RandomWindows = WINDOWS) -> list[Stratum]:
    """`each` tasks with each of the windows tested."""
    strata = []
    for window in TESTED:
        rng = np.random.default_rng((seed, window.gridded, window.seen))
        fields = [source.laws.field(rng) for _ in range(each)]
        units = [log_uniform(rng, *source.amplitude) for _ in range(each)]
        effects = [source.effect(rng) for _ in range(each)]
        task = Task.stack(starmap(partial(source.task, rng, window=window), zip(fields, units, effects, strict=True)))
        slopes = [0.0 if effect is None else effect.slope for effect in effects]
        strata.append(Stratum(task, partial(_truth, fields=fields, units=units, slopes=slopes)))
    return strata


def _truth(
    task: Task, fields: Sequence[Field], units: Sequence[float] | None = None, slopes: Sequence[float] = ()
) -> dict[str, Distribution]:
    """Kriging with each field's own law and slope, of values in its own unit."""
    scale = task.yc.new_ones(len(task)) if units is None else task.yc.new_tensor(units)
    yc, known = task.yc[..., 0] / scale[:, None], task.yc.new_zeros(task.xt.shape[:2])
    if task.context_covariates is not None and task.target_covariates is not None:
        slope = task.yc.new_tensor(slopes)[:, None]
        yc, known = yc - slope * task.context_covariates[..., 0], slope * task.target_covariates[..., 0]
    predictions = [field.predict(task.xc[i], yc[i], task.xt[i]) for i, field in enumerate(fields)]
    means, scales = (torch.stack(each) for each in zip(*predictions, strict=True))
    return {
        "truth": Normal(
            (means + known).unsqueeze(-1) * scale[:, None, None], scales.unsqueeze(-1) * scale[:, None, None]
        )
    }
