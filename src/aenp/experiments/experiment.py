"""Experiment: what data, which models at which sizes, and what the paper found."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from aenp.configured import Configured
from aenp.data import TaskSource
from aenp.evaluation.scores import Stratum
from aenp.fixed_inputs import Domain, FixedInputs
from aenp.models import make
from aenp.process import NeuralProcess, Symmetry
from aenp.shipped import pretrained, shipped
from aenp.task import Task
from aenp.training.recipe import Recipe

Preset = Literal["cpu", "paper"]
BEST = "Bayes-optimal"
"The name of the oracle that no model can beat on average."
Number = tuple[float, float]
"A mean and its standard error, or an upper bound of the mean and NaN, where the paper prints a bound only."
PaperAblation = Mapping[str, Mapping[str, Mapping[Any, float]]]
"Scores by column, then by family, then by the value that is varied."
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
class FamilySetup:
    """A family's sizes and training in one preset.

    Args:
        recipe: how it is trained.
        options: arguments of the family's class.
        fixed_inputs: arguments of the `FixedInputs` of its approximate model.
        approx: further arguments of the class that only the approximate model has.
        tasks: what differs in the source of its training tasks, such as the number of targets scored.
        none: what differs in the recipe of the model without symmetry.
        fourier: waves for each dimension that the model without symmetry sees of positions, scaled to the domain; 0 for
            positions as they are.
        from_twin: whether the approximate model starts as its exact counterpart does, with the same weights and with
            fixed inputs of zero, so that the two differ by what the fixed inputs learn and less by chance.
    """

    recipe: Recipe
    options: Mapping[str, Any] = field(default_factory=dict)
    fixed_inputs: Mapping[str, Any] = field(default_factory=dict)
    approx: Mapping[str, Any] = field(default_factory=dict)
    tasks: Mapping[str, Any] = field(default_factory=dict)
    none: Mapping[str, Any] = field(default_factory=dict)
    fourier: int = 0
    from_twin: bool = False


class Experiment(ABC):
    """One experiment of the paper; a subclass declares it in a file of its own.

    Args:
        data: where its data are, if it needs any.
        split: which of its `splits` of the data, the first by default.

    Example:
        >>> from aenp.experiments import experiment_class
        >>> gp = experiment_class("gp")()
        >>> gp.dim_x, gp.source().batch(batch_size=2, index=0, seed=0).dim_y
        (1, 1)
    """

    name: ClassVar[str]
    title: ClassVar[str]
    dim_x: ClassVar[int]
    dim_y: ClassVar[int] = 1
    domain: Domain
    "Where the fixed inputs may differ from zero, unless a setup says otherwise."
    models: ClassVar[Sequence[tuple[str, Symmetry]]]
    setups: ClassVar[Mapping[Preset, Mapping[str, FamilySetup]]]
    paper: ClassVar[Mapping[str, Mapping[str, Number]]] = {}
    """The paper's numbers, if it has any: by column, then by model, as `tnp-approx`.

    A column is the name of a test set, `context, ` and that name, or `deviation`.
    """
    paper_ablations: ClassVar[Mapping[str, PaperAblation]] = {}
    "The paper's log-likelihoods by the name of the ablation."
    paper_tests: ClassVar[Mapping[str, str]] = {}
    "The paper's test data, by column, where they differ from ours."
    outside: ClassVar[Sequence[str]] = ()
    "The test sets that lie outside the training region."
    domain_remark: ClassVar[str] = ""
    "What a reader must know of the domain of the shipped models' fixed inputs, where it is not the paper's."
    remark: ClassVar[str] = ""
    "What a reader of the report must know to compare the numbers."
    needs_data: ClassVar[bool] = False
    "Whether it reads files from a directory that the user gives."
    splits: ClassVar[tuple[str, ...]] = ()
    "Names of the ways in which its data are split into training and test data, where there are several."
    block: ClassVar[str] = "task"
    "What test tasks are independent of each other: tasks, or tasks of different days, say."
    norm: ClassVar[int]
    "p of the L_p norm in the equivariance deviation."

    known: ClassVar[dict[str, type["Experiment"]]] = {}
    "Every experiment by name, including those defined outside this package."

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            Experiment.known[cls.name] = cls

    def __init__(self, data: Path | None = None, split: str | None = None) -> None:
        if split is not None and split not in self.splits:
            raise ValueError(f"{self.name} has {', '.join(self.splits) or 'no'} splits; got {split!r}")
        self.data, self.split = data, split

    @classmethod
    def generate(cls, out: Path, num: int, seed: int, workers: int | None, scheduler: str | None) -> Iterator[int]:
        """Makes a data set of `num` simulations, and yields how many are complete; not every experiment can."""
        raise ValueError(f"{cls.name} has no data set to make; `aenp data --help` lists the experiments that have one")

    def file(self, name: str) -> Path:
        """A file of the experiment's data."""
        if self.data is None:
            raise ValueError(f"{self.name} needs --data, a directory with {name}")
        if not (self.data / name).exists():
            raise FileNotFoundError(f"{self.data / name} does not exist; {self.name} needs it")
        return self.data / name

    def shipped_models(self) -> dict[str, NeuralProcess]:
        """The shipped models of this experiment by name, in the paper's order."""
        self.check_shipped()
        names = [name for name in starmap(key, self.models) if f"{self.name}/{name}" in shipped(self.name)]
        if not names:
            raise ValueError(f"no models of {self.name} are shipped; train some, and give their --weights")
        return {name: process_of(pretrained(f"{self.name}/{name}")) for name in names}

    def check_shipped(self) -> None:
        """Raises an error if the shipped models are not for this split of the data."""
        if self.split not in (None, *self.splits[:1]):
            raise ValueError(
                f"the shipped models of {self.name} are for the split {self.splits[0]}, not {self.split}: "
                "train some, and evaluate or plot them with --weights"
            )

    @abstractmethod
    def source(self) -> TaskSource:
        """The source of the training tasks."""

    @abstractmethod
    def validation(self) -> tuple[list[Task], float | None]:
        """Tasks that a model in training is scored on, and the best possible score where it is known."""

    @abstractmethod
    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        """The test sets by name, of about `tasks` tasks each, in strata of equal weight and size."""

    @abstractmethod
    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        """Draws the experiment's figures, with every model in each, and returns the files written."""

    def findings(self, models: Mapping[str, NeuralProcess], seed: int) -> str:
        """Further findings about the models for the report, as Markdown."""
        return ""

    def wrap(self, process: NeuralProcess) -> Configured:
        """The object that is saved for a trained model: by default the model itself."""
        return process

    @classmethod
    def check_known(cls, family: str, symmetry: Symmetry) -> None:
        """Refuses a model that is not one of the experiment's."""
        if (family, symmetry) not in cls.models:
            known = ", ".join(map(key, *zip(*cls.models, strict=True)))
            raise ValueError(f"{cls.name} has the models {known}; got {key(family, symmetry)}")

    def model(
        self,
        family: str,
        symmetry: Symmetry,
        preset: Preset = "cpu",
        seed: int = 0,
        setup: FamilySetup | None = None,
    ) -> NeuralProcess:
        """The model of `family` at `symmetry`, untrained; `setup` is its size where it is not that of the preset."""
        self.check_known(family, symmetry)
        setting = setup or self.setups[preset][family]
        options = dict(setting.options)
        torch.manual_seed(seed)
        fixed_inputs = None
        if symmetry == "approx":
            options |= setting.approx
            fixed_inputs = FixedInputs(self.dim_x, **{"domain": self.domain, **setting.fixed_inputs})
        if symmetry == "none" and setting.fourier:
            options |= {"domain": self.domain, "fourier": setting.fourier}
        model = make(family, symmetry, self.dim_x, self.dim_y, fixed_inputs, **options)
        if fixed_inputs is not None and setting.from_twin:
            exact, _, _ = exact_counterpart(key(family, symmetry)).rpartition("-")
            twin = self.model(exact, "exact", preset, seed, setting)
            model.load_state_dict(model.state_dict() | twin.state_dict())
            fixed_inputs.start_at_zero()
        return model


