"""Runs: training a model of an experiment in a directory that tells how it was made."""

import json
import math
import os
import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch

from aenp._version import __version__
from aenp.experiments import EXPERIMENTS, Preset, key
from aenp.process import Symmetry
from aenp.recipe import Recipe
from aenp.report import parameter_count
from aenp.saving import written_whole
from aenp.training import Outcome, alone_in, check_arguments, is_first_process, train

MOST = {"steps": 10**9, "minutes": 10**6, "learning_rate": 1e3, "seed": 2**63 - 1, "num_nodes": 1000}
"More than anyone could have asked for."


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
        for name, most in MOST.items():
            value = getattr(self, name)
            if value is not None and value > most:
                raise ValueError(f"{name} must be at most {most:g}; got {value}")
        if self.experiment not in EXPERIMENTS:
            raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}; got {self.experiment!r}")
        if self.steps is not None and self.minutes is not None:
            raise ValueError("the budget is given in steps or in minutes; got both")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1; got {self.threads}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative; got {self.seed}")
        check_arguments(self.minutes, self.devices, self.num_nodes, self.precision)

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Settings":
        """The settings in a file, which may hold anything."""
        for name, hint in get_type_hints(Settings).items():
            if name in values and not _fits(values[name], hint):
                raise ValueError(f"{name} must be {getattr(hint, '__name__', hint)}; got {values[name]!r}")
        return Settings(**values)

    def check_machine(self) -> None:
        """Raises an error if this machine has fewer cores or GPUs than the run would take."""
        cores = os.cpu_count() or 1
        for name, asked, most in (
            ("devices", self.devices, torch.cuda.device_count() or cores),
            ("threads", self.threads or 1, cores),
        ):
            if asked > most:
                raise ValueError(
                    f"{name}={asked} is more than this machine has, {most}. Ask for fewer by --{name}, or give "
                    "--oversubscribe to have them all the same"
                )

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

    def resume(self, asked: dict[str, Any]) -> tuple[Settings, list[str]]:
        """The run's settings, with the budget and the number of threads that are asked for, and its commands."""
        if not self.file.exists():
            raise FileNotFoundError(f"{self.file} does not exist: there is no run to resume in {self.path}")
        try:
            content = json.loads(self.file.read_text())
            stored = Settings.from_json(content["settings"])
            if not isinstance(content["commands"], list) or not all(isinstance(c, str) for c in content["commands"]):
                raise TypeError("its commands are not a list of texts")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
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
        return replace(settings, threads=asked.get("threads", stored.threads)), commands

    def has_state(self) -> bool:
        return (self.path / "last.ckpt").exists()

    def write(self, settings: Settings, commands: list[str]) -> None:
        if is_first_process():
            _write(self.file, {"settings": asdict(settings), "commands": commands})


def run(out: Path, asked: dict[str, Any], resume: bool = False, oversubscribe: bool = False) -> Outcome:
    """Trains as asked; to `out` go `model.safetensors`, its facts `model.json`, logs and checkpoints.

    Args:
        out: the run's directory.
        asked: arguments of `Settings`; to resume a run, only those that are to be checked or changed.
        resume: go on with the run in `out`.
        oversubscribe: allow more devices or threads than the machine has.
    """
    directory = Directory(out)
    settings, commands = directory.resume(asked) if resume else (new := Settings(**asked), [new.command()])
    if not oversubscribe:
        settings.check_machine()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    data = None if settings.data is None else Path(settings.data)
    experiment = EXPERIMENTS[settings.experiment](data, settings.split)
    model = experiment.model(settings.model, settings.symmetry, settings.preset, settings.seed)
    recipe = settings.recipe()
    tasks, best = experiment.validation()
    if not resume and directory.has_state():
        raise FileExistsError(f"{out} holds a run already. --resume goes on with it; --out chooses another place")
    with alone_in(out):
        directory.write(settings, commands)
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
            "command": " && ".join(commands),
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


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is what the annotation says: a bool is no number, and numbers are finite."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if isinstance(hint, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is hint


def _write(file: Path, content: dict[str, Any]) -> None:
    with written_whole(file) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")
