"""Metrics against their definitions."""

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from aenp import TNP, FixedInputs
from aenp.data import GibbsTasks
from aenp.evaluation.metrics import covered, crps, equivariance_deviation
from aenp.process import Predictions


def mixture() -> MixtureSameFamily:
    weights = torch.tensor([[0.3, 0.7], [0.5, 0.5]], dtype=torch.float64)
    parts = Normal(torch.tensor([[-1.0, 2.0], [0.0, 0.0]]).double(), torch.tensor([[0.5, 1.0], [1.0, 2.0]]).double())
    return MixtureSameFamily(Categorical(weights), parts)


@pytest.mark.parametrize("prediction", [Normal(torch.tensor([0.5, -1.0]).double(), 0.7), mixture()])
def test_crps_is_the_integral_of_squared_differences_of_distribution_functions(prediction: Normal) -> None:
    y = torch.tensor([0.3, 1.8], dtype=torch.float64)
    grid = torch.linspace(-30, 30, 600_001, dtype=torch.float64)
    step = (grid[:, None] >= y).double()
    integral = torch.trapezoid((prediction.cdf(grid[:, None].expand(-1, 2)) - step).square(), grid, dim=0)
    assert torch.allclose(crps(prediction, y), integral, atol=1e-4)


def test_crps_without_spread_is_the_absolute_error() -> None:
    assert crps(Normal(torch.tensor(1.0), 1e-6), torch.tensor(3.5)).item() == pytest.approx(2.5, abs=1e-4)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_intervals_cover_what_they_promise(level: float) -> None:
    torch.manual_seed(0)
    prediction = Normal(torch.randn(100_000), torch.rand(100_000) + 0.1)
    share = covered(prediction, prediction.sample(), level).float().mean().item()
    assert share == pytest.approx(level, abs=0.005)


def test_deviation_is_the_relative_distance_of_the_means() -> None:
    approximate, equivariant = torch.tensor([[[1.0], [2.0]]]), torch.tensor([[[2.0], [-2.0]]])
    predictions = Predictions(Normal(approximate, 1.0), Normal(equivariant, 1.0))
    assert equivariance_deviation(predictions, 1).item() == pytest.approx(5 / 4)
    assert equivariance_deviation(predictions, 2).item() == pytest.approx((17 / 8) ** 0.5)


def test_deviation_does_not_see_padding() -> None:
    means = torch.randn(2, 3, 5, 1, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(5) < torch.tensor([[5], [3], [1]])
    predictions = Predictions(*(Normal(mean, 1.0) for mean in means))
    alone = [
        equivariance_deviation(Predictions(*(Normal(mean[i : i + 1, mask[i]], 1.0) for mean in means)), 2)
        for i in range(3)
    ]
    assert torch.allclose(equivariance_deviation(predictions, 2, mask), torch.cat(alone))


def test_there_is_no_deviation_outside_the_domain() -> None:
    torch.manual_seed(0)
    model = TNP(1, 1, attention="spectral", dim=8, heads=2, layers=1, fixed_inputs=FixedInputs(1, domain=[(-7, 7)]))
    model.eval()
    inside, outside = GibbsTasks().batch(4, 0, 0), GibbsTasks(centre=(13.0, 27.0)).batch(4, 0, 0)
    with torch.no_grad():
        assert (equivariance_deviation(model.symmetry_breaking(inside), 1) > 0).all()
        assert (equivariance_deviation(model.symmetry_breaking(outside), 1) == 0).all()
