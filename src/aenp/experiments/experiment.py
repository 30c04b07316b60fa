"""Experiment: what data, which models at which sizes, and what the paper found."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch.distributions import Distribution

from aenp.data import Source
from aenp.fixed_inputs import Domain, FixedInputs
from aenp.models import FAMILIES, make
from aenp.process import NeuralProcess, Symmetry
from aenp.recipe import Recipe
from aenp.task import Task

Preset = Literal["cpu", "paper"]
BEST = "Bayes-optimal"
"The name of the oracle that no model can beat on average."
Number = tuple[float, float]
"A mean and its standard error."
STRATA = 16


PAPER = Recipe(steps=500_000, learning_rate=5e-4, schedule="constant", average=0.0)
"How the paper trained its models."


def eight(transformer: str) -> tuple[tuple[str, Symmetry], ...]:
    """The paper's eight models, with the given family for its transformers."""
    return (
        (transformer, "none"),
        (transformer, "exact"),
        (transformer, "approx"),
        ("convcnp", "exact"),
        ("convcnp", "approx"),
        ("relaxedconvcnp", "approx"),
        ("equivcnp", "exact"),
        ("equivcnp", "approx"),
    )


@dataclass(frozen=True)
class Setting:
    """A family's sizes and training in one preset.

    Args:
        recipe: how it is trained, at every symmetry.
        options: arguments of the family's class.
        fixed_inputs: arguments of the `FixedInputs` of its approximate model.
        approx: further arguments of the class that only the approximate model has.
    """

    recipe: Recipe
    options: Mapping[str, Any] = field(default_factory=dict)
    fixed_inputs: Mapping[str, Any] = field(default_factory=dict)
    approx: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stratum:
    """A batch of tasks that are alike, and what oracles predict for such tasks, by name, where there are any."""

    task: Task
    oracles: Callable[[Task], Mapping[str, Distribution]] | None = None


class Experiment(ABC):
    """One experiment of the paper; a subclass declares it in a file of its own.

    Args:
        data: where its data are, if it needs any.
        split: which of its `splits` of the data, the first by default.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    dim_x: ClassVar[int]
    dim_y: ClassVar[int] = 1
    domain: Domain
    "Where the fixed inputs may differ from zero, unless a setting says otherwise."
    models: ClassVar[Sequence[tuple[str, Symmetry]]]
    settings: ClassVar[Mapping[Preset, Mapping[str, Setting]]]
    paper: ClassVar[Mapping[str, Mapping[str, Number]]]
    "The paper's numbers: by column, then by model, as `tnp-approx`."
    paper_tests: ClassVar[Mapping[str, str]] = {}
    "What the paper tested on, by column, where it was something else."
    remark: ClassVar[str] = ""
    "What a reader of the report must know to compare the numbers."
    splits: ClassVar[tuple[str, ...]] = ()
    "Names of the ways in which its data are split into training and test data, where there are several."
    norm: ClassVar[int]
    "p of the L_p norm in the equivariance deviation."

    def __init__(self, data: Path | None = None, split: str | None = None) -> None:
        if split is not None and split not in self.splits:
            raise ValueError(f"{self.name} has {', '.join(self.splits) or 'no'} splits; got {split!r}")
        self.data, self.split = data, split

    def file(self, name: str) -> Path:
        """A file of the experiment's data."""
        if self.data is None:
            raise ValueError(f"{self.name} needs --data, a directory with {name}")
        if not (self.data / name).exists():
            raise FileNotFoundError(f"{self.data / name} does not exist, which {self.name} reads")
        return self.data / name

    def check_shipped(self) -> None:
        """An error if the shipped models are not for this split of the data."""
        if self.split not in (None, *self.splits[:1]):
            raise ValueError(
                f"the shipped models of {self.name} are for the split {self.splits[0]}, not {self.split}: "
                "train some, and evaluate or plot them by --weights"
            )

    @abstractmethod
    def source(self) -> Source:
        """What models are trained on."""

    @abstractmethod
    def validation(self) -> tuple[list[Task], float | None]:
        """Tasks that a model in training is scored on, and the best possible score where it is known."""

    @abstractmethod
    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        """The test sets by name, of about `tasks` tasks each, in strata of equal weight and size."""

    @abstractmethod
    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        """Draws the experiment's figures, with every model in each, and gives the files written."""

    def findings(self, models: Mapping[str, NeuralProcess], seed: int) -> str:
        """What else the report is to tell of the models, as Markdown."""
        return ""

    def model(self, family: str, symmetry: Symmetry, preset: Preset = "cpu", seed: int = 0) -> NeuralProcess:
        """The model of `family` at `symmetry`, untrained."""
        if (family, symmetry) not in self.models:
            known = ", ".join(map(key, *zip(*self.models, strict=True)))
            raise ValueError(f"{self.name} has the models {known}; got {key(family, symmetry)}")
        setting = self.settings[preset][family]
        options = dict(setting.options)
        torch.manual_seed(seed)
        fixed_inputs = None
        if symmetry == "approx":
            options |= setting.approx
            fixed_inputs = FixedInputs(self.dim_x, **{"domain": self.domain, **setting.fixed_inputs})
        return make(family, symmetry, self.dim_x, self.dim_y, fixed_inputs, **options)


def key(family: str, symmetry: str) -> str:
    """A model's name in files and on the command line, such as `tnp-approx`."""
    return f"{family}-{symmetry}"


def key_of(model: NeuralProcess) -> str:
    """The name of models of the same family and symmetry, as `tnp-approx`, wherever this one comes from."""
    families = {kind: family for family, (kind, _) in FAMILIES.items()}
    return key(families.get(type(model), type(model).__name__), model.symmetry)


def per_stratum(tasks: int, strata: int = STRATA) -> int:
    """How many tasks each stratum has; at least two, for a standard error."""
    return max(2, -(-tasks // strata))


def middles(low: float, high: float) -> list[float]:
    """The middles of so many equal parts as there are strata."""
    width = (high - low) / STRATA
    return [low + (number + 0.5) * width for number in range(STRATA)]


def twin(name: str) -> str:
    """The exactly equivariant model that an approximate one is compared with; RelaxedConvCNP's is a ConvCNP."""
    return name.removeprefix("relaxed").replace("approx", "exact")
