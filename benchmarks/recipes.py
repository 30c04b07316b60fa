"""What each recipe learns in the same time on one core: `python -m benchmarks.recipes --data DIR --minutes 4`.

Every trial trains one model of an experiment from the same seed for as many steps as fit into the same time, and is
scored on the experiment's validation tasks, never on its test tasks. Results are kept in `recipes.json` beside this
file and shown in `recipes.md`; trials that are there already, for as many minutes and the same seed, are not run again.
"""

import datetime
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import tyro

import aenp
from aenp.data import GibbsTasks, TaskSource
from aenp.evaluation.scores import Score
from aenp.evaluation.tables import markdown_table
from aenp.experiments import experiment_class
from aenp.experiments.experiment import Experiment
from aenp.experiments.plane import GRID, SMALL_PTTNP
from aenp.fixed_inputs import FixedInputs
from aenp.likelihoods import Normal, NormalMixture
from aenp.models import make
from aenp.process import NeuralProcess, Symmetry
from aenp.training import Recipe, loop, train
from aenp.training.memory import reuse_memory
from benchmarks.measure import interleaved_times
from benchmarks.soap import with_soap

HERE = Path(__file__).parent
GOALS = {"gp": -0.6, "era5-2d": 0.8}
"A log-likelihood on validation tasks, by experiment, to be reached in as few minutes as possible."


@dataclass(frozen=True)
class Trial:
    """One model with all that decides how it is made and trained.

    Args:
        experiment: whose tasks.
        family: of the model.
        symmetry: of the model.
        options: arguments of the family's class.
        fixed: arguments of its `FixedInputs`.
        recipe: arguments of its `Recipe`.
        targets: targets scored in training; None for all.
        soap: train by SOAP what the recipe would train by Muon.
    """

    experiment: str
    family: str
    symmetry: Symmetry
    options: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    targets: int | None = 256
    soap: bool = False

    def but(self, **changes: Any) -> "Trial":
        """The same with these changes; mappings are updated, not replaced."""
        merged = {
            key: getattr(self, key) | value if isinstance(value, dict) else value for key, value in changes.items()
        }
        return replace(self, **merged)


def shipped(experiment: str, symmetry: Symmetry, **options: Any) -> Trial:
    """The PTTNP of an experiment as it is shipped, but for the number of steps and these options."""
    setup = experiment_class(experiment).setups["cpu"]["pttnp"]
    recipe = {name: value for name, value in asdict(setup.recipe).items() if name != "steps"}
    more = setup.approx if symmetry == "approx" else {}
    targets = setup.tasks["num_targets"]
    return Trial(
        experiment, "pttnp", symmetry, {**setup.options, **more, **options}, setup.fixed_inputs, recipe, targets
    )


class Prepared(NamedTuple):
    """What a trial trains."""

    experiment: Experiment
    model: NeuralProcess
    source: TaskSource
    recipe: Recipe


def prepare(trial: Trial, seed: int, data: Path | None) -> Prepared:
    """The trial's model before its training, on one thread."""
    torch.set_num_threads(1)
    declared = experiment_class(trial.experiment)
    experiment = declared(data if declared.needs_data else None)
    torch.manual_seed(seed)
    fixed_inputs = None
    if trial.symmetry == "approx":
        fixed_inputs = FixedInputs(experiment.dim_x, **{"domain": experiment.domain, **trial.fixed})
    options = dict(trial.options) | ({"domain": experiment.domain} if trial.symmetry == "none" else {})
    model = make(trial.family, trial.symmetry, experiment.dim_x, experiment.dim_y, fixed_inputs, **options)
    source = experiment.source()
    if hasattr(source, "num_targets"):
        source = replace(source, num_targets=trial.targets)  # type: ignore[type-var]
    if trial.soap:
        loop.make_optimiser = with_soap(loop.make_optimiser)
    return Prepared(experiment, model, source, Recipe(steps=1, **trial.recipe))


