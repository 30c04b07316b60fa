"""KrigingNP: kriging with the inferred kernels, indifferent to the units of places and values, also in cells."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution

import aenp
from aenp import KrigingNP, NormalMixture, Task
from aenp.models import krigingnp
from aenp.models.krigingnp import KrigingState
from aenp.nn import compiled, kernels, vecchia
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


@pytest.mark.parametrize("window", [20, 6])
def test_cells_do_not_depend_on_other_targets_or_on_masked_points(window: int) -> None:
    """Neither of few cells nor of many."""
    model = build("krigingnp-exact", 2)
    model = type(model)(**model.arguments | {"window": window}).eval()
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


def large_context(window: int = 20) -> tuple[KrigingNP, Task]:
    """The base model with small cells, and a context of several of them with targets along a line through these."""
    shipped = aenp.pretrained("base/krigingnp-exact")
    model = KrigingNP(**shipped.arguments | {"window": window}).eval()
    model.load_state_dict(shipped.state_dict())
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 200, 2, dtype=torch.float64, generator=generator)
    y = (6 * x).sin().sum(dim=-1, keepdim=True) + 0.3 * torch.randn(1, 200, 1, generator=generator)
    line = torch.linspace(0.1, 0.9, 801, dtype=torch.float64)
    return model, Task(x, y, torch.stack([line, 1 - line], dim=-1)[None])


def test_divisions_into_cells_are_mixed_by_their_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So mean and mean square of what is observed lie between those of single divisions."""
    model, task = large_context()
    mixed, singles = aenp.predict(model, task), []
    for offset in krigingnp.OFFSETS:
        monkeypatch.setattr(krigingnp, "OFFSETS", (offset,))
        singles.append(aenp.predict(model, task))
    for moment in (lambda each: each.mean, lambda each: each.variance + each.mean.square()):
        among = torch.stack([moment(each) for each in singles])
        assert (among.amin(dim=0) - 1e-5 <= moment(mixed)).all() and (moment(mixed) <= among.amax(dim=0) + 1e-5).all()


