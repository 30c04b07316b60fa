"""Puts trained models among the shipped ones: `python -m aenp.shipping runs/gp/*`."""

import itertools
import json
import re
from pathlib import Path

import tyro

from aenp.experiments import EXPERIMENTS, key
from aenp.reproduction import Evaluation
from aenp.saving import load, save, written_whole
from aenp.shipped import WEIGHTS


def ship(
    runs: tyro.conf.Positional[tuple[Path, ...]], tasks: int = 4096, seed: int = 1, data: Path | None = None
) -> None:
    """Evaluates each run's model and puts it, with its facts and scores, into the package.

    Args:
        runs: directories that `aenp train` wrote.
        tasks: number of tasks in each test set.
        seed: of the test tasks.
        data: where the experiment's data are, if it needs any.
    """
    facts = {run: json.loads((run / "model.json").read_text()) for run in runs}
    for fact in facts.values():
        fact["command"] = re.sub(r"--data \S+", "--data DIR", fact["command"])
    for run, fact in facts.items():
        experiment, _, name = fact["name"].partition("/")
        if experiment not in EXPERIMENTS or name not in itertools.starmap(key, EXPERIMENTS[experiment].models):
            raise ValueError(f"{run / 'model.json'} is of {fact['name']}, which is no model of an experiment")
        if not fact["finished"] or "&&" in fact["command"]:
            raise ValueError(f"the run in {run} is not finished, or not by one command: {fact['command']}")
    for experiment in {fact["name"].split("/")[0] for fact in facts.values()}:
        here = {fact["name"].split("/")[1]: run for run, fact in facts.items() if fact["name"].startswith(experiment)}
        models = {name: load(run / "model.safetensors") for name, run in here.items()}
        evaluation = Evaluation(EXPERIMENTS[experiment](data), models, tasks, seed)
        scores = evaluation.as_json()["models"]
        for name, model in models.items():
            save(model, WEIGHTS / experiment / f"{name}.safetensors")
            scored = {"test_seed": seed, "tasks": evaluation.tasks, "scores": scores[name]}
            with written_whole(WEIGHTS / experiment / f"{name}.json") as file:
                file.write_text(json.dumps(facts[here[name]] | scored, indent=1) + "\n")
        print(evaluation.tables())


if __name__ == "__main__":
    tyro.cli(ship)
