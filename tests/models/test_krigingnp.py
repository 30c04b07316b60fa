"""KrigingNP: kriging with the inferred kernels, indifferent to the units of places and values, also in cells."""

from collections.abc import Callable

import pytest
import torch
from torch.distributions import Distribution

import aenp
from aenp import KrigingNP, NormalMixture, Task
from aenp.models.krigingnp import KrigingState
from catalogue import build, random_task


def assert_same(prediction: Distribution, other: Distribution, tolerance: float = 1e-5) -> None:
    for value, expected in ((prediction.mean, other.mean), (prediction.stddev, other.stddev)):
        torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("dim_x", [1, 2])
@pytest.mark.parametrize("factor", [1e-6, 7.3, 1e6])
def test_the_unit_of_length_does_not_matter(dim_x: int, factor: float) -> None:
    """Up to the round-off of single precision, which is largest where points coincide."""
    model, task = build("krigingnp-exact", dim_x), random_task(dim_x, context=30)
    clustered = Task(torch.cat([task.xc[:, :15], task.xc[:, 15:] / 100], dim=1), task.yc, task.xt)
    lattice = Task((2 * task.xc).round() / 2, task.yc, (2 * task.xt).round() / 2)
    for each, tolerance in ((task, 1e-4), (clustered, 1e-4), (lattice, 5e-3)):
        assert_same(model(each.map_inputs(lambda x: factor * x)), model(each), tolerance)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-6), (300.0, 5.0), (-1e4, 1e4)])