def run(name: str, trial: Trial, steps: int, minutes: float, seed: int, data: Path | None) -> dict[str, Any]:
    """Trains the trial's model and scores it, with its fixed inputs and without, task by task."""
    reuse_memory()
    experiment, model, source, recipe = prepare(trial, seed, data)
    with tempfile.TemporaryDirectory() as out:
        train(model, source, replace(recipe, steps=steps), out, seed=seed)
    tasks, _ = experiment.validation()
    with torch.no_grad():
        scores = {"full": torch.cat([aenp.loglik(model, task) for task in tasks])}
        with model.equivariant():
            scores["equivariant"] = torch.cat([aenp.loglik(model, task) for task in tasks])
            turned = [task.map_inputs(lambda x: x.flip(-1)) for task in tasks]
            scores["turned"] = torch.cat([aenp.loglik(model, task) for task in turned])
    return {
        "trial": name,
        "minutes": minutes,
        "seed": seed,
        "steps": steps,
        "day": str(datetime.date.today()),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **{key: [round(value, 5) for value in values.double().tolist()] for key, values in scores.items()},
    }


def step_seconds(trials: Mapping[str, Trial], seed: int, data: Path | None) -> dict[str, float]:
    """The CPU time of a step of each trial; they take turns, so that other load on the machine affects them alike."""
    original = loop.make_optimiser

    def step_of(trial: Trial) -> Callable[[], None]:
        _, model, source, recipe = prepare(trial, seed, data)
        optimiser = loop.make_optimiser(model, replace(recipe, learning_rate=1e-9), fused=True)
        loop.make_optimiser = original
        number = itertools.count()

        def step() -> None:
            optimiser.zero_grad()
            (-aenp.loglik(model, source.batch(recipe.batch_size, next(number), seed=0)).mean()).backward()
            optimiser.step()

        return step

    reuse_memory()
    steps = {name: step_of(trial) for name, trial in trials.items()}
    return interleaved_times(steps, 15.0 * len(steps), time.process_time)


def main(
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    minutes: float = 4.0,
    seed: int = 0,
    data: Path | None = None,
    jobs: int = 2,
    out: Path = HERE,
) -> None:
    """Runs the trials of these names, or whose names begin so, and writes the table.

    Args:
        names: which trials; by default all.
        minutes: of training on one core, for each.
        seed: of the parameters and of the training tasks.
        data: directory with the data of the experiments that need any.
        jobs: how many at a time.
        out: directory for `recipes.json` and `recipes.md`.
    """
    file = out / "recipes.json"
    results = json.loads(file.read_text()) if file.exists() else []
    done = {result["trial"] for result in results if (result["minutes"], result["seed"]) == (minutes, seed)}
    chosen = {name: each for name, each in TRIALS.items() if is_chosen(name, names) and name not in done}
    seconds = step_seconds(chosen, seed, data) if chosen else {}
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        running = [
            pool.apply_async(run, (name, trial, round(60 * minutes / seconds[name]), minutes, seed, data))
            for name, trial in chosen.items()
        ]
        for each in running:
            results.append(each.get())
            file.write_text(json.dumps(results).replace('{"trial"', '\n{"trial"') + "\n")
            print(*row(results[-1]), sep=" | ", flush=True)
    (out / "recipes.md").write_text(page(results))


def is_chosen(name: str, names: Sequence[str]) -> bool:
    """Whether this trial is one of those named, each as a whole or by a beginning that several have."""
    return not names or any(name == each or (each not in TRIALS and name.startswith(each)) for each in names)


def row(result: Mapping[str, Any]) -> list[str]:
    scores = [
        str(Score.of(torch.tensor([result[key]]))) if key in result else "" for key in ("full", "equivariant", "turned")
    ]
    return [result["trial"], f"{result['minutes']:g}", str(result["seed"]), str(result["steps"]), *scores]