@pytest.mark.parametrize("window", [20, 60])
def test_maps_do_not_jump_at_the_borders_of_cells(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a border is, its division does not count; by itself it would jump."""
    model, task = large_context(window)
    steps = aenp.predict(model, task).mean.diff(dim=1).abs()
    monkeypatch.setattr(krigingnp, "OFFSETS", krigingnp.OFFSETS[:1])
    alone = aenp.predict(model, task).mean.diff(dim=1).abs()
    assert steps.max() < 10 * steps.median() < alone.max()


@pytest.mark.parametrize("points", [600, 2_100])
def test_a_flat_part_of_a_large_context_has_a_variance(points: int) -> None:
    """Values that differ by 1e-5 in most cells and by 1 in a few."""
    x = torch.rand(1, points, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    values = 1e-5 * x.sum(dim=-1, keepdim=True) + (x[..., :1] > 0.8)
    prediction = aenp.predict(aenp.pretrained("base/krigingnp-exact").double(), Task(x, values, x[:, :50] / 2))
    assert prediction.mean.isfinite().all() and (prediction.stddev > 0).all()


@pytest.mark.parametrize("points", [3, 700])
def test_points_at_one_place_have_no_extent_wherever_it_is(points: int) -> None:
    """The round-off of their mean is none."""
    model, y = aenp.pretrained("base/krigingnp-exact"), torch.linspace(1, 2, points).view(1, -1, 1)
    apart = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [100.0, 0.0]]], dtype=torch.float64)
    zero, one = (
        model(Task(torch.full((1, points, 2), place, dtype=torch.float64), y, place + apart)) for place in (0.0, 3.3)
    )
    assert_same(one, zero)


def test_points_that_coincide_are_in_a_cell_by_their_values_and_not_by_their_order() -> None:
    """With pairs of points and an odd number of points in a cell, each cell has only one of some pair."""
    model, task = large_context(21)
    task = Task(task.xc[:, :100].repeat(1, 2, 1), task.yc, task.xt)
    backwards = Task(task.xc.flip(1), task.yc.flip(1), task.xt)
    assert_same(aenp.predict(model, backwards), aenp.predict(model, task), 1e-4)


@pytest.mark.parametrize("points", [256, 700])
def test_places_in_single_precision_may_come_in_any_order(points: int) -> None:
    model, generator = aenp.pretrained("base/krigingnp-exact"), torch.Generator().manual_seed(0)
    x, y = torch.rand(1, points, 2, generator=generator), torch.randn(1, points, 1, generator=generator)
    backwards = Task(x.flip(1), y.flip(1), x[:, :50] + 0.01)
    assert_same(aenp.predict(model, backwards), aenp.predict(model, Task(x, y, x[:, :50] + 0.01)), 1e-4)


@pytest.mark.parametrize("points", [1, 5, 60, 300])
def test_the_shipped_model_predicts_what_it_does_with_a_factor_for_each_point(
    points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likelihoods that it was trained with are from Cholesky factors, one for each reference and point."""

    def factors(cov: Tensor, values: Tensor, nugget: Tensor) -> tuple[Tensor, Tensor]:
        family = values.shape[1]
        one, other = torch.triu_indices(family, family)
        full = cov.new_zeros(family, family, *cov.shape[1:])
        full[one, other] = full[other, one] = cov
        full = full.permute(2, 3, 4, 0, 1) + nugget[..., None, None] * torch.eye(family)
        factor, y = torch.linalg.cholesky(full), values[0].permute(1, 2, 0)[..., None].expand(*full.shape[:-1], 1)
        errors = torch.linalg.solve_triangular(factor, y, upper=False)
        return factor[..., -1, -1].square(), factor[..., -1, -1] * errors[..., -1, 0]

    base, x = aenp.pretrained("base/krigingnp-exact"), torch.rand(2, points + 40, 2, dtype=torch.float64)
    y = (5 * x).cos().sum(dim=-1, keepdim=True) + 0.1 * torch.randn(2, points + 40, 1)
    task = Task(x[:, :points], y[:, :points], x[:, points:])
    prediction = aenp.predict(base, task)
    monkeypatch.setattr(compiled, "library", None)
    monkeypatch.setattr(vecchia, "_conditional", factors)
    assert_same(prediction, aenp.predict(base, task), 1e-3)


def test_a_task_without_context_in_a_large_batch_is_predicted_as_alone() -> None:
    model = build("krigingnp-exact", 2)
    model = type(model)(**model.arguments | {"window": 20}).eval()
    task = random_task(2, context=60, batch=2)
    mask = torch.tensor([[True], [False]]).expand(2, 60)
    empty = Task(task.xc[1:, :0], task.yc[1:, :0], task.xt[1:])
    prediction = model(Task(task.xc, task.yc, task.xt, context_mask=mask))
    torch.testing.assert_close(prediction.mean[1:], model(empty).mean)
    torch.testing.assert_close(prediction.stddev[1:], model(empty).stddev)


@pytest.mark.parametrize("window", [50, 100, 256])
def test_a_lattice_in_cells_or_whole_does_not_depend_on_the_order_of_its_points_or_on_units(window: int) -> None:
    """Neither on equal distances, which round-off would order, nor on places at the border of a cell.

    The lattice is divided three times, once or not at all.
    """
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


def test_half_of_a_covariance_in_blocks_gives_the_predictions_of_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without gradients only what the factor reads is computed, a few rows at a time."""
    torch.manual_seed(0)
    model, task = KrigingNP(2, 1), Task(torch.rand(2, 40, 2), torch.randn(2, 40, 1), torch.rand(2, 5, 2))
    whole = model(task)
    monkeypatch.setattr(compiled, "library", None)
    monkeypatch.setattr(kernels, "BLOCK", 2 * 3 * 40 * 7)
    with torch.no_grad():
        assert_same(model(task), whole)
