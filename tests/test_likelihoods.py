"""Likelihoods of quantities with bounds: what a model may do with them, and what they learn."""

import pytest
import torch

import aenp
from catalogue import random_task

BOUNDED = [aenp.NonNegative(min_scale=0.5), aenp.Bounded(-10.0, 20.0, min_scale=0.5)]
each = pytest.mark.parametrize("likelihood", BOUNDED, ids=lambda each: type(each).__name__)


@each
@pytest.mark.parametrize("values", ["centred", "standardised"])
def test_bounds_do_not_move_with_the_context(likelihood, values):
    with pytest.raises(
        ValueError, match=f"values='{values}' moves outputs, but likelihood={type(likelihood).__name__}"
    ):
        aenp.CNP(1, 1, likelihood=likelihood, values=values)


@each
def test_a_saved_model_has_its_likelihood(likelihood, tmp_path):
    torch.manual_seed(0)
    model = aenp.TNP(1, 2, dim=16, heads=2, layers=1, likelihood=likelihood).eval()
    task = random_task(1)
    aenp.save(model, tmp_path / "model.safetensors")
    loaded = aenp.load(tmp_path / "model.safetensors")
    assert loaded.likelihood.configuration() == likelihood.configuration()
    assert torch.equal(loaded(task).mean, model(task).mean)


@pytest.mark.parametrize("bounds", [(1.0, 1.0), (2.0, 1.0), (0.0, torch.inf), (torch.nan, 1.0)])
def test_bounds_are_finite_and_in_order(bounds):
    with pytest.raises(ValueError, match="low and high must be finite and low < high"):
        aenp.Bounded(*bounds)


@pytest.mark.parametrize(("likelihood", "high"), [(aenp.NonNegative(), None), (aenp.Bounded(0.0, 4.0), 4.0)])
def test_training_finds_how_often_a_bound_is_met(likelihood, high):
    """The share of values at each bound, and their mean, also if some are tiny but not zero."""
    torch.manual_seed(0)
    y = likelihood(torch.tensor([[[-0.5, 2.0]]])).sample((4000,))
    y[:20] = 1e-12
    raw = torch.zeros(1, 1, 2, requires_grad=True)
    optimiser = torch.optim.Adam([raw], lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        (-likelihood(raw).log_prob(y).mean()).backward()
        optimiser.step()
    found = likelihood(raw.detach())
    zero = torch.zeros(1, 1, 1)
    assert found.cdf(zero).item() == pytest.approx((y == 0).float().mean().item(), abs=0.04)
    assert found.mean.item() == pytest.approx(y.mean().item(), rel=0.05)
    if high is not None:
        top = 1 - found.cdf_below(zero + high).item()
        assert top == pytest.approx((y == high).float().mean().item(), abs=0.04)


def test_densities_are_of_all_measurements_and_moments_of_those_that_are_not_faulty():
    """The density of a Robust prediction is that of the mixture; means, deviations and samples know no faults."""
    torch.manual_seed(0)
    raw, y = torch.randn(2, 3, 2).double(), 3 * torch.randn(2, 3, 1).double()
    sound, prediction = aenp.Normal()(raw), aenp.Robust(share=0.1, fault=4.0)(raw)
    parts = {sound: 0.9}
    for size, weight in ((4, 64), (32, 8), (256, 1)):
        parts[torch.distributions.Normal(sound.mean, (sound.stddev.square() + size**2).sqrt())] = 0.1 * weight / 73
    density = sum(weight * each.log_prob(y).exp() for each, weight in parts.items())
    torch.testing.assert_close(prediction.log_prob(y).exp(), density)
    torch.testing.assert_close(prediction.cdf(y), sum(weight * each.cdf(y) for each, weight in parts.items()))
    torch.testing.assert_close((prediction.mean, prediction.stddev), (sound.mean, sound.stddev))
    samples = prediction.sample((4000,))
    torch.testing.assert_close(samples.std(0), sound.stddev, rtol=0.1, atol=0.0)


@pytest.mark.parametrize("fault", [5.0, 20.0, 300.0])
def test_one_fault_in_a_hundred_hardly_widens_a_robust_prediction(fault):
    """Fitted to the same measurements, a Normal takes the faults for noise of all; the other finds that of the rest."""
    torch.manual_seed(0)
    y = 0.3 * torch.randn(1000, 1, 1)
    y[::100] += fault
    found = {}
    for likelihood in (aenp.Normal(), aenp.Robust()):
        raw = torch.zeros(1, 1, 2, requires_grad=True)
        optimiser = torch.optim.Adam([raw], lr=0.05)
        for _ in range(300):
            optimiser.zero_grad()
            (-likelihood(raw).log_prob(y).mean()).backward()
            optimiser.step()
        found[type(likelihood)] = likelihood(raw.detach()).stddev.item()
    assert found[aenp.Robust] == pytest.approx(0.3, rel=0.1) and found[aenp.Normal] > 0.5


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.0}, {"fault": 0.0}, {"fault": torch.inf}])
def test_faults_have_a_share_and_a_size(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}, "):
        aenp.Robust(**wrong)
