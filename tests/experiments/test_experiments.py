"""Experiments: every model of every preset can be built, and shipped models match their facts."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch

import aenp
from aenp import Task
from aenp.evaluation.families import parameter_count
from aenp.evaluation.metrics import equivariance_error
from aenp.experiments import experiments, key
from aenp.experiments.base import Base
from aenp.experiments.experiment import exact_counterpart, process_of
from aenp.experiments.runs import RunConfig
from aenp.process import NeuralProcess
from aenp.shipped import WEIGHTS, find_model, shipped
from aenp.symmetry import Motion, Translation

EXPERIMENTS = experiments()
CASES = [(name, *model) for name, experiment in EXPERIMENTS.items() for model in experiment.models]
SYMMETRIES = ("none", "exact", "approx")
SHIPPED = [f"{name}/{key(*model)}" for name, experiment in EXPERIMENTS.items() for model in experiment.models]


@cache
def pretrained(name: str) -> NeuralProcess:
    return process_of(aenp.pretrained(name))


@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.parametrize(("name", "family", "symmetry"), CASES)
def test_every_model_can_be_built(name: str, family: str, symmetry: str, preset: str) -> None:
    experiment = EXPERIMENTS[name]()
    model = experiment.model(family, symmetry, preset)  # type: ignore[arg-type]
    assert model.symmetry == symmetry
    if symmetry == "approx" and preset == "paper":
        domain = [side or (-math.inf, math.inf) for side in experiment.domain]
        assert [tuple(side) for side in model.fixed_inputs.domain] == domain


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_papers_numbers_are_of_models_that_exist(name: str) -> None:
    experiment = EXPERIMENTS[name]
    names = {key(*model) for model in experiment.models}
    for numbers in experiment.paper.values():
        assert set(numbers) <= names | {"ground truth"}


def test_an_unknown_model_raises_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"tnp-approx.*got cnp-none"):
        EXPERIMENTS["gp"]().model("cnp", "none")


def test_a_relaxed_convcnp_is_compared_with_a_convcnp() -> None:
    assert exact_counterpart("relaxedconvcnp-approx") == "convcnp-exact"
    assert exact_counterpart("tnp-approx") == "tnp-exact"


def test_paper_sizes() -> None:
    """Appendix E.1: nine layers, D_z = 128, 8 heads; nine layers of 64 channels, kernel 21, 46 points per unit."""
    tnp = EXPERIMENTS["gp"]().model("tnp", "approx", "paper")
    assert (tnp.dim, tnp.heads, len(tnp.self_attention), tnp.attention) == (128, 8, 9, "mlp")
    assert (tnp.fixed_inputs.fourier, tnp.fixed_inputs.dropout) == (4, 0.5)
    convcnp = EXPERIMENTS["gp"]().model("convcnp", "approx", "paper")
    assert convcnp.arguments["kernel"] == 21 and convcnp.arguments["layers"] == 9
    assert convcnp.spacing == [1 / 46] and convcnp.fixed_inputs.dropout == 0.1
    recipe = EXPERIMENTS["gp"].setups["paper"]["tnp"].recipe
    assert (recipe.learning_rate, recipe.batch_size, recipe.clip, recipe.steps) == (5e-4, 16, 0.5, 500_000)
    assert tnp.fixed_inputs.mlp[0].in_features == 2 * 4


def test_paper_sizes_in_the_plane() -> None:
    """Appendix E.2: D_z = 16 in EquivCNP, nine layers of 16 fields for each rotation; batches of 8 and 16."""
    for name in ("smoke", "era5-2d"):
        equivcnp = EXPERIMENTS[name]().model("equivcnp", "approx", "paper")
        layers = equivcnp.network.layers
        assert [len(layer.bias) for layer in layers] == 9 * [16]
        assert (equivcnp.head[0].in_features, equivcnp.head[0].out_features) == (16, 16)
    sizes = {symmetry: RunConfig("smoke", "pttnp", symmetry, "paper").recipe().batch_size for symmetry in SYMMETRIES}
    assert sizes == {"none": 16, "exact": 8, "approx": 8}


def test_the_paper_preset_has_contexts_of_different_sizes_in_a_batch() -> None:
    for setup in EXPERIMENTS["gp"].setups["paper"].values():
        task = replace(EXPERIMENTS["gp"]().source(), **setup.tasks).batch(16, 0, 0)
        assert len(task.context_mask.sum(dim=1).unique()) > 1 and task.xt.shape[1] == 128


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_are_complete(name: str) -> None:
    model, facts = pretrained(name), shipped()[name]
    experiment, model_name = name.split("/")
    assert parameter_count(model) == facts["parameters"]
    setup = EXPERIMENTS[experiment].setups["cpu"][model_name.split("-")[0]]
    recipe = replace(setup.recipe, **(setup.none if model_name.endswith("none") else {}))
    assert facts["finished"] and (facts["steps"] == recipe.steps or "--minutes" in facts["command"])
    assert facts["command"].startswith(f"aenp train {experiment} --model")
    assert set(facts["scores"]) == set(facts["tasks"])
    assert (WEIGHTS / f"{name}.safetensors").stat().st_size < 4e6
    built = EXPERIMENTS[experiment]().model(*model_name.split("-"))  # type: ignore[arg-type]
    assert built.configuration() == model.configuration()


def task_for(model: NeuralProcess) -> Task:
    """Random points, on a grid for a model that needs one, in the middle of the domain of the fixed inputs."""
    generator = torch.Generator().manual_seed(0)
    shape = 3, 50, model.dim_x
    x = 4 * torch.rand(shape, dtype=torch.float64, generator=generator) - 2
    if model.arguments.get("on_grid"):
        x = torch.stack([torch.cartesian_prod(*[torch.arange(9.0)] * model.dim_x)[:50].double()] * 3)
        x = x / model.arguments["points_per_unit"]
    if model.fixed_inputs is not None:
        sides = [side if math.isfinite(sum(side)) else (0.0, 0.0) for side in model.fixed_inputs.domain]
        x = x + torch.tensor(sides, dtype=torch.float64).mean(dim=1)
    y, known = (torch.randn(3, 50, dim, generator=generator) for dim in (model.dim_y, model.dim_covariates))
    covariates = known.split([20, 30], dim=1) if model.dim_covariates else (None, None)
    return Task(x[:, :20], y[:, :20], x[:, 20:], None, None, None, *covariates)


@pytest.mark.parametrize("name", [name for name in SHIPPED if not name.endswith("none")])
@torch.no_grad()
def test_trained_models_are_equivariant(name: str) -> None:
    """After training as before: off the lattice, and far away; on the line EquivCNP to reflections too."""
    model = pretrained(name)
    task = task_for(model)
    near, far = (Translation(model.dim_x).element(torch.full((model.dim_x,), size).double()) for size in (0.337, 1e6))
    with model.equivariant():
        assert max(equivariance_error(model, task, shift) for shift in (near, far)) < 1e-4
        if model.symmetry_group == "E" and model.dim_x == 1:
            mirror = Motion(-torch.eye(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
            assert equivariance_error(model, task, mirror) < 1e-4
    if model.symmetry == "approx":
        assert min(equivariance_error(model, task, shift) for shift in (near, far)) > 1e-3


def test_an_unknown_shipped_model_raises_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no model 'gp/none' is shipped; choose from gp/"):
        aenp.pretrained("gp/none")
    with pytest.raises(ValueError, match="no model 'run' is shipped; `aenp models` lists those that are"):
        find_model("run")


def test_test_windows_are_those_that_shipped_scores_are_of() -> None:
    """The base models' test tasks are drawn as when these were scored."""
    sums = [stratum.task.yt.abs().sum().item() for stratum in Base().tests(16, 1)["windows as in fit"][:3]]
    assert sums == pytest.approx([234.9039, 44.0565, 169.7980], rel=1e-4)
