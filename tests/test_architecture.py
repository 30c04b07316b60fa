"""The architecture: dependencies point one way, and a new model or experiment is one class that nothing else names."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import aenp
from aenp.data import GibbsTasks
from aenp.evaluation.scores import Stratum
from aenp.experiments.experiment import Experiment, FamilySetup
from aenp.experiments.shipping import train_and_ship
from aenp.models.cnp import CNP
from aenp.process import NeuralProcess
from aenp.task import Task
from aenp.training.recipe import Recipe

PACKAGE = Path(aenp.__file__).parent
LAYERS = [
    {"_version"},
    {"__init__"},
    {"configured", "arguments", "checks", "distributions"},
    {"symmetry"},
    {"nn"},
    {"task"},
    {"fixed_inputs", "likelihoods", "saving"},
    {"process"},
    {"inference", "models", "data", "shipped"},
    {"training", "evaluation"},
    {"earth", "sklearn", "theory"},
    {"experiments"},
    {"demo"},
    {"cli"},
]
"Files and folders from the bottom up: each may use those below it, and nothing beside or above it."


def imports(text: str, package: tuple[str, ...]) -> Iterator[str]:
    """The modules of aenp that code in a package imports anywhere, except for type checkers."""
    tree = ast.parse(text)
    hidden = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    skipped = {id(inner) for node in hidden for inner in ast.walk(node)}
    for node in ast.walk(tree):
        names = [] if id(node) in skipped else imported(node, package)
        yield from (name for name in names if name == "aenp" or name.startswith("aenp."))


def imported(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """The modules that a statement imports, or a call of import_module with a string."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = package[: len(package) + 1 - node.level] if node.level else ()
        module = ".".join(filter(None, (*base, node.module)))
        return [public_module(alias.name) for alias in node.names] if module == "aenp" else [module]
    if isinstance(node, ast.Call) and "import_module" in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
        return [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return []


def public_module(name: str) -> str:
    """The module that `from aenp import name` imports."""
    if any(name in names for names in LAYERS):
        return f"aenp.{name}"
    return f"aenp.{aenp.PUBLIC[name]}" if name in aenp.PUBLIC else "aenp"


def top_level(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("import torch, aenp.earth.maps", ["aenp.earth.maps"]),
        ("from aenp.earth import maps", ["aenp.earth"]),
        ("from aenp import experiments, fit, __version__", ["aenp.experiments", "aenp.earth.fitting", "aenp"]),
        ("from ..earth import maps", ["aenp.earth"]),
        ("from .. import earth, TNP", ["aenp.earth", "aenp.models.tnp"]),
        ("from . import mlp", ["aenp.nn"]),
        ("from .mlp import MLP", ["aenp.nn.mlp"]),
        ("def later():\n    return import_module('aenp.earth')", ["aenp.earth"]),
        ("importlib.import_module('aenp.earth').fit", ["aenp.earth"]),
        ("import_module(name), import_module('torch')", []),
        ("if TYPE_CHECKING:\n    from aenp import earth", []),
    ],
)
def test_imports_of_every_form_are_found(code: str, modules: list[str]) -> None:
    assert list(imports(code, ("aenp", "nn"))) == modules


def test_dependencies_point_one_way() -> None:
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    wrong = []
    for file in sorted(PACKAGE.rglob("*.py")):
        own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        assert own in level, f"{own} has no place in the architecture"
        for module in imports(file.read_text(), file.relative_to(PACKAGE.parent).parts[:-1]):
            other = top_level(module)
            if other != own and level[other] >= level[own]:
                wrong.append(f"{file.relative_to(PACKAGE)} imports {module}")
    assert not wrong


def test_the_tree_in_the_design_is_that_of_the_layers() -> None:
    tree = (PACKAGE.parents[1] / "docs/design.md").read_text().split("src/aenp/\n")[1].split("```")[0]
    groups = [re.findall(r"^  (\w+)(?:\.py|/) ", group, re.MULTILINE) for group in tree.split("\n\n")]
    assert [set(group) for group in groups] == LAYERS


def test_every_folder_has_a_docstring() -> None:
    for init in PACKAGE.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(init.read_text())), init


@pytest.fixture
def toy() -> Iterator[None]:
    """A model family and an experiment from outside the package, which are removed afterwards."""

    class ToyModel(CNP):
        """A model family from outside the package."""

        family = "toy"

    class ToyExperiment(Experiment):
        """An experiment from outside the package."""

        name = "toy"
        title = "A toy"
        dim_x = 1
        domain = ((-1.0, 1.0),)
        norm = 1
        models = (("toy", "none"),)
        setups = {"cpu": {"toy": FamilySetup(Recipe(steps=2, batch_size=2), {"dim": 4})}}  # noqa: RUF012
        paper = {"near": {"toy-none": (1.25, 0.5)}}  # noqa: RUF012

        @classmethod
        def generate(cls, out: Path, num: int, seed: int, workers: int | None, scheduler: str | None) -> Iterator[int]:
            return iter(range(num + 1))

        def source(self) -> GibbsTasks:
            return GibbsTasks(num_context=(1, 4), num_targets=4)

        def validation(self) -> tuple[list[Task], None]:
            return [], None

        def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
            return {"near": [Stratum(self.source().batch(2, number, seed)) for number in range(2)]}

        def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
            return []

    yield
    del NeuralProcess.families["toy"], Experiment.known["toy"]


def test_a_model_and_an_experiment_from_outside_are_trained_evaluated_shipped_and_reported(
    toy: None, call: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "aenp train toy --data data --model toy --symmetry none" in call("data", "toy", "--num", 3, "--out", "data")
    run = tmp_path / "runs/toy/toy-none"
    assert "Finished after 2 steps" in call("train", "toy", "--model", "toy", "--symmetry", "none", "--out", run)
    assert "| ToyModel | " in call("evaluate", "toy", "--weights", run / "model.safetensors")
    monkeypatch.setattr("aenp.shipped.WEIGHTS", tmp_path / "weights")
    monkeypatch.setattr("aenp.experiments.shipping.WEIGHTS", tmp_path / "weights")
    train_and_ship(("toy",), runs=tmp_path / "runs", tasks=4)
    assert "toy/toy-none" in call("models", "--json")
    page = call("reproduce", "toy", "--out", tmp_path / "results")
    assert "# A toy" in page and "| ToyModel | " in page and "1.25 ± 0.5" in page
