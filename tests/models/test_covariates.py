"""Covariates: what is known of each point beside its place, in every model at every symmetry."""

import copy
from dataclasses import replace

import pytest
import torch
from test_contract import APPROX, MOTIONS, SHIFTS, SYMMETRIC, assert_same, differs, each, lattice_motions

import aenp
from aenp import Task
from aenp.evaluation.metrics import equivariance_error
from aenp.models import FAMILIES, make
from aenp.symmetry import D, Euclidean, Translation
from catalogue import ATTENTION, DOMAIN, EACH_KIND, GRID, build, random_task, train

NUMBER = 3
SEED = 3
"One with which no small network ignores its context."


def model_and_task(name, dim_x, **sizes):
    return build(name, dim_x, SEED, dim_covariates=NUMBER), random_task(dim_x, dim_covariates=NUMBER, **sizes)


def with_context(task, index):
    """The task with some of its context points, or with all in another order."""
    names = ("xc", "yc", "context_covariates")
    return replace(task, **{name: getattr(task, name)[:, index] for name in names})


@each(EACH_KIND)
def test_gradients_reach_every_parameter(name, dim_x):
    model, task = model_and_task(name, dim_x, context=40)
    model.train()
    if model.fixed_inputs is not None:
        model.fixed_inputs.dropout = 0.0
    for count in (0, 1, 40):
        model.zero_grad()
        aenp.loglik(model, with_context(task, slice(count))).mean().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    idle = [key for key, p in model.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())]
    assert not idle, f"parameters that nothing depends on: {idle}"


@each(EACH_KIND)
def test_predictions_depend_on_the_covariates_of_context_and_targets(name, dim_x):
    model, task = model_and_task(name, dim_x)
    prediction = model(task)
    assert differs(model(replace(task, context_covariates=task.context_covariates.flip(1))), prediction)
    first = torch.arange(7) == 0
    other = model(replace(task, target_covariates=task.target_covariates + first[:, None]))
    assert differs(other, prediction)
    torch.testing.assert_close(other.mean[:, 1:], prediction.mean[:, 1:], rtol=1e-5, atol=1e-5)


@each(EACH_KIND)
def test_without_context_a_prediction_depends_on_the_targets_covariates(name, dim_x):
    """Or its variance, where covariates are a drift of unknown slope."""
    model, task = model_and_task(name, dim_x, context=0)
    prediction, other = model(task), model(replace(task, target_covariates=task.target_covariates.flip(1)))
    assert differs(other, prediction) or not torch.allclose(other.variance, prediction.variance)


@each(EACH_KIND)
def test_two_kinds_of_observations_in_one_place_are_told_apart(name, dim_x):
    """The same two outputs in the same place, each of the other kind."""
    model, task = model_and_task(name, dim_x, context=2)
    together = replace(task, xc=task.xc[:, :1].expand(-1, 2, -1))
    assert differs(model(replace(together, yc=together.yc.flip(1))), model(together))


@each(EACH_KIND)
def test_the_order_of_the_context_does_not_matter(name, dim_x):
    model, task = model_and_task(name, dim_x)
    assert_same(model(with_context(task, torch.randperm(9))), model(task))


@each(EACH_KIND)
def test_masked_points_and_those_without_covariates_are_ignored(name, dim_x):
    model, task = model_and_task(name, dim_x)
    for left in (0, 5):
        seen = torch.randperm(9) < left
        expected = model(with_context(task, seen))
        assert_same(model(replace(task, context_mask=seen.expand(3, 9))), expected)
        covariates = task.context_covariates.clone()
        covariates[:, ~seen, 1] = torch.nan
        assert_same(model(replace(task, context_covariates=covariates)), expected)


@each(EACH_KIND)
def test_a_batch_equals_its_tasks_one_by_one(name, dim_x):
    model, _ = model_and_task(name, dim_x)
    tasks = [
        random_task(dim_x, context, target, batch=1, seed=context, dim_covariates=NUMBER)
        for context, target in ((3, 5), (9, 2), (0, 4))
    ]
    together = model(Task.stack(tasks))
    for i, task in enumerate(tasks):
        alone, count = model(task), task.xt.shape[1]
        for value, expected in ((together.mean, alone.mean), (together.stddev, alone.stddev)):
            torch.testing.assert_close(value[i : i + 1, :count], expected, rtol=1e-5, atol=1e-5)


@each(EACH_KIND)
def test_chunks_do_not_change_a_prediction(name, dim_x):
    model, task = model_and_task(name, dim_x, target=11)
    assert_same(aenp.predict(model, task, chunk=4), model(task))


@each([key for key in SYMMETRIC if key in EACH_KIND])
def test_translations(name, dim_x):
    model, task = model_and_task(name, dim_x)
    train(model)
    generator = torch.Generator().manual_seed(3)
    with model.equivariant():
        for size in SHIFTS:
            direction = torch.randn(dim_x, dtype=torch.float64, generator=generator)
            motion = Translation(dim_x).element(size * direction / direction.norm())
            assert equivariance_error(model, task, motion) <= 1e-5


@each([key for key in MOTIONS if key in EACH_KIND])
def test_rotations_and_reflections(name, dim_x):
    model, task = model_and_task(name, dim_x)
    train(model)
    with model.equivariant():
        for motion in lattice_motions(model):
            assert equivariance_error(model, task, motion) <= 1e-5
        if name.startswith("rcnp"):
            assert equivariance_error(model, task, Euclidean(dim_x).sample()) <= 1e-5


