"""Outputs counted from the context's own mean, and in its own standard deviation: an exact symmetry of every model."""

import pytest
import torch

import aenp
from aenp import Task
from aenp.likelihoods import Likelihood
from aenp.models import FAMILIES, make
from aenp.models.scales import relative_values
from catalogue import EACH_KIND, build, random_task

each = pytest.mark.parametrize(("name", "dim_x"), EACH_KIND, ids=[f"{name}-{d}d" for name, d in EACH_KIND])
RELATIVE = ["centred", "standardised"]


def model_and_task(name, dim_x, values, **task):
    model = build(name, dim_x).double()
    model.values = values
    task = random_task(dim_x, **task)
    return model, Task(task.xc, task.yc.double(), task.xt, task.yt.double())


def assert_same(prediction, mean, stddev):
    torch.testing.assert_close(prediction.mean, mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(prediction.stddev, stddev, rtol=1e-9, atol=1e-9)


@each
@pytest.mark.parametrize("values", RELATIVE)
def test_adding_a_constant_to_the_outputs_adds_it_to_the_prediction(name, dim_x, values):
    model, task = model_and_task(name, dim_x, values)
    shift = torch.tensor([288.0, -3.5], dtype=torch.float64)
    before, after = model(task), model(task.xc, task.yc + shift, task.xt)
    assert_same(after, before.mean + shift, before.stddev)
    assert (before.mean - model(task.xc, task.yc.flip(1), task.xt).mean).abs().max() > 1e-4


@each
def test_scaling_the_outputs_scales_a_standardised_prediction(name, dim_x):
    model, task = model_and_task(name, dim_x, "standardised")
    scale = torch.tensor([1e4, 1e-4], dtype=torch.float64)
    before, after = model(task), model(task.xc, scale * task.yc, task.xt)
    assert_same(after, scale * before.mean, scale * before.stddev)
    densities = after.log_prob(scale * task.yt) + scale.log()
    torch.testing.assert_close(densities, before.log_prob(task.yt), rtol=1e-6, atol=1e-6)


@each
@pytest.mark.parametrize("values", RELATIVE)
def test_masked_points_do_not_change_the_unit(name, dim_x, values):
    model, task = model_and_task(name, dim_x, values)
    mask = torch.arange(9) < torch.tensor([[0], [1], [5]])
    together = model(Task(task.xc, torch.where(mask[..., None], task.yc, 1e6), task.xt, context_mask=mask))
    for i, count in enumerate((0, 1, 5)):
        alone = model(task.xc[i : i + 1, :count], task.yc[i : i + 1, :count], task.xt[i : i + 1])
        torch.testing.assert_close(together.mean[i : i + 1], alone.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(together.stddev[i : i + 1], alone.stddev, rtol=1e-6, atol=1e-6)


@each
@pytest.mark.parametrize("values", RELATIVE)
def test_an_empty_context_has_the_prior_unit(name, dim_x, values):
    model, task = model_and_task(name, dim_x, values, context=0)
    relative = model(task)
    model.values = "raw"
    assert_same(relative, model(task).mean, model(task).stddev)


@each
def test_a_context_without_spread_is_only_centred(name, dim_x):
    model, task = model_and_task(name, dim_x, "standardised", batch=4)
    constant = torch.tensor([0.0, 0.1, 288.15, 1e14], dtype=torch.float64).view(4, 1, 1).expand(task.yc.shape)
    standardised = model(task.xc, constant, task.xt)
    model.values = "centred"
    centred = model(task.xc, constant, task.xt)
    assert standardised.mean.isfinite().all()
    torch.testing.assert_close(standardised.mean, centred.mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(standardised.stddev, centred.stddev, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("values", RELATIVE)
def test_gradients_are_finite_without_spread(values):
    model, task = model_and_task("tnp-exact", 1, values)
    y = torch.ones_like(task.yc).requires_grad_()
    model(task.xc, y, task.xt).log_prob(task.yt).sum().backward()
    assert y.grad.isfinite().all()


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "krigingnp"])
@pytest.mark.parametrize("values", RELATIVE)
def test_values_are_saved_with_the_model(family, values, tmp_path):
    model = make(family, FAMILIES[family].symmetries[0], 1, 2, values=values).eval()
    aenp.save(model, tmp_path / "model.safetensors")
    loaded = aenp.load(tmp_path / "model.safetensors")
    task = random_task(1)
    assert loaded.values == values
    assert torch.equal(loaded(task).mean, model(task).mean)
    torch.testing.assert_close(aenp.predict(model, task, chunk=2).mean, model(task).mean)


class Laplace(Likelihood):
    """A likelihood from outside, to be moved and scaled like the others."""

    num_params = 2

    def distribution(self, raw):
        return torch.distributions.Laplace(raw[..., 0], self._scale(raw[..., 1]), validate_args=False)


@pytest.mark.parametrize(
    "likelihood", [aenp.Normal(), aenp.Robust(), aenp.NormalMixture(3), Laplace()], ids=lambda each: type(each).__name__
)
def test_every_likelihood_moves_with_the_outputs(likelihood):
    torch.manual_seed(0)
    model = aenp.TNP(1, 2, dim=32, heads=4, layers=2, likelihood=likelihood, values="standardised").double().eval()
    task = random_task(1)
    task = Task(task.xc, task.yc.double(), task.xt, task.yt.double())
    moved = Task(task.xc, 5 * task.yc + 100, task.xt, 5 * task.yt + 100)
    change = task.dim_y * torch.tensor(5.0).double().log()
    torch.testing.assert_close(aenp.loglik(model, moved) + change, aenp.loglik(model, task), rtol=1e-9, atol=1e-9)


def test_coherent_samples_move_with_the_outputs():
    model, task = model_and_task("tnp-exact", 1, "centred")
    torch.manual_seed(1)
    samples = aenp.ar_sample(model, task, 3)
    torch.manual_seed(1)
    moved = aenp.ar_sample(model, Task(task.xc, task.yc + 100, task.xt), 3)
    torch.testing.assert_close(moved, samples + 100, rtol=1e-9, atol=1e-9)


def test_float64_outputs_are_centred_before_they_are_rounded():
    model, task = build("tnp-exact", 1), random_task(1)
    model.values = "centred"
    far = model(task.xc, task.yc.double() + 1e9, task.xt)
    torch.testing.assert_close(far.stddev, model(task).stddev, rtol=1e-4, atol=1e-4)


def test_outputs_are_centred_if_the_context_mean_predicts_better_than_zero():
    task = random_task(1, context=20)
    moved = Task(task.xc, task.yc + 3, task.xt, task.yt + 3)
    assert relative_values(task) == "raw"
    assert relative_values([moved, moved]) == "centred"
    mask = torch.zeros(3, 20, dtype=torch.bool)
    assert relative_values(Task(moved.xc, moved.yc, moved.xt, moved.yt, mask)) == "raw"
    with pytest.raises(ValueError, match="tasks must have target outputs"):
        relative_values(task.with_targets(task.xt))