def page(results: list[dict[str, Any]]) -> str:
    header = ["trial", "minutes", "seed", "steps", "log-likelihood", "of the equivariant part", "on transposed tasks"]
    results = sorted(results, key=lambda result: list(TRIALS).index(result["trial"]))
    return f"""# Recipes, by what they learn in the same time

Written by `python -m benchmarks.recipes --data DIR --minutes MINUTES --seed SEED`. One core each. Log-likelihood per
target point on the experiments' validation tasks, ± its standard error over tasks, which all trials of an experiment
share: differences between rows are surer than it says. The equivariant part is also scored on the same tasks with the
coordinates exchanged, as if elsewhere. `benchmarks/recipes.py` has each trial's settings. Trials of smoke for 2 minutes
with seed 1 have a third of the simulations, 2,000.

{markdown_table(header, [row(result) for result in results])}

## Records

The fewest minutes in which each trial has reached a goal, by the runs above; a run's learning rate falls to zero at its
end, so each budget is a run of its own.

{markdown_table(["goal", "trial", "minutes", "log-likelihood"], records(results))}
"""


def records(results: list[dict[str, Any]]) -> list[list[str]]:
    """For each goal the trials that reached it, the fastest first."""
    rows = []
    for experiment, goal in GOALS.items():
        fastest: dict[str, dict[str, Any]] = {}
        for result in sorted(results, key=lambda result: -result["minutes"]):
            if result["trial"].startswith(f"{experiment}/") and torch.tensor(result["full"]).mean() >= goal:
                fastest[result["trial"]] = result
        rows += [
            [f"{experiment}: {goal:.2f}", result["trial"], f"{result['minutes']:g}", row(result)[4]]
            for result in sorted(fastest.values(), key=lambda result: result["minutes"])
        ]
    return rows


FIXED = {"num": 32, "width": 64, "fourier": 4, "dropout": 0.1}
UNET = GRID | {"channels": 32, "layers": 7, "kernel": 5, "margin": 1}
CENTRED = {"values": "centred"}

BY_NORM = {"clip": 1.0, "clip_by": "norm"}
FAST = {"learning_rate": 2e-3}
MUON = {"optimiser": "muon"}
MOVED = MUON | {"elsewhere": 0.5}
ON_GRID = {
    "form": "perceiver",
    "pseudo_tokens": "grid",
    "pseudo_spacing": 0.25,
    "window": 7,
    "wavelengths": (0.2, 2.5),
}
"From a cell to some cells of it: pairs that see each other are that far apart, and longer waves would tell nothing."

conv = Trial("era5-2d", "convcnp", "approx", UNET, FIXED)
small = conv.but(options=CENTRED | {"margin": 0}, recipe={"batch_size": 4}, targets=None)
fast = small.but(recipe=FAST)
group_unet = GRID | CENTRED | {"group": "C8", "network": "unet", "channels": 32, "layers": 5, "kernel": 5, "margin": 0}
group = replace(fast, family="equivcnp", options=group_unet)
tokens = Trial(
    "era5-2d",
    "pttnp",
    "approx",
    SMALL_PTTNP | CENTRED | {"fixed_at_targets": True},
    FIXED | {"num": 64, "dropout": 0.5},
    {"batch_size": 8, "learning_rate": 2e-3},
    None,
)

FLOOR = {"likelihood": Normal(min_scale=0.003)}
plume = Trial("smoke", "convcnp", "exact", UNET | FLOOR, {"num": 16, "width": 32, "fourier": 4}, {"clip": 10.0})
plume_fast = plume.but(options={"margin": 0}, recipe={"batch_size": 4} | FAST, targets=None)
plume_two = plume_fast.but(recipe=MUON, options={"likelihood": NormalMixture(2, min_scale=0.003)})
plume_tokens = Trial("smoke", "pttnp", "exact", SMALL_PTTNP | FLOOR, FIXED | {"num": 64}, {"clip": 10.0} | FAST)
plume_at_targets = plume_tokens.but(symmetry="approx", options={"fixed_at_targets": True})
stations = replace(tokens, experiment="era5-points-2d").but(recipe=MUON | {"exact_first": 0.25}, targets=256)
conv_stations = replace(small, experiment="era5-points-2d").but(
    options={"on_grid": False}, fixed={"dropout": 0.5}, recipe=MUON | FAST | {"exact_first": 0.25}, targets=256
)
TNP = {"attention": "spectral", "wavelengths": (0.1, 14.0), "dim": 64, "heads": 4, "layers": 4}
line = Trial(
    "gp",
    "tnp",
    "approx",
    TNP | {"fixed_at_targets": True},
    {"domain": ((-3.0, 3.0),), "fourier": 8, "dropout": 0.05},
    FAST,
    GibbsTasks().num_targets,
)
line_none = replace(line, symmetry="none", options=TNP)

