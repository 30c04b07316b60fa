"""Metrics against their definitions."""

import math

import pytest
import torch
from torch.distributions import Categorical, Distribution, Laplace, MixtureSameFamily, MultivariateNormal, Normal

from aenp import CNP, RCNP, TNP, Bounded, ConvCNP, FixedInputs, NonNegative
from aenp.data import GibbsTasks
from aenp.distributions import CensoredNormal
from aenp.evaluation.metrics import (
    Distances,
    covered,
    crps,
    energy_score,
    equivariance_deviation,
    equivariance_distances,
    moved_distances,
    pit,
    variogram_score,
)
from aenp.likelihoods import Likelihood
from aenp.process import NeuralProcess, Predictions
from aenp.symmetry import D, Euclidean, Group, Translation
from aenp.task import Task
from catalogue import random_task


def mixture() -> MixtureSameFamily:
    weights = torch.tensor([[0.3, 0.7], [0.5, 0.5]], dtype=torch.float64)
    parts = Normal(torch.tensor([[-1.0, 2.0], [0.0, 0.0]]).double(), torch.tensor([[0.5, 1.0], [1.0, 2.0]]).double())
    return MixtureSameFamily(Categorical(weights), parts)


RAW = torch.tensor([[0.2, 0.5], [-1.0, 1.0]], dtype=torch.float64)


def of_two(likelihood: Likelihood) -> CensoredNormal:
    found = likelihood(RAW[None])
    return CensoredNormal(found.loc.flatten(), found.scale.flatten(), found.transform, found.low, found.high)


PREDICTIONS = {
    "normal": Normal(torch.tensor([0.5, -1.0]).double(), 0.7),
    "mixture": mixture(),
    "laplace": Laplace(torch.tensor([0.5, -1.0]).double(), 0.7),
    "rain": of_two(NonNegative()),
    "bounded": of_two(Bounded(0.0, 2.0)),
}
each = pytest.mark.parametrize("prediction", PREDICTIONS.values(), ids=PREDICTIONS)


@each
@pytest.mark.parametrize("outcomes", [(0.3, 1.8), (0.0, 0.0), (2.0, 9.0), (-1.0, 1e-9)])
def test_crps_is_the_integral_of_squared_differences_of_distribution_functions(
    prediction: Distribution, outcomes: tuple[float, float]
) -> None:
    y = torch.tensor(outcomes, dtype=torch.float64)
    grid = torch.linspace(-60, 60, 600_001, dtype=torch.float64)
    step = (grid[:, None] >= y).double()
    integral = torch.trapezoid((prediction.cdf(grid[:, None].expand(-1, 2)) - step).square(), grid, dim=0)
    assert torch.allclose(crps(prediction, y), integral, rtol=1e-3, atol=4e-4)


def test_crps_without_spread_is_the_absolute_error() -> None:
    assert crps(Normal(torch.tensor(1.0), 1e-6), torch.tensor(3.5)).item() == pytest.approx(2.5, abs=1e-4)


@each
def test_the_true_distribution_has_the_best_crps(prediction: Distribution) -> None:
    torch.manual_seed(0)
    y = prediction.sample((4000,))
    wrong = (Normal(prediction.mean, prediction.stddev), Normal(prediction.mean + 1, prediction.stddev / 2))
    best, *others = (crps(each.expand(y.shape), y).mean() for each in (prediction, *wrong))
    assert all(best < other + 1e-6 for other in others) and best < others[1] - 0.1


@each
def test_the_probability_integral_transform_of_true_predictions_is_uniform(prediction: Distribution) -> None:
    torch.manual_seed(0)
    values = pit(wide := prediction.expand(torch.Size([20_000, 2])), wide.sample()).sort(dim=0).values
    uniform = torch.linspace(0, 1, 20_000, dtype=torch.float64)
    assert (values - uniform[:, None]).abs().max() < 1.63 / math.sqrt(20_000)


def test_a_value_with_more_mass_than_the_level_is_covered() -> None:
    prediction, zero = NonNegative()(torch.tensor([[[-10.0, 0.0]]])), torch.zeros(1, 1, 1)
    assert covered(prediction, zero, 0.5).all() and not covered(prediction, zero + 1, 0.9).any()


def test_scores_of_samples_see_how_targets_are_related() -> None:
    """Of samples with the same marginals, those that are related as the truth is have the best score."""
    torch.manual_seed(0)
    covariance = torch.tensor([[1.0, 0.95], [0.95, 1.0]])
    y = MultivariateNormal(torch.zeros(2), covariance).sample((4000,)).unsqueeze(-1)
    scores, variograms = [], []
    for factor in (1.0, 0.0, -1.0):
        related = covariance * torch.tensor([[1.0, factor], [factor, 1.0]])
        samples = MultivariateNormal(torch.zeros(2), related).sample((20, 4000)).unsqueeze(-1)
        scores.append(energy_score(samples, y).mean().item())
        variograms.append(variogram_score(samples, y).mean().item())
    assert scores[0] < scores[1] - 0.01 < scores[2] - 0.02
    assert 2 * variograms[0] < variograms[1] < variograms[2]
    with pytest.raises(ValueError, match="at least two samples; got 1"):
        energy_score(y[None], y)


