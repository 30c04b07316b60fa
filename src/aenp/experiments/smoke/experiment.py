"""Smoke plumes (section 5.2 and appendix E.2)."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from aenp.data.patches import Patches
from aenp.experiments.experiment import PAPER, Experiment, FamilySetup, Stratum, eight, middles, per_stratum
from aenp.experiments.plane import (
    CELLS_PER_UNIT,
    PAPER_FIXED,
    PAPER_GROUP,
    PAPER_PTTNP,
    PAPER_PTTNP_FIXED,
    PAPER_RELAXED,
    PAPER_TASKS,
    PAPER_UNET,
    SMALL_GROUP,
    SMALL_PTTNP,
    SMALL_UNET,
)
from aenp.experiments.smoke.simulator import BOX, Plumes, simulate
from aenp.likelihoods import Normal, NormalMixture
from aenp.process import NeuralProcess
from aenp.task import Task
from aenp.training.recipe import Recipe

FULL = BOX.steps * BOX.dt * BOX.inflow_rate
"The total inflow into a cell, the unit of y."
AXIS = ((np.arange(BOX.size) + 0.5) / CELLS_PER_UNIT).astype(np.float32)
NUM_CONTEXT = (10, 250)
TEST_SEED = 2**31

MIN_SCALE = 0.003
CEILING = -math.log(MIN_SCALE * math.sqrt(2 * math.pi))
FLOOR = {"likelihood": Normal(min_scale=MIN_SCALE)}
"Most of a patch may be empty; a smaller standard deviation would reward certainty there without limit."
TWO = {"likelihood": NormalMixture(2, min_scale=MIN_SCALE)}
"Smoke or none: at the edge of a plume a cell is either full or empty, which no Normal can say."
LOOSE = 10.0
"Few points may miss a plume, which rightly makes gradients large: clipped as in the paper, models get too sure."
RECIPE = Recipe(steps=8_000, batch_size=4, learning_rate=2e-3, clip=LOOSE, optimiser="muon", exact_first=0.5)
CLOSE = TWO | {"margin": 0}
SMALL_FIXED = {"num": 16, "width": 32, "fourier": 16, "dropout": 0.1}


class Smoke(Experiment):
    """Patches of 32 × 32 cells from simulated plumes; x in units of 16 cells, y in units of the total inflow."""

    name = "smoke"
    title = "Smoke plumes"
    dim_x = 2
    domain = ((0.0, BOX.size / CELLS_PER_UNIT),) * 2
    norm = 2
    models = eight("pttnp")
    setups = {  # noqa: RUF012
        "cpu": {
            "pttnp": FamilySetup(
                replace(RECIPE, steps=4_000, batch_size=16),
                SMALL_PTTNP | TWO,
                SMALL_FIXED | {"num": 64, "width": 64},
                tasks={"num_targets": 256},
                approx={"fixed_at_targets": True},
                fourier=16,
                from_twin=True,
            ),
            "convcnp": FamilySetup(RECIPE, SMALL_UNET | CLOSE, SMALL_FIXED, from_twin=True),
            "relaxedconvcnp": FamilySetup(RECIPE, SMALL_UNET | CLOSE, SMALL_FIXED, from_twin=True),
            "equivcnp": FamilySetup(
                replace(RECIPE, optimiser="adamw"), SMALL_GROUP | CLOSE, SMALL_FIXED, from_twin=True
            ),
        },
        "paper": {
            "pttnp": FamilySetup(
                replace(PAPER, batch_size=8),
                PAPER_PTTNP | FLOOR,
                PAPER_PTTNP_FIXED,
                tasks=PAPER_TASKS,
                none={"batch_size": 16},
            ),
            "convcnp": FamilySetup(PAPER, PAPER_UNET | FLOOR, PAPER_FIXED, tasks=PAPER_TASKS),
            "relaxedconvcnp": FamilySetup(PAPER, PAPER_RELAXED | FLOOR, PAPER_FIXED, tasks=PAPER_TASKS),
            "equivcnp": FamilySetup(PAPER, PAPER_GROUP | FLOOR, PAPER_FIXED, tasks=PAPER_TASKS),
        },
    }
    paper = {  # noqa: RUF012
        "test": {
            "pttnp-none": (4.299, 0.008),
            "pttnp-exact": (4.181, 0.011),
            "pttnp-approx": (4.715, 0.010),
            "convcnp-exact": (3.637, 0.041),
            "convcnp-approx": (3.827, 0.011),
            "relaxedconvcnp-approx": (4.006, 0.010),
            "equivcnp-exact": (4.194, 0.015),
            "equivcnp-approx": (4.233, 0.012),
        },
    }
    remark = f"""\
