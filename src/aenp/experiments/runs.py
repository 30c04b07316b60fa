"""Runs: training a model of an experiment in a directory that records how it was made."""

import json
import math
import os
import shlex
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from tyro.conf import Positional, arg

from aenp._version import __version__
from aenp.arguments import SymmetryName, Text, check_limits, optional
from aenp.evaluation.families import parameter_count
from aenp.experiments import Preset, experiment_class, experiments, key
from aenp.experiments.experiment import FamilySetup
from aenp.saving import written_whole
from aenp.training.directory import CHECKPOINT, alone_in, is_first_process
from aenp.training.loop import Outcome, train
from aenp.training.machine import Machine
from aenp.training.recipe import Recipe

WholeNumber = Annotated[int | None, optional("N")]
ExperimentName = Annotated[str, arg(metavar="EXPERIMENT", help=f"one of {', '.join(experiments())}.")]


@dataclass(frozen=True)
class RunConfig:
    """What to train, and how. When a run is resumed, omitted options keep their values.

    Args:
        experiment: name of the experiment.
        model: family of the model, such as tnp or convcnp; needed unless a run is resumed.
        symmetry: none, exact or approx; needed unless a run is resumed.
        preset: cpu, small and quick, or paper, with the paper's sizes and schedule, for a GPU.
        data: where the experiment's data are, if it needs any.
        split: how its data are split into training and test data, such as paper; by default as for the shipped models.
        steps: budget in steps; by default the preset's.
        minutes: budget in minutes, in place of steps; the learning rate then follows the clock.
        learning_rate: peak learning rate; by default the preset's.
        num_fixed: number of fixed inputs of an approximate model; by default the preset's.
        dropout: probability that they are dropped for a task in training; by default the preset's.
        border: where they end: ours, which may lie within the training region, or paper, at its edge.
        group: rotations of an equivcnp in the plane: C4, C8, D4 or D8; by default the preset's.
        seed: random seed of parameters, tasks and dropout.
        threads: threads per process; by default one for each core.
        devices: processes or GPUs on this machine, which share the work by DDP.
        num_nodes: number of machines.
        precision: 32-true, 64-true, 16-mixed or bf16-mixed, as Lightning has them.
    """

    experiment: Positional[ExperimentName]
    model: Text = None
    symmetry: SymmetryName = None
    preset: Preset = "cpu"
    data: Annotated[str | None, optional("PATH")] = None
    split: Text = None
    steps: WholeNumber = None
    minutes: Annotated[float | None, optional("MINUTES")] = None
    learning_rate: Annotated[float | None, optional("RATE")] = None
    num_fixed: WholeNumber = None
    dropout: Annotated[float | None, optional("P")] = None
    border: Literal["ours", "paper"] = "ours"
    group: Annotated[Literal["C4", "C8", "D4", "D8"] | None, optional("{C4,C8,D4,D8}")] = None
    seed: int = 0
    threads: WholeNumber = None
    devices: int = 1
    num_nodes: int = 1
    precision: str = "32-true"

    def __post_init__(self) -> None:
        check_limits(self)
        experiment_class(self.experiment)
        if self.steps is not None and self.minutes is not None:
            raise ValueError("the budget is given in steps or in minutes; got both")
        if self.symmetry in ("none", "exact") and (self.num_fixed, self.dropout, self.border) != (None, None, "ours"):
            raise ValueError(
                f"num_fixed, dropout and border are for --symmetry approx, which has fixed inputs; got {self.symmetry}"
            )
        if self.group is not None and self.model not in (None, "equivcnp"):
            raise ValueError(
                f"group is for --model equivcnp, which alone is equivariant to rotations; got {self.model}"
            )
        self.machine()

    @staticmethod
    def from_json(values: dict[str, Any]) -> "RunConfig":
        """The configuration in a file, checked, because it may hold anything."""
        for name, hint in get_type_hints(RunConfig).items():
            if name in values and not _fits(values[name], hint):
                raise ValueError(f"{name} must be {getattr(hint, '__name__', hint)}; got {values[name]!r}")
        return RunConfig(**values)

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    @property
    def name(self) -> str:
        """The model's name, such as tnp-approx."""
        if self.model is None or self.symmetry is None:
            raise ValueError("no model given; pass --model and --symmetry, such as --model tnp --symmetry approx")
        return key(self.model, self.symmetry)

    def check_machine(self) -> None:
        """Raises an error if this machine has fewer cores or GPUs than the run would take."""
        cores = os.cpu_count() or 1
        limits = {"devices": torch.cuda.device_count() or cores, "threads": cores}
        for name, available in limits.items():
            requested = getattr(self, name) or 1
            if requested > available:
                raise ValueError(
                    f"{name}={requested} is more than this machine has, {available}; --oversubscribe allows it"
                )

    def command(self) -> str:
        """The command that starts such a run."""
        words = ["aenp", "train", self.experiment]
        for name, value in list(self.changed().items())[1:]:
            words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join(words)

    def machine(self) -> Machine:
        """What the run computes on."""
        return Machine(self.devices, self.num_nodes, self.precision)

    @property
    def setup(self) -> FamilySetup:
        """The preset's sizes and training of the family, with the requested changes."""
        declared = experiment_class(self.experiment)
        declared.check_known(str(self.model), self.symmetry)  # type: ignore[arg-type]
        setup = declared.setups[self.preset][str(self.model)]
        fixed_inputs = {"num": self.num_fixed, "dropout": self.dropout}
        changed = dict(setup.fixed_inputs) | {name: value for name, value in fixed_inputs.items() if value is not None}
        if self.border == "paper":
            changed.pop("domain", None)
        return replace(
            setup, fixed_inputs=changed, options={**setup.options, **({"group": self.group} if self.group else {})}
        )

    def recipe(self) -> Recipe:
        """The preset's recipe, with the requested changes."""
        recipe = replace(self.setup.recipe, **(self.setup.none if self.symmetry == "none" else {}))
        steps = recipe.steps if self.steps is None else self.steps
        learning_rate = recipe.learning_rate if self.learning_rate is None else self.learning_rate
        return replace(recipe, steps=steps, learning_rate=learning_rate)


