"""Distributions against their definitions: masses and densities, quantiles, moments, samples, gradients."""

import math

import pytest
import torch

import aenp
from aenp.likelihoods import Likelihood

LIKELIHOODS: dict[str, tuple[Likelihood, float, float]] = {
    "rain": (aenp.NonNegative(), 0.0, 150.0),
    "humidity": (aenp.Bounded(0.0, 100.0), 0.0, 100.0),
    "elsewhere": (aenp.Bounded(-3.0, -1.0), -3.0, -1.0),
}
censored = pytest.mark.parametrize("name", LIKELIHOODS)


def distribution(name):
    """Several shapes at once: mostly at a bound, mostly between, narrow and wide."""
    raw = torch.tensor([[-2.0, -1.0], [-0.3, 0.5], [0.5, -3.0], [2.0, 1.0], [0.1, 4.0]], dtype=torch.float64)
    likelihood, low, high = LIKELIHOODS[name]
    return likelihood(raw[None]), low, 5 * high if name == "rain" else high


def integral(prediction, low, high, function):
    """E f(Y), from the masses at the bounds and a sum over the density between them."""
    width = (high - low) / 400_000
    y = torch.linspace(low + width / 2, high - width / 2, 400_000, dtype=torch.float64).view(-1, 1, 1, 1)
    result = (prediction.log_prob(y).exp() * function(y)).sum(0) * width
    for bound in (low, high) if math.isfinite(prediction.high) else (low,):
        at = torch.full((1, 5, 1), bound, dtype=torch.float64)
        result = result + prediction.log_prob(at).exp() * function(at)
    return result


@censored
def test_masses_and_density_add_up_to_one(name):
    total = integral(*distribution(name), torch.ones_like)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)


@censored
def test_mean_and_variance_are_those_of_the_density(name):
    prediction, low, high = distribution(name)
    mean = integral(prediction, low, high, lambda y: y)
    variance = integral(prediction, low, high, lambda y: (y - mean).square())
    torch.testing.assert_close(prediction.mean, mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(prediction.variance, variance, rtol=1e-4, atol=1e-4)


@censored
def test_quantiles_invert_the_distribution_function(name):
    prediction, low, high = distribution(name)
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64).view(-1, 1, 1, 1)
    y = prediction.icdf(p)
    assert (y >= prediction.low).all() and (y <= prediction.high).all() and (y.diff(dim=0) >= 0).all()
    between = (y > prediction.low) & (y < prediction.high)
    assert between.any() and (y == prediction.low).any()
    torch.testing.assert_close(prediction.cdf(y)[between], p.expand_as(y)[between], rtol=1e-6, atol=1e-9)
    assert (prediction.cdf(y) >= p - 1e-9).all() and (prediction.cdf_below(y) <= p + 1e-9).all()
    ends = torch.tensor([low - 1.0, low, high + 1.0], dtype=torch.float64).view(-1, 1, 1, 1)
    assert (prediction.cdf(ends)[0] == 0).all() and (prediction.cdf_below(ends)[1] == 0).all()
    torch.testing.assert_close(prediction.cdf(ends)[1], prediction.log_prob(ends[1]).exp())
    torch.testing.assert_close(prediction.cdf(ends)[2], torch.ones(1, 5, 1, dtype=torch.float64))


@pytest.mark.parametrize("name", [*LIKELIHOODS, "mixture"])
def test_samples_follow_the_distribution_function(name):
    """The largest distance between the two is below the 1 % point of Kolmogorov and Smirnov's test."""
    torch.manual_seed(0)
    prediction = mixture() if name == "mixture" else distribution(name)[0]
    samples = prediction.sample((20_000,))
    y = prediction.icdf(torch.linspace(0.005, 0.995, 199, dtype=torch.float64).view(-1, 1, 1, 1))
    shares = torch.stack([(samples <= each).double().mean(0) for each in y])
    assert (shares - prediction.cdf(y)).abs().max() < 1.63 / math.sqrt(20_000)


def mixture():
    return aenp.NormalMixture(2)(torch.tensor([[[0.0, 1.0, -3.0, 2.0, -1.0, 0.5]]], dtype=torch.float64))


def test_quantiles_of_a_mixture():
    prediction = mixture()
    p = torch.tensor([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6], dtype=torch.float64).view(-1, 1, 1, 1)
    torch.testing.assert_close(prediction.cdf(prediction.icdf(p)), p, rtol=1e-7, atol=0)
    ends = prediction.icdf(torch.tensor([0.0, 1.0]).view(-1, 1, 1, 1))
    assert ends.flatten().tolist() == [-math.inf, math.inf]


@censored
def test_values_beyond_the_bounds_are_impossible(name):
    prediction, low, high = distribution(name)
    beyond = [low - 1e-3] if name == "rain" else [low - 1e-3, high + 1e-3]
    for y in beyond:
        assert (prediction.log_prob(torch.full((1, 5, 1), y, dtype=torch.float64)) == -math.inf).all()


@censored
@pytest.mark.parametrize("size", [0.0, 3.0, 1e4])
def test_values_and_gradients_are_finite_at_the_bounds_and_for_extreme_networks(name, size):
    likelihood, low, high = LIKELIHOODS[name]
    raw = (size * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])[None]).requires_grad_()
    ends = torch.tensor([low, high]).view(-1, 1, 1, 1).expand(2, 1, 4, 1)
    inner = low + (high - low) * torch.tensor([1e-30, 1e-7, 0.5, 1 - 1e-6]).view(-1, 1, 1, 1).expand(4, 1, 4, 1)
    prediction = likelihood(raw)
    values = prediction.log_prob(torch.cat([ends, inner]))
    assert values.isfinite().all()
    for each in (values, prediction.mean, prediction.variance, prediction.rsample((50,))):
        (gradient,) = torch.autograd.grad(each.sum(), raw, retain_graph=True)
        assert each.isfinite().all() and gradient.isfinite().all()


@censored
def test_samples_reach_the_bounds_exactly_and_follow_the_parameters(name):
    prediction, low, high = distribution(name)
    torch.manual_seed(0)
    samples = prediction.sample((2000,))
    assert (samples == low).any() and samples.min() == low and ((samples == high).any() or name == "rain")
    likelihood = LIKELIHOODS[name][0]
    raw = torch.tensor([[[0.5, 0.0]]], dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(likelihood(raw).rsample((200_000,)).mean(), raw)
    (expected,) = torch.autograd.grad(likelihood(raw).mean.sum(), raw)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