@pytest.mark.parametrize("group", ["C4", "D8"])
def test_group_u_nets_turn_with_points_that_differ_by_their_covariates_only(group):
    """Two neighbours with the same output, whose mean lies halfway between two nodes."""
    torch.manual_seed(0)
    options = {"points_per_unit": 4.0, "on_grid": True, "network": "unet", "margin": 0, **GRID}
    model = aenp.EquivCNP(2, 1, group=group, dim_covariates=1, **options).double()
    nodes = torch.cartesian_prod(*[torch.arange(9, dtype=torch.float64)] * 2)[None] / 4
    xc, covariates = nodes[:, 39:41], torch.tensor([[[-1.0], [2.0]]])
    task = Task(xc, torch.ones(1, 2, 1), nodes, context_covariates=covariates, target_covariates=nodes[..., :1])
    for element in D(4).elements()[: 4 if group == "C4" else 8]:
        motion = element.about(torch.tensor([1.0, 2.5], dtype=torch.float64))
        assert equivariance_error(model, task, motion) <= 1e-6


@each([key for key in APPROX if key in EACH_KIND])
def test_fixed_inputs_break_the_symmetry_inside_the_domain_only(name, dim_x):
    model, task = model_and_task(name, dim_x)
    inside, part = model.symmetry_breaking(task)
    assert differs(inside, part)
    outside, part = model.symmetry_breaking(task.shift(3 * DOMAIN[1] + 8))
    assert_same(outside, part, tolerance=1e-6)


@each([key for key in APPROX if key in EACH_KIND])
def test_where_fixed_inputs_are_dropped_covariates_are_not(name, dim_x):
    model, task = model_and_task(name, dim_x)
    with model.equivariant():
        expected = model(task)
        assert differs(model(replace(task, target_covariates=task.target_covariates.flip(1))), expected)
    model.train()
    model.fixed_inputs.dropout = 1.0
    assert_same(model(task), expected)


@each(EACH_KIND)
@pytest.mark.parametrize("values", ["centred", "standardised"])
def test_outputs_are_relative_and_covariates_are_not(name, dim_x, values):
    model, task = model_and_task(name, dim_x)
    model, task = model.double(), task.to(torch.float64)
    model.values = values
    before, after = model(task), model(replace(task, yc=task.yc + 288))
    torch.testing.assert_close(after.mean, before.mean + 288, rtol=1e-9, atol=1e-9)
    assert differs(model(replace(task, context_covariates=task.context_covariates + 1)), before)


@each([key for key in EACH_KIND if key[1] == 1])
def test_saved_and_loaded_bit_for_bit(name, dim_x, tmp_path):
    model, task = model_and_task(name, dim_x)
    aenp.save(model, tmp_path / "model.safetensors")
    loaded = aenp.load(tmp_path / "model.safetensors")
    assert loaded.dim_covariates == NUMBER
    assert torch.equal(loaded(task).mean, model(task).mean) and torch.equal(loaded(task).stddev, model(task).stddev)


@each(EACH_KIND)
def test_other_precisions(name, dim_x):
    model, task = model_and_task(name, dim_x)
    assert_same(copy.deepcopy(model).double()(task), model(task), tolerance=1e-3)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(task)
    assert_same(mixed, model(task), tolerance=0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_refuses_a_task_with_other_covariates(family):
    symmetry = FAMILIES[family].symmetries[0]
    for ours, theirs in ((0, 2), (2, 0), (2, 3)):
        model = make(family, symmetry, 1, 2, dim_covariates=ours)
        with pytest.raises(ValueError, match=f"the model has dim_covariates={ours}, but the task has {theirs}; give a"):
            model(random_task(1, dim_covariates=theirs))
    with pytest.raises(ValueError, match="dim_covariates must not be negative; got -1"):
        make(family, symmetry, 1, 2, dim_covariates=-1)


def sine_tasks(seed, dim_covariates):
    """y = sin(x + phase) + 2 c with a random phase for each task and a random c for each point, which may be hidden."""
    generator = torch.Generator().manual_seed(seed)
    x = 6 * torch.rand(16, 40, 1, generator=generator)
    c = torch.randn(16, 40, 1, generator=generator)
    y = (x + 6.3 * torch.rand(16, 1, 1, generator=generator)).sin() + 2 * c
    known = {"context_covariates": c[:, :20], "target_covariates": c[:, 20:]} if dim_covariates else {}
    return Task(x[:, :20], y[:, :20], x[:, 20:], y[:, 20:], **known)


def error_after_training(family, learning_rate, options, dim_covariates):
    """The root mean square error at the targets of new tasks."""
    torch.manual_seed(0)
    model = make(family, "exact", 1, 1, dim_covariates=dim_covariates, **options)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    for step in range(150):
        optimiser.zero_grad()
        (-aenp.loglik(model, sine_tasks(step, dim_covariates)).mean()).backward()
        optimiser.step()
    task = sine_tasks(10_000, dim_covariates)
    return (aenp.predict(model, task).mean - task.yt).square().mean().sqrt().item()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "learning_rate", "options"),
    [("convcnp", 1e-2, {"points_per_unit": 4, **GRID}), ("tnp", 3e-3, {"attention": "spectral", **ATTENTION})],
    ids=["convcnp", "tnp"],
)
def test_an_effect_of_a_covariate_is_learned(family, learning_rate, options):
    """A model that does not see c is left with about 2, the standard deviation of its effect; one that does, with less
    than half of that. How much less depends on rounding, and so on the processor."""
    assert error_after_training(family, learning_rate, options, dim_covariates=0) > 1.5
    assert error_after_training(family, learning_rate, options, dim_covariates=1) < 0.8
