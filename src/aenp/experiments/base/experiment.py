"""The base model: trained on random fields of many kinds, to interpolate any."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.distributions import Distribution, Normal

from aenp.data.random_fields import Field, RandomFields
from aenp.evaluation.scores import oracle_values
from aenp.experiments.experiment import Experiment, FamilySetup, Stratum, per_stratum
from aenp.process import NeuralProcess
from aenp.task import Task
from aenp.training.recipe import Recipe

SOURCE = RandomFields()
VALIDATION_SEED, TEST_SEED = 2**31, 2**32
COUNTS = (3, 6, 12, 25, 50, 100, 150, 256)
ROUGHER = RandomFields(lengthscale=(0.01, 0.03))


class Base(Experiment):
    """Random fields in the plane, and fields rougher than any in training."""

    name = "base"
    title = "The base model: random fields"
    dim_x = 2
    domain = ((-1.0, 1.0), (-1.0, 1.0))
    norm = 1
    remark = """\
This experiment is not the paper's. The *truth* knows each field's kernel, nugget and trend. `python -m benchmarks.base`
compares the model with exact Gaussian processes whose kernels are fitted to the same points."""
    models = (("krigingnp", "exact"),)
    setups = {  # noqa: RUF012
        "cpu": {"krigingnp": FamilySetup(Recipe(steps=14_000, batch_size=8, learning_rate=2e-3, clip_by="norm"))},
        "paper": {"krigingnp": FamilySetup(Recipe(steps=100_000, batch_size=16, learning_rate=1e-3, clip_by="norm"))},
    }

    def source(self) -> RandomFields:
        return SOURCE

    def validation(self) -> tuple[list[Task], float]:
        strata = _strata(SOURCE, 16, VALIDATION_SEED)
        return [stratum.task for stratum in strata], oracle_values(strata)["truth"]["loglik"].mean().item()

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        each = per_stratum(tasks, len(COUNTS))
        return {
            "fields as in training": _strata(SOURCE, each, TEST_SEED + 2 * seed),
            "rougher fields": _strata(ROUGHER, each, TEST_SEED + 2 * seed + 1),
        }

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


def _truth(task: Task, fields: Sequence[Field]) -> dict[str, Distribution]:
    """Kriging with each field's own law."""
    predictions = [field.predict(task.xc[i], task.yc[i, :, 0], task.xt[i]) for i, field in enumerate(fields)]
    means, scales = (torch.stack(each).unsqueeze(-1) for each in zip(*predictions, strict=True))
    return {"truth": Normal(means, scales)}