def process_of(model: Any) -> NeuralProcess:
    """The neural process of a saved model, which may be wrapped in the units of its data."""
    process: NeuralProcess = getattr(model, "process", model)
    return process


def key(family: str, symmetry: str) -> str:
    """A model's name in files and on the command line, such as `tnp-approx`.

    Example:
        >>> from aenp.experiments import key
        >>> key("tnp", "approx")
        'tnp-approx'
    """
    return f"{family}-{symmetry}"


def key_of(model: NeuralProcess) -> str:
    """The name of models of the same family and symmetry, as `tnp-approx`, wherever this one comes from.

    Example:
        >>> import aenp
        >>> from aenp.experiments import key_of
        >>> key_of(aenp.pretrained("gp/tnp-approx"))
        'tnp-approx'
    """
    return key(getattr(model, "family", type(model).__name__), model.symmetry)


def per_stratum(tasks: int, strata: int = STRATA) -> int:
    """How many tasks each stratum has; at least two, for a standard error."""
    return max(2, -(-tasks // strata))


def middles(low: float, high: float) -> list[float]:
    """The middles of `STRATA` equal parts."""
    width = (high - low) / STRATA
    return [low + (number + 0.5) * width for number in range(STRATA)]


def exact_counterpart(name: str) -> str:
    """The exactly equivariant model that an approximate one is compared with; RelaxedConvCNP's is a ConvCNP."""
    return name.removeprefix("relaxed").replace("approx", "exact")