Log-likelihoods of a density depend on its unit and on the strength of the inflow, which the paper does not state:
compare differences between models, not numbers across columns. Ours predict a mixture of two Normals, for smoke and for
none, with standard deviations of at least {MIN_SCALE}, so that no model can score more than {CEILING:.2f}. Each test
task is from a simulation of its own.

An approximate model starts as its exact counterpart, and is trained in the same way for half of its steps, so that the
two differ less by chance. Its own equivariant part shows what the fixed inputs are worth to it.
Nearly half of the patches hold no smoke, and dominate the equivariance deviation, a mean of ratios."""

    @classmethod
    def generate(cls, out: Path, num: int, seed: int, workers: int | None, scheduler: str | None) -> Iterator[int]:
        from aenp.experiments.smoke.store import generate

        return generate(out, num, seed, workers=workers, scheduler=scheduler)

    def source(self) -> Patches:
        return replace(patches(self._load("train")), equal_sizes=True)

    def validation(self) -> tuple[list[Task], None]:
        held_out = patches(self._load("validation"))
        return [held_out.batch(16, index, seed=0) for index in range(8)], None

    def _load(self, split: Literal["train", "validation"]) -> Float[ndarray, "simulations x y"]:
        from aenp.experiments.smoke.store import load

        return load(self.data or Path("smoke.zarr"), split)

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        each = per_stratum(tasks)
        strata = []
        for number, size in enumerate(map(round, middles(*NUM_CONTEXT))):
            plumes = Plumes.draw(range(number * each, (number + 1) * each), TEST_SEED + seed)
            strata.append(Stratum(patches(simulate(plumes, BOX), (size, size)).batch(each, number, seed)))
        return {"test": strata}

    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        from matplotlib.patches import Circle, Patch, Rectangle

        from aenp.evaluation.plots import images, model_maps

        plumes = Plumes(
            np.repeat([8.0, 15.0, 25.0, 12.0, 20.0, 28.0], 3),
            np.tile([30.0, 64.0, 110.0], 6),
            np.repeat([0.15, 0.25, 0.35, 0.45, 0.3, 0.5], 3),
        )
        density = simulate(plumes) / FULL
        titles = [f"r = {r:g}, B = {b:g}" for r, b in zip(plumes.radius, plumes.buoyancy, strict=True)]
        corners = np.random.default_rng(seed).integers(0, BOX.size - 32, endpoint=True, size=(len(density), 2))

        def outlines(number: int) -> list[Patch]:
            """The obstacle, and a patch such as tasks are made of."""
            i, j = corners[number]
            return [
                Circle(BOX.obstacle, BOX.obstacle_radius, color="0.5"),
                Rectangle((i, j), 32, 32, fill=False, edgecolor="red"),
            ]

        # A patch beside the obstacle, of a plume that flows around it.
        one = Patches(density[16:17, 64:96, 72:104], (AXIS[64:96], AXIS[72:104]), 32, (100, 100))
        return [
            images(density, titles, "x [cells]", "y [cells]", "smoke", out / "simulations.png", 6, outlines),
            model_maps(models, one.batch(1, 0, seed), "x [16 cells]", "y [16 cells]", "smoke", out / "predictions.png"),
        ]


def patches(density: Float[ndarray, "simulations x y"], num_context: tuple[int, int] = NUM_CONTEXT) -> Patches:
    return Patches(density / np.float32(FULL), (AXIS, AXIS), 32, num_context)
