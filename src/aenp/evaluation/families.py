"""The page of all model families, whose equivariance errors are measured when it is written."""

from typing import Any

import torch

from aenp.arguments import Count, Seed
from aenp.evaluation.metrics import equivariance_error
from aenp.evaluation.tables import markdown_table
from aenp.models import FAMILIES, make
from aenp.process import NeuralProcess
from aenp.symmetry import C, Motion, Translation
from aenp.task import Task

SHIFTS = (7.3, 100.0, 1e6)
DOMAIN = (-4.0, 4.0)

FAMILIES_PAGE = """\
# The models

Written by `aenp families > docs/models.md`, or `make docs`.

Each family at each of its symmetries, with default arguments and one output, every parameter perturbed at random
(seed {seed}), on {tasks} tasks of 32 context and 64 target points in [−2, 2]^dim_x with float64 coordinates. An
equivariance error is max |θ(g·ξ) − θ(ξ)| / max |θ(ξ)|, with θ the predictive means and standard deviations. Shifts are
in a random direction, not by multiples of a grid's spacing; rotations are about a random centre. Approximate models (~)
are measured inside `model.equivariant()`; the last column is a shift by 1 with their fixed inputs on, their symmetry
breaking before training.

{table}

- T: translations; SE: rotations too; E: rotations and reflections too. Models without symmetry preserve none of these.
- C8 and D8 are exact where a square lattice is: rotations by multiples of 90° and, for D8, reflections. A rotation by
  45° interpolates filters and changes the proportions of the box: its error is that of an untrained network.
- EquivCNP on the line has symmetric kernels; there, 180° is the reflection.
- Every family takes `dim_covariates`, the number of covariates of each point, such as its elevation or the kind of an
  observation. They move along with their points, so that all these symmetries remain. A model sees them beside the
  outputs of the context, where a ConvCNP smooths an MLP of both beside the outputs, and at each target: in the last
  MLP, or in the target's token. To a KrigingNP they are regressors of a linear drift.
"""


def families(seed: Seed = 0, tasks: Count = 4) -> None:
    """Print every model family at every symmetry, with parameter counts and measured equivariance errors.

    Args:
        seed: random seed of the random parameters and tasks.
        tasks: number of tasks that the errors are measured on.
    """
    print(families_page(seed, tasks))


def families_page(seed: int = 0, tasks: int = 4) -> str:
    """The page that lists each model, its number of parameters and its measured equivariance errors."""
    header = [
        "model",
        "symmetry",
        "dim_x",
        "parameters",
        *(f"shift {shift:g}" for shift in SHIFTS),
        "90°",
        "180°",
        "45°",
        "t on",
    ]
    rows = [_row(model, seed, tasks) for model in all_models(seed)]
    return FAMILIES_PAGE.format(seed=seed, tasks=tasks, table=markdown_table(header, rows))


def all_models(seed: int = 0) -> list[NeuralProcess]:
    """Each family at each symmetry in one and two dimensions, with its default sizes."""
    torch.manual_seed(seed)
    models = []
    for dim_x in (1, 2):
        for family, kind in FAMILIES.items():
            variants: list[dict[str, Any]] = [{}]
            if family == "rcnp":
                variants = [{"relation": "difference"}, {"relation": "distance"}]
            if family == "equivcnp" and dim_x == 2:
                variants = [{"group": "D8"}, {"group": "C8"}]
            for symmetry in kind.symmetries:
                if family in ("tnp", "pttnp"):
                    variants = [{}] if symmetry == "none" else [{"attention": "mlp"}, {"attention": "spectral"}]
                domain = [DOMAIN] * dim_x if symmetry == "approx" else None
                models += [make(family, symmetry, dim_x, 1, domain=domain, **options) for options in variants]
    return models


def parameter_count(model: NeuralProcess) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def name(model: NeuralProcess) -> str:
    """The model's label, with its kind where there are several."""
    kind = model.arguments.get("group") or model.arguments.get("attention")
    return f"{model.label}, {kind}" if kind else model.label


def _row(model: NeuralProcess, seed: int, tasks: int) -> list[str]:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    dim_x = model.dim_x
    xc, xt = (4 * torch.rand(tasks, n, dim_x, dtype=torch.float64, generator=generator) - 2 for n in (32, 64))
    task = Task(xc, torch.randn(tasks, 32, 1, generator=generator), xt)
    centre = 10 * torch.randn(dim_x, dtype=torch.float64, generator=generator)
    model.eval()

    def shift(size: float) -> Motion:
        direction = torch.randn(dim_x, dtype=torch.float64, generator=generator)
        return Translation(dim_x).element(size * direction / direction.norm())

    errors: list[float | None] = [None] * 7
    with model.equivariant():
        errors[:3] = [equivariance_error(model, task, shift(size)) for size in SHIFTS]
        if model.symmetry_group != "T":
            for i, turn in enumerate(_turns(dim_x), start=3):
                errors[i] = None if turn is None else equivariance_error(model, task, turn.about(centre))
    if model.symmetry == "approx":
        errors[6] = equivariance_error(model, task, shift(1.0))
    cells = ("" if error is None else f"{error:.0e}" if error else "0" for error in errors)
    return [*facts(model), *cells]


def facts(model: NeuralProcess) -> list[str]:
    return [name(model), model.symmetry, str(model.dim_x), f"{parameter_count(model):,}"]


def _turns(dim_x: int) -> list[Motion | None]:
    """Rotations by 90°, 180° and 45°; on the line, only the reflection, which is a turn of the plane by 180°."""
    if dim_x == 1:
        mirror = Motion(-torch.eye(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
        return [None, mirror, None]
    return [C(4).elements()[1], C(4).elements()[2], C(8).elements()[1]]
