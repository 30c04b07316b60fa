"""An ablation's results: which runs it has, and the scores of those that are done."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from aenp.evaluation.scores import Stratum, blocks_of, model_values, oracle_values, summary
from aenp.experiments import Experiment
from aenp.experiments.kept import tasks_key
from aenp.experiments.runs import RunConfig
from aenp.process import NeuralProcess
from aenp.saving import written_whole

What = Literal["symmetry", "fixed-inputs", "dropout", "border"]
Value = int | float | str
UNTOLD = ("experiment", "threads")
"Settings that do not tell two runs of an ablation apart."


@dataclass(frozen=True)
class TestSets:
    """An experiment's test tasks, made when they are needed.

    Args:
        experiment: what is tested.
        tasks: about how many tasks each test set has.
        seed: random seed of the tasks.
    """

    experiment: Experiment
    tasks: int
    seed: int

    @cached_property
    def strata(self) -> dict[str, list[Stratum]]:
        return self.experiment.tests(self.tasks, self.seed)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What tells scores on these tasks from others: their number and seed, and a hash of them and of our code."""
        every = [stratum for strata in self.strata.values() for stratum in strata]
        digest = tasks_key(every, experiment=self.experiment.name, norm=self.experiment.norm)
        return {"tasks": self.tasks, "test_seed": self.seed, "test_key": digest}

    def scores(self, model: NeuralProcess) -> dict[str, Any]:
        """The model's scores on each test set, as JSON values."""
        norm = self.experiment.norm
        return {
            test: summary(model_values(model, strata, norm), None, blocks_of(strata))
            for test, strata in self.strata.items()
        }

    def oracles(self) -> dict[str, Any]:
        """The oracles' scores on each test set, as JSON values."""
        return {
            test: {oracle: summary(values) for oracle, values in oracle_values(strata).items()}
            for test, strata in self.strata.items()
        }


class Results:
    """What is known so far, one line of JSON for each run and one for the oracles; each is computed once.

    Args:
        file: where the lines are.
        tests: the test tasks; lines of others are left alone, and those that other code has scored are replaced.
    """

    def __init__(self, file: Path, tests: TestSets) -> None:
        self.file, self.tests = file, tests
        self.lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def of(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line of a run with these settings, or of the oracles, which have none."""
        same = {"settings": dict(settings), **self.tests.facts}
        return next((line for line in self.lines if same.items() <= line.items()), None)

    def add(self, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Writes a line, and returns it."""
        line = {"settings": dict(settings), **self.tests.facts, **facts}
        others = [
            old for old in self.lines if any(old[name] != line[name] for name in ("settings", "tasks", "test_seed"))
        ]
        self.lines = [*others, line]
        with written_whole(self.file) as temporary:
            temporary.write_text("".join(json.dumps(each) + "\n" for each in self.lines))
        return line


class Run(NamedTuple):
    """A run in an ablation: the family that it stands for, the value that it has, and what is trained."""

    family: str
    value: Value
    config: RunConfig


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The settings that tell a run from others, with a hash of where its data are."""
    settings = {name: value for name, value in config.changed().items() if name not in UNTOLD}
    if config.data is not None:
        settings["data"] = sha256(str(Path(config.data).resolve()).encode()).hexdigest()[:8]
    return settings
