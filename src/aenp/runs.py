"""Runs: training a model of an experiment in a directory that tells how it was made."""

import json
import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from aenp._version import __version__
from aenp.experiments import EXPERIMENTS, Preset, key
from aenp.process import Symmetry
from aenp.recipe import Recipe
from aenp.report import parameter_count
from aenp.saving import written_whole
from aenp.training import Outcome, is_first_process, train


@dataclass(frozen=True)
class Settings:
    """What a run is, but for where it is kept."""

    experiment: str
    model: str
    symmetry: Symmetry
    preset: Preset = "cpu"
    data: str | None = None
    split: str | None = None
    steps: int | None = None
    minutes: float | None = None
    learning_rate: float | None = None
    seed: int = 0
    threads: int | None = None
    devices: int = 1
    num_nodes: int = 1
    precision: str = "32-true"

    def __post_init__(self) -> None:
        if self.steps is not None and self.minutes is not None:
            raise ValueError("the budget is given in steps or in minutes; got both")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1; got {self.threads}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}")

    def recipe(self) -> Recipe:
        """The preset's recipe, with what is asked for otherwise."""
        recipe = EXPERIMENTS[self.experiment].settings[self.preset][self.model].recipe
        steps = recipe.steps if self.steps is None else self.steps
        learning_rate = recipe.learning_rate if self.learning_rate is None else self.learning_rate
        return replace(recipe, steps=steps, learning_rate=learning_rate)

    def command(self) -> str:
        """The command that starts such a run."""
        words = ["aenp", "train", self.experiment]
        for field in fields(self)[1:]:
            if (value := getattr(self, field.name)) != field.default:
                words += [f"--{field.name.replace('_', '-')}", str(value)]
        return shlex.join(words)


class Directory:
    """Where a run is kept: its settings and the commands that it was started and resumed by, in `run.json`."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, path / "run.json"

    def start(self, settings: Settings) -> None:
        if self.has_state():
            raise FileExistsError(
                f"{self.path} holds a run already. --resume goes on with it; --out chooses another place"
            )
        self._write(settings, [settings.command()])

    def resume(self, asked: dict[str, Any]) -> Settings:
        """The settings of the run, with the budget and the number of threads that are asked for, if any."""
        if not self.file.exists():
            raise FileNotFoundError(f"{self.file} does not exist: there is no run to resume in {self.path}")
        try:
            content = json.loads(self.file.read_text())
            stored = Settings(**content["settings"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.file} does not describe a run: {error}") from None
        for name, value in asked.items():
            if name not in ("steps", "minutes", "threads") and value != getattr(stored, name):
                known = getattr(stored, name)
                raise ValueError(f"the run in {self.path} has {name}={known}; it cannot go on with {name}={value}")
        settings, commands = stored, content["commands"]
        if "steps" in asked or "minutes" in asked:
            settings = replace(stored, steps=asked.get("steps"), minutes=asked.get("minutes"))
        if settings != stored:
            budget = ("--steps", settings.steps) if settings.minutes is None else ("--minutes", settings.minutes)
            words = ["aenp", "train", stored.experiment, "--out", self.path, "--resume", *budget]
            commands.append(shlex.join(map(str, words)))
        settings = replace(settings, threads=asked.get("threads", stored.threads))
        self._write(settings, commands)
        return settings

    def has_state(self) -> bool:
        return (self.path / "last.ckpt").exists()

    def commands(self) -> list[str]:
        return json.loads(self.file.read_text())["commands"]

    def _write(self, settings: Settings, commands: list[str]) -> None:
        if is_first_process():
            _write(self.file, {"settings": asdict(settings), "commands": commands})


def run(out: Path, asked: dict[str, Any], resume: bool = False) -> Outcome:
    """Trains as asked; to `out` go `model.safetensors`, its facts `model.json`, logs and checkpoints.

    Args:
        out: the run's directory.
        asked: arguments of `Settings`; to resume a run, only those that are to be checked or changed.
        resume: go on with the run in `out`.
    """
    directory = Directory(out)
    settings = directory.resume(asked) if resume else Settings(**asked)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    data = None if settings.data is None else Path(settings.data)
    experiment = EXPERIMENTS[settings.experiment](data, settings.split)
    model = experiment.model(settings.model, settings.symmetry, settings.preset, settings.seed)
    recipe = settings.recipe()
    tasks, best = experiment.validation()
    if not resume:
        directory.start(settings)
    outcome = train(
        model,
        experiment.source(),
        recipe,
        out,
        settings.minutes,
        settings.seed,
        tasks,
        best,
        resume and directory.has_state(),
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        precision=settings.precision,
    )
    if is_first_process():
        facts = {
            "name": f"{experiment.name}/{key(settings.model, settings.symmetry)}",
            "command": " && ".join(directory.commands()),
            "seed": settings.seed,
            "steps": outcome.steps,
            "minutes": outcome.minutes,
            "finished": outcome.finished,
            "threads": torch.get_num_threads(),
            "devices": settings.devices * settings.num_nodes,
            "parameters": parameter_count(model),
            "recipe": asdict(recipe),
            "aenp": __version__,
            "torch": torch.__version__,
        }
        _write(out / "model.json", facts)
    return outcome


def _write(file: Path, content: dict[str, Any]) -> None:
    with written_whole(file) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")