def test_the_unit_of_the_values_does_not_matter(shift: float, scale: float) -> None:
    model, task = build("krigingnp-exact", 2), random_task(2, context=30)
    base, moved = model(task), model(Task(task.xc, shift + scale * task.yc.double(), task.xt))
    torch.testing.assert_close((moved.mean - shift) / scale, base.mean.to(moved.mean), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(moved.stddev / scale, base.stddev.to(moved.stddev), rtol=1e-3, atol=1e-3)


def test_predictions_are_those_of_kriging_with_the_inferred_kernels() -> None:
    """By the textbook formula, from covariance matrices alone."""
    task = random_task(2, context=12, batch=1)
    model, task = KrigingNP(2, 1, components=1).eval(), Task(task.xc, task.yc[..., :1], task.xt)
    normal, unit = model.normalise(task)
    state = model.encode(normal)
    assert isinstance(state, KrigingState) and unit is not None
    x = torch.cat([task.xc, task.xt], dim=1) - state.anchor
    x = x / state.extent
    drift = torch.cat([torch.ones_like(x[..., :1]), x], dim=-1)
    cov = state.kernels.covariance(x, drift, x, drift)[0, 0] + state.kernels.nugget[0, 0] * torch.eye(19)
    weights = torch.linalg.solve(cov[:12, :12], cov[:12, 12:])
    y = task.yc[0, :, 0].double()
    mean = y.mean() + weights.T @ (y - y.mean())
    variance = (cov[12:, 12:] - weights.T @ cov[:12, 12:]).diagonal() * y.var(correction=0)
    prediction = model(task)
    torch.testing.assert_close(prediction.mean[0, :, 0].double(), mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(prediction.stddev[0, :, 0].double(), variance.sqrt(), rtol=1e-2, atol=2e-3)


def test_a_large_context_is_kriged_in_cells_that_hardly_matter() -> None:
    """With the same kernels in every cell, far points say little that near ones do not."""
    torch.manual_seed(0)
    x = torch.rand(1, 400, 2, dtype=torch.float64)
    task = Task(x[:, :300], (6 * x[:, :300]).sin().sum(-1, keepdim=True), x[:, 300:])
    large, small = KrigingNP(2, 1, window=300).eval(), KrigingNP(2, 1, window=100).eval()
    small.load_state_dict(large.state_dict())
    difference = large(task).mean - small(task).mean
    assert 0 < difference.abs().mean() < 0.05


def test_cells_do_not_depend_on_other_targets_or_on_masked_points() -> None:
    model = build("krigingnp-exact", 2)
    model = type(model)(**model.arguments | {"window": 20}).eval()
    task = random_task(2, context=60, target=30, batch=2)
    whole = model(task)
    few = model(task.with_targets(task.xt[:, :4]))
    torch.testing.assert_close(few.mean, whole.mean[:, :4], rtol=1e-5, atol=1e-5)
    padded = Task(
        torch.nn.functional.pad(task.xc, [0, 0, 0, 7], value=1e5),
        torch.nn.functional.pad(task.yc, [0, 0, 0, 7], value=torch.nan),
        task.xt,
    )
    assert_same(model(padded), whole)


def test_a_task_without_context_in_a_large_batch_is_predicted_as_alone() -> None:
    model = build("krigingnp-exact", 2)
    model = type(model)(**model.arguments | {"window": 20}).eval()
    task = random_task(2, context=60, batch=2)
    mask = torch.tensor([[True], [False]]).expand(2, 60)
    empty = Task(task.xc[1:, :0], task.yc[1:, :0], task.xt[1:])
    prediction = model(Task(task.xc, task.yc, task.xt, context_mask=mask))
    torch.testing.assert_close(prediction.mean[1:], model(empty).mean)
    torch.testing.assert_close(prediction.stddev[1:], model(empty).stddev)


@pytest.mark.parametrize("window", [100, 256])
def test_a_lattice_in_cells_or_whole_does_not_depend_on_the_order_of_its_points_or_on_units(window: int) -> None:
    """Neither on equal distances, which round-off would order, nor on places at the border of a cell."""
    torch.manual_seed(0)
    x = torch.cartesian_prod(*[torch.arange(21, dtype=torch.float64)] * 2)
    y = (x / 3).sin().sum(dim=1, keepdim=True) + 0.1 * torch.randn(441, 1, dtype=x.dtype)
    shipped, order = aenp.pretrained("base/krigingnp-exact"), torch.randperm(441)
    base = type(shipped)(**shipped.arguments | {"window": window}).eval()
    base.load_state_dict(shipped.state_dict())
    targets = torch.cartesian_prod(*[torch.arange(0, 20.5, 2.5, dtype=torch.float64)] * 2)

    def predicted(change: Callable[[torch.Tensor], torch.Tensor], points: torch.Tensor) -> Distribution:
        return aenp.predict(base, Task(change(x[points])[None], y[points][None], change(targets)[None]))

    expected = predicted(lambda each: each, torch.arange(441))
    for change, points in (
        (lambda each: each, order),
        (lambda each: each + 0.1, torch.arange(441)),
        (lambda each: 1.7 * each, torch.arange(441)),
    ):
        assert_same(predicted(change, points), expected, 1e-3)


def test_a_likelihood_that_kriging_does_not_predict_raises() -> None:
    with pytest.raises(ValueError, match=r"likelihood must be NormalMixture\(3\), as .*; got Normal\(\)"):
        KrigingNP(2, 1, likelihood=aenp.Normal())
    with pytest.raises(ValueError, match=r"likelihood must be NormalMixture\(2\)"):
        KrigingNP(2, 1, components=2, likelihood=NormalMixture(3))


def test_raw_numbers_of_a_mixture_give_it_back() -> None:
    likelihood = NormalMixture(3)
    logits, means, scales = torch.randn(2, 5, 3), torch.randn(2, 5, 3), 0.01 + torch.rand(2, 5, 3)
    mixture = likelihood(likelihood.raw(logits, means, scales))
    normals = mixture.component_distribution
    torch.testing.assert_close(normals.mean[:, :, 0], means, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(normals.stddev[:, :, 0], scales, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(mixture.mixture_distribution.probs[:, :, 0], logits.softmax(-1), rtol=1e-5, atol=1e-6)