SYMMETRIES: tuple[Symmetry, ...] = ("exact", "approx")
TRIALS = {
    "era5-2d/convcnp-approx: first": conv,
    "era5-2d/convcnp-approx: centred": conv.but(options=CENTRED),
    "era5-2d/convcnp-approx: small batches": small,
    "era5-2d/convcnp-approx: rate 2e-3": fast,
    "era5-2d/convcnp-approx: clipped by norm": small.but(recipe=BY_NORM),
    "era5-2d/convcnp-approx: clipped by norm, rate 2e-3": fast.but(recipe=BY_NORM),
    "era5-2d/convcnp-approx: dropout 0.5": fast.but(fixed={"dropout": 0.5}),
    "era5-2d/convcnp-approx: dropout 0.5, exact first": fast.but(fixed={"dropout": 0.5}, recipe={"exact_first": 0.4}),
    "era5-2d/convcnp-exact: rate 2e-3": replace(fast, symmetry="exact"),
    "era5-2d/equivcnp-approx: group U-Net": group,
    "era5-2d/pttnp-approx: centred": tokens,
    "era5-2d/convcnp-approx: Muon": fast.but(recipe=MUON),
    "era5-2d/convcnp-approx: SOAP": fast.but(recipe=MUON, soap=True),
    "era5-2d/pttnp-approx: Muon": tokens.but(recipe=MUON),
    "era5-2d/pttnp-approx: 256 targets": tokens.but(targets=256),
    "era5-2d/pttnp-exact: centred": replace(tokens, symmetry="exact", options=SMALL_PTTNP | CENTRED),
    "era5-2d/convcnp-approx: kernel 3": fast.but(options={"kernel": 3}),
    "era5-2d/convcnp-approx: growing": fast.but(options={"channels": 16, "growth": 2}),
    "era5-2d/equivcnp-approx: growing": group.but(options={"growth": 2}),
    "era5-2d/equivcnp-approx: C4": group.but(options={"group": "C4"}),
    "era5-2d/equivcnp-approx: 7 layers": group.but(options={"layers": 7}),
    "era5-2d/pttnp-approx: batch 4": tokens.but(recipe={"batch_size": 4}),
    "era5-2d/convcnp-exact: Muon": replace(fast, symmetry="exact").but(recipe=MUON),
    "era5-2d/convcnp-exact: Muon, elsewhere": replace(fast, symmetry="exact").but(recipe=MOVED),
    "era5-2d/convcnp-approx: Muon, elsewhere": fast.but(recipe=MOVED),
    "era5-2d/convcnp-approx: Muon, elsewhere, 5 layers": fast.but(recipe=MOVED, options={"layers": 5}),
    "era5-2d/pttnp-approx: 256 targets, Muon": tokens.but(recipe=MUON, targets=256),
    "era5-2d/pttnp-approx: 256 targets, Muon, exact first": tokens.but(
        recipe=MUON | {"exact_first": 0.25}, targets=256
    ),
    "era5-2d/pttnp-approx: 256 targets, Muon, elsewhere": tokens.but(recipe=MOVED, fixed={"dropout": 0.1}, targets=256),
    "era5-2d/pttnp-approx: 256 targets, 16 waves": tokens.but(fixed={"fourier": 16}, targets=256),
    "era5-2d/pttnp-approx: grid": tokens.but(options=ON_GRID, fixed={"fourier": 16}, targets=256),
    "era5-2d/pttnp-approx: 256 targets, 16 waves, Muon": tokens.but(recipe=MUON, fixed={"fourier": 16}, targets=256),
    "era5-2d/convcnp-approx: Muon, dropout 0.5, 16 waves": fast.but(recipe=MUON, fixed={"dropout": 0.5, "fourier": 16}),
    "era5-2d/pttnp-exact: 256 targets, Muon, elsewhere": replace(
        tokens, symmetry="exact", options=SMALL_PTTNP | CENTRED
    ).but(recipe=MOVED, targets=256),
    "era5-2d/pttnp-exact: Muon": replace(tokens, symmetry="exact", options=SMALL_PTTNP | CENTRED).but(recipe=MUON),
}
TRIALS |= {
    "smoke/convcnp-exact: first": plume,
    "smoke/convcnp-exact: small batches": plume_fast,
    "smoke/convcnp-exact: Muon": plume_fast.but(recipe=MUON),
    "smoke/convcnp-approx: Muon": plume_fast.but(recipe=MUON, symmetry="approx", fixed={"dropout": 0.1}),
    "smoke/convcnp-approx: Muon, dropout 0.5": plume_fast.but(recipe=MUON, symmetry="approx"),
    "smoke/convcnp-exact: Muon, mixture": plume_two,
    "smoke/convcnp-approx: Muon, mixture": plume_two.but(symmetry="approx", fixed={"dropout": 0.1}),
    "smoke/convcnp-approx: Muon, mixture, 16 waves": plume_two.but(
        symmetry="approx", fixed={"dropout": 0.1, "fourier": 16}
    ),
    "smoke/pttnp-exact: first": plume_tokens,
    "smoke/pttnp-exact: Muon": plume_tokens.but(recipe=MUON),
    "smoke/pttnp-exact: SOAP": plume_tokens.but(recipe=MUON, soap=True),
    "smoke/pttnp-exact: Muon, batch 8": plume_tokens.but(recipe=MUON | {"batch_size": 8}, targets=None),
    "smoke/pttnp-approx: Muon": plume_at_targets.but(recipe=MUON),
    "era5-points-2d/pttnp-approx: Muon": stations,
    "era5-points-2d/pttnp-exact: Muon": replace(stations, symmetry="exact", options=SMALL_PTTNP | CENTRED),
    "era5-points-2d/pttnp-approx: Muon, elsewhere": stations.but(recipe=MOVED, fixed={"dropout": 0.1}),
    "era5-points-2d/convcnp-approx: Muon": conv_stations,
    "era5-points-2d/convcnp-approx: Muon, elsewhere": conv_stations.but(recipe=MOVED, fixed={"dropout": 0.1}),
    "gp/tnp-approx: first": line,
    "gp/tnp-approx: Muon": line.but(recipe=MUON),
    "gp/tnp-approx: SOAP": line.but(recipe=MUON, soap=True),
    "gp/tnp-approx: Muon, batch 8": line.but(recipe=MUON | {"batch_size": 8}),
    "gp/tnp-none: first": line_none,
    "gp/tnp-none: 16 waves": line_none.but(options={"fourier": 16}),
    "gp/tnp-none: 16 waves, Muon": line_none.but(options={"fourier": 16}, recipe=MUON),
    "era5-2d/pttnp-none: 16 waves, Muon": replace(
        tokens, symmetry="none", options=SMALL_PTTNP | CENTRED | {"fourier": 16}
    ).but(recipe=MUON),
}
TRIALS |= {
    f"{experiment}/pttnp-{symmetry}: shipped{end}": shipped(experiment, symmetry, **options)
    for experiment in ("era5-2d", "smoke")
    for symmetry in SYMMETRIES
    for end, options in (("", {}), (", grid", ON_GRID), (", grid of sight 1", ON_GRID | {"sight": 1}))
}

if __name__ == "__main__":
    tyro.cli(main)
