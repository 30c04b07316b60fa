"""Shipping: trains the models of the experiments, scores them, and puts them into the package.

`python -m aenp.experiments.shipping gp` does so for one experiment; stopped and started again, it continues.
"""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

import tyro

from aenp.experiments import Experiment, experiment_class, experiments, key
from aenp.experiments.comparison import Comparison
from aenp.experiments.experiment import process_of
from aenp.saving import load, save, written_whole
from aenp.shipped import WEIGHTS


def train_and_ship(
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    data: Path | None = None,
    runs: Path = Path("runs"),
    jobs: int = 2,
    tasks: int = 4096,
    seed: int = 1,
) -> None:
    """Trains all models of some experiments that are not trained yet, on one core each, and ships them all.

    Args:
        names: experiments, or single models such as gp/tnp-approx; by default all experiments whose data are available.
        data: directory with the data of those that need any.
        runs: where the runs are kept.
        jobs: how many to train at a time.
        tasks: number of tasks in each test set.
        seed: random seed of the test tasks.
    """
    known = {name: each for name, each in experiments().items() if data is not None or not each.needs_data}
    chosen = [run for each in names or known for run in _runs(each)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(partial(_train, runs, data), chosen))
    for experiment in dict.fromkeys(name.split("/")[0] for name in chosen):
        here = [runs / name for name in chosen if name.startswith(f"{experiment}/")]
        declared = experiment_class(experiment)
        ship(declared(data if declared.needs_data else None), here, tasks, seed)


def _runs(name: str) -> list[str]:
    """The runs that a name stands for, such as gp/tnp-approx."""
    experiment, _, model = name.partition("/")
    every = list(starmap(key, experiment_class(experiment).models))
    if model and model not in every:
        raise ValueError(f"{experiment} has the models {', '.join(every)}; got {model!r}")
    return [f"{experiment}/{each}" for each in ([model] if model else every)]


def _train(runs: Path, data: Path | None, name: str) -> None:
    """Trains a model to the end, in a process of its own."""
    experiment, model = name.split("/")
    if (runs / name / "model.json").exists() and _facts(runs / name)["finished"]:
        return
    words = ["train", experiment, "--out", str(runs / name)]
    if (runs / name / "run.json").exists():
        words.append("--resume")
    else:
        family, symmetry = model.split("-")
        words += ["--model", family, "--symmetry", symmetry, "--threads", "1"]
        if experiment_class(experiment).needs_data:
            words += ["--data", str(data)]
    subprocess.run([sys.executable, "-m", "aenp.cli", *words], check=True)


def ship(experiment: Experiment, runs: list[Path], tasks: int, seed: int) -> None:
    """Evaluates each run's model, and puts it with its facts and scores into the package."""
    facts = {run: _facts(run) for run in runs}
    for run, fact in facts.items():
        if fact["name"] not in (f"{experiment.name}/{name}" for name in starmap(key, experiment.models)):
            raise ValueError(f"{run} is a run of {fact['name']}, which is not a model of {experiment.name}")
        if not fact["finished"] or "&&" in fact["command"]:
            raise ValueError(f"the run in {run} is not finished, or took several commands: {fact['command']}")
    models = {run: load(run / "model.safetensors") for run in runs}
    scored = Comparison(experiment, {str(run): process_of(model) for run, model in models.items()}, tasks, seed)
    scores = scored.as_json()["models"]
    for run, fact in facts.items():
        name = fact["name"].split("/")[1]
        fact |= {"test_seed": seed, "tasks": scored.tasks, "scores": scores[str(run)]}
        save(models[run], WEIGHTS / experiment.name / f"{name}.safetensors")
        with written_whole(WEIGHTS / experiment.name / f"{name}.json") as file:
            file.write_text(json.dumps(fact, indent=1) + "\n")
    print(scored.tables())


def _facts(run: Path) -> dict[str, Any]:
    """The content of a run's model.json, without the path of the data."""
    facts: dict[str, Any] = json.loads((run / "model.json").read_text())
    facts["command"] = re.sub(r"--data \S+", "--data DIR", facts["command"])
    return facts


if __name__ == "__main__":
    tyro.cli(train_and_ship)