def test_the_energy_score_of_one_target_is_the_crps() -> None:
    torch.manual_seed(0)
    prediction, y = Normal(torch.zeros(1, 1), 1.0), torch.tensor([[0.7]])
    samples = prediction.sample((2000,))
    assert energy_score(samples, y).item() == pytest.approx(crps(prediction, y).item(), abs=0.02)


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


def test_distances_are_relative_to_the_equivariant_part_and_do_not_see_padding() -> None:
    full, part, moved = (
        Normal(torch.tensor([[[a], [b]]]), torch.tensor([[[c], [d]]]))
        for a, b, c, d in ((1.0, 9.0, 3.0, 9.0), (-4.0, 9.0, 2.0, 9.0), (3.0, -9.0, 2.0, 1.0))
    )
    found = moved_distances(moved, Predictions(full, part), 2, mask=torch.tensor([[True, False]]))
    assert (found.mean.item(), found.stddev.item()) == (0.5, 0.5)


def small_model(name: str, domain: list[tuple[float, float]]) -> NeuralProcess:
    """A small model of the plane with random parameters, so large that its fixed inputs matter."""
    torch.manual_seed(0)
    fixed = FixedInputs(2, num=4, width=8, domain=domain)
    model: NeuralProcess = {
        "tnp": lambda: TNP(2, 2, attention="spectral", dim=8, heads=2, layers=1, fixed_inputs=fixed),
        "convcnp": lambda: ConvCNP(2, 2, channels=4, layers=3, kernel=3, points_per_unit=4.0, fixed_inputs=fixed),
        "rcnp": lambda: RCNP(2, 2, relation="distance", dim=8, fixed_inputs=fixed),
    }[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape))
    return model.eval()


@pytest.mark.parametrize("domain", [[(-9.0, 9.0)] * 2, [(-1.0, 1.0)] * 2], ids=["wide", "narrow"])
@pytest.mark.parametrize(
    ("name", "group"), [("tnp", Translation(2)), ("convcnp", Translation(2)), ("rcnp", Euclidean(2)), ("rcnp", D(8))]
)
def test_a_model_is_as_equivariant_as_its_deviation_from_its_equivariant_part(
    name: str, group: Group, domain: list[tuple[float, float]]
) -> None:
    """If predictions with and without fixed inputs differ by at most ε, the equivariance error is at most 2ε."""
    model, task, samples = small_model(name, domain), random_task(2), 6
    for p in (1, 2):
        distances = equivariance_distances(model, task, group, p, samples, generator=torch.Generator().manual_seed(1))
        generator = torch.Generator().manual_seed(1)
        moved = [group.sample(generator=generator)(task) for _ in range(samples)]
        with torch.no_grad():
            before, *after = (deviations(model, each, p) for each in (task, *moved))
        for found, here, *there in zip(distances, before, *after, strict=True):
            sums, largest = here + torch.stack(there), torch.stack([here, *there]).max()
            assert found.shape == (samples, len(task)) and found.max() > 1e-3
            assert (found <= sums + 1e-4).all() and found.max() <= 2 * largest + 1e-4


@pytest.mark.parametrize(("name", "group"), [("tnp", Euclidean(2)), ("convcnp", Euclidean(2)), ("convcnp", D(8))])
def test_the_bound_does_not_hold_for_a_group_to_which_the_model_is_not_equivariant(name: str, group: Group) -> None:
    """Fixed inputs that end far away deviate by nothing here, and still predictions do not turn with the data."""
    model, task = small_model(name, [(90.0, 91.0)] * 2), random_task(2)
    distances = equivariance_distances(model, task, group, 2, 6, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert not any(deviation.any() for deviation in deviations(model, task, 2))
    assert distances.mean.max() > 0.01


class Places(CNP):
    """A model that predicts where a target is: its error is the shift itself."""

    def forward(self, task: Task) -> Distribution:
        return Normal(task.xt.sum(-1, keepdim=True), torch.ones_like(task.xt[..., :1]))

    def symmetry_breaking(self, task: Task) -> Predictions:
        return Predictions(self(task), self(task))


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("p", [1, 2])
def test_distances_of_a_model_of_places_are_the_shifts(p: int, scale: float) -> None:
    task, samples = random_task(2), 5
    found = equivariance_distances(
        Places(2, 1), task, Translation(2), p, samples, scale, torch.Generator().manual_seed(1)
    )
    generator = torch.Generator().manual_seed(1)
    shifts = torch.stack([Translation(2).sample(scale, generator).offset.sum().abs() for _ in range(samples)])
    size = task.xt.sum(-1).norm(p, dim=1) / task.xt.shape[1] ** (1 / p)
    torch.testing.assert_close(found.mean.double(), shifts[:, None].double() / size, rtol=1e-4, atol=1e-6)
    assert not found.stddev.any()


def deviations(model: NeuralProcess, task: Task, p: int) -> Distances:
    """Those of the full prediction from the equivariant part, of means and of standard deviations."""
    both = model.symmetry_breaking(task)
    return moved_distances(both.approximate, Predictions(both.equivariant, both.equivariant), p, task.target_mask)


@pytest.mark.parametrize(("name", "group"), [("tnp", Translation(2)), ("rcnp", Euclidean(2))])
def test_the_equivariant_part_has_no_distance(name: str, group: Group) -> None:
    model = small_model(name, [(-9.0, 9.0)] * 2)
    with model.equivariant():
        distances = equivariance_distances(model, random_task(2), group, 2, samples=3)
    assert distances.mean.max() < 1e-4 and distances.stddev.max() < 1e-4