def resumed(out: Path, requested: RunConfig, given: Collection[str] = ()) -> tuple[RunConfig, list[str]]:
    """The run in a directory, with the requested budget, threads and data path, and the commands that made it.

    An option at its default value counts as omitted, unless it is among those `given`.
    """
    file = out / "run.json"
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist: there is no run to resume in {out}")
    try:
        content = json.loads(file.read_text())
        stored, commands = RunConfig.from_json(content["settings"]), content["commands"]
        if not isinstance(commands, list) or not all(isinstance(command, str) for command in commands):
            raise TypeError("its commands are not a list of strings")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} does not describe a run: {error}") from None
    checked = {*requested.changed(), *given}
    for name in (field.name for field in fields(requested) if field.name in checked):
        known, value = getattr(stored, name), getattr(requested, name)
        if name not in ("steps", "minutes", "threads", "data") and value != known:
            raise ValueError(f"the run in {out} has {name}={known}; it cannot be resumed with {name}={value}")
    config = stored
    if requested.steps is not None or requested.minutes is not None:
        config = replace(stored, steps=requested.steps, minutes=requested.minutes)
    if config != stored:
        budget = ("--steps", config.steps) if config.minutes is None else ("--minutes", config.minutes)
        words = ["aenp", "train", stored.experiment, "--out", out, "--resume", *budget]
        commands = [*commands, shlex.join(map(str, words))]
    return replace(config, threads=requested.threads or stored.threads, data=requested.data or stored.data), commands


def train_model(
    out: Path | None,
    requested: RunConfig,
    resume: bool = False,
    oversubscribe: bool = False,
    given: Collection[str] = (),
) -> Outcome:
    """Trains as requested, and writes `model.safetensors`, its facts `model.json`, logs and checkpoints to `out`.

    Args:
        out: the run's directory; by default runs/EXPERIMENT/MODEL-SYMMETRY.
        requested: what to train; to resume a run, only what is to be checked or changed.
        resume: continue the run in `out`.
        oversubscribe: allow more devices or threads than the machine has.
        given: names of options that a run to resume must share, even where they are at their defaults.
    """
    out = out or Path("runs", requested.experiment, requested.name)
    config, commands = resumed(out, requested, given) if resume else (requested, [requested.command()])
    name, symmetry = config.name, config.symmetry
    if not oversubscribe:
        config.check_machine()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    experiment = experiment_class(config.experiment)(None if config.data is None else Path(config.data), config.split)
    model = experiment.model(str(config.model), symmetry, config.preset, config.seed, config.setup)  # type: ignore[arg-type]
    source, recipe, (tasks, best) = experiment.source(), config.recipe(), experiment.validation()
    has_state = (out / CHECKPOINT).exists()
    if not resume and has_state:
        raise FileExistsError(
            f"{out} already holds a run. Continue it with --resume, or choose another directory with --out"
        )
    with alone_in(out):
        _write(out / "run.json", {"settings": asdict(config), "commands": commands})
        outcome = train(
            model,
            replace(source, **config.setup.tasks) if config.setup.tasks else source,  # type: ignore[type-var]
            recipe,
            out,
            config.minutes,
            config.seed,
            tasks,
            best,
            resume and has_state,
            machine=config.machine(),
            wrap=experiment.wrap,
        )
        facts = {
            "name": f"{experiment.name}/{name}",
            "command": " && ".join(commands),
            "seed": config.seed,
            "steps": outcome.steps,
            "minutes": outcome.minutes,
            "finished": outcome.finished,
            "threads": torch.get_num_threads(),
            "devices": config.devices * config.num_nodes,
            "parameters": parameter_count(model),
            "recipe": asdict(recipe),
            "aenp": __version__,
            "torch": torch.__version__,
        }
        _write(out / "model.json", facts)
    return outcome


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is what the annotation says: a bool is not a number, and numbers are finite."""
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(hint))
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is hint


def _write(file: Path, content: dict[str, Any]) -> None:
    if not is_first_process():
        return
    with written_whole(file) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n")
