import pytest
import torch

import aenp
from aenp import Task
from aenp.evaluation.metrics import covered, crps, equivariance_error
from aenp.inference import spread
from aenp.symmetry import Translation
from catalogue import CASES, build, random_task


@pytest.mark.parametrize("name", [name for name, d in CASES if d == 2])
def test_chunks_do_not_change_a_prediction(name):
    model, task = build(name, 2), random_task(2, target=23)
    whole = model(task)
    for chunk in (1, 5, 100):
        pieces = aenp.predict(model, task, chunk=chunk)
        torch.testing.assert_close(pieces.mean, whole.mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(pieces.stddev, whole.stddev, rtol=1e-5, atol=1e-5)


def test_predict_uses_evaluation_mode_and_restores_the_mode():
    model, task = build("convcnp-approx", 1).train(), random_task(1, batch=20)
    assert torch.equal(aenp.predict(model, task).mean, model.eval()(task).mean)
    model.train()
    model.fixed_inputs.eval()
    assert not aenp.predict(model, task).mean.requires_grad
    assert model.training and model.network.training and not model.fixed_inputs.training


@pytest.mark.parametrize("name", [name for name, d in CASES if d == 1])
def test_a_prediction_may_be_part_of_a_loss_and_its_model_is_trained_later(name):
    """What `predict` makes, and what models remember of it, can take part in a computation with gradients."""
    model, task = build(name, 1), random_task(1)
    weight = torch.ones(1, requires_grad=True)
    prediction = aenp.predict(model, task)
    (weight * prediction.mean * prediction.stddev).sum().backward()
    (-aenp.loglik(model.train(), task).mean()).backward()
    assert weight.grad is not None and any(each.grad is not None for each in model.parameters())


def test_loglik_is_the_mean_over_targets_that_count():
    model, task = build("tnp-exact", 1), random_task(1)
    mask = torch.tensor([[True, True, False, True, False, True, True]]).expand(3, -1)
    masked = Task(task.xc, task.yc, task.xt, task.yt, target_mask=mask)
    values = model(task).log_prob(task.yt).sum(-1)
    torch.testing.assert_close(aenp.loglik(model, task), values.mean(-1))
    torch.testing.assert_close(aenp.loglik(model, masked), values[mask].view(3, 5).mean(-1))


def test_loglik_needs_targets_to_score():
    model, task = build("cnp", 1), random_task(1)
    with pytest.raises(ValueError, match="yt"):
        aenp.loglik(model, Task(task.xc, task.yc, task.xt))
    with pytest.raises(ValueError, match="not masked"):
        aenp.loglik(model, Task(task.xc, task.yc, task.xt, task.yt, target_mask=torch.zeros(3, 7, dtype=torch.bool)))


@pytest.mark.parametrize("name", ["tnp-exact", "convcnp-approx", "pttnp-exact", "cnp"])
def test_samples_have_the_right_shape_and_follow_the_seed(name):
    model, task = build(name, 1), random_task(1, context=0, target=5)
    torch.manual_seed(3)
    samples = aenp.ar_sample(model, task, 4)
    assert samples.shape == (4, 3, 5, 2) and samples.isfinite().all()
    torch.manual_seed(3)
    assert torch.equal(samples, aenp.ar_sample(model, task, 4))


def test_masked_targets_are_not_sampled_and_not_conditioned_on():
    model, task = build("tnp-exact", 1), random_task(1)
    mask = torch.tensor([[True, False, True, False, False, False, False]] * 3)
    samples = aenp.ar_sample(model, Task(task.xc, task.yc, task.xt, task.yt, target_mask=mask), 2)
    assert (samples.isnan().any(-1) == ~mask).all()


class Copycat(aenp.CNP):
    """Predicts the mean of the context, nearly without noise: whatever is drawn first, all later draws repeat."""

    def encode(self, task):
        mask = torch.ones_like(task.yc) if task.context_mask is None else task.context_mask[..., None].float()
        return (task.yc * mask).sum(1) / mask.sum(1).clamp(min=1), mask.sum(1)[:, :1]

    def decode(self, state, xt):
        mean, count = state
        raw = torch.where(count > 0, -30.0, 1.0).expand(-1, 1)
        return torch.cat([mean, raw], -1)[:, None].expand(-1, xt.shape[1], -1)


def test_samples_are_coherent():
    """Each target sees those drawn before it: within a sample all are alike, between samples they differ."""
    model = Copycat(1, 1)
    task = Task(torch.zeros(1, 0, 1), torch.zeros(1, 0, 1), torch.linspace(0, 1, 6).view(1, 6, 1))
    samples = aenp.ar_sample(model, task, 50)[:, 0, :, 0]
    assert samples.std(dim=1).max() < 0.01 and samples.mean(dim=1).std() > 0.5


class Kinds(aenp.CNP):
    """Predicts the mean of the context points with the target's covariate, nearly without noise if there are any."""

    def encode(self, task):
        return task

    def decode(self, state, xt, covariates=None):
        alike = (covariates == state.context_covariates.mT).float()
        if state.context_mask is not None:
            alike = alike * state.context_mask[:, None]
        count = alike.sum(-1, keepdim=True)
        return torch.cat([alike @ state.yc / count.clamp(min=1), torch.where(count > 0, -30.0, 1.0)], -1)


def test_samples_take_their_covariates_along():
    """Targets of one kind repeat what was drawn first for that kind."""
    kinds = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 0.0]).view(1, 6, 1)
    task = Task(
        torch.zeros(1, 0, 1),
        torch.zeros(1, 0, 1),
        torch.linspace(0, 1, 6).view(1, 6, 1),
        context_covariates=kinds[:, :0],
        target_covariates=kinds,
    )
    samples = aenp.ar_sample(Kinds(1, 1, dim_covariates=1), task, 50)[:, 0, :, 0]
    for kind in (0, 1):
        assert samples[:, kinds.flatten() == kind].std(dim=1).max() < 0.01
    assert (samples[:, 0] - samples[:, 1]).std() > 0.5


class GaussianProcess(aenp.CNP):
    """The exact predictions of a Gaussian process with kernel exp(−|x − x'|² / 2ℓ²) and noise."""

    lengthscale, noise = 0.5, 0.1

    def covariance(self, a, b):
        return torch.exp(-torch.cdist(a, b).square() / (2 * self.lengthscale**2))

    def encode(self, task):
        return task

    def decode(self, state, xt):
        noisy = self.noise**2 * torch.eye(state.xc.shape[1], dtype=state.xc.dtype)
        cross = self.covariance(xt, state.xc)
        weights = torch.linalg.solve(self.covariance(state.xc, state.xc) + noisy, cross.mT).mT
        variance = 1 + self.noise**2 - (weights * cross).sum(-1, keepdim=True)
        stddev = variance.clamp(min=1e-4).sqrt()
        return torch.cat([weights @ state.yc.to(weights), torch.expm1(stddev - self.likelihood.min_scale).log()], -1)


def gaussian_samples(lengthscale, **options):
    """Many samples at scattered places given two observations, and the mean and covariance that they should have."""
    model = GaussianProcess(1, 1)
    model.lengthscale = lengthscale
    torch.manual_seed(0)
    xc, xt = torch.tensor([[[0.3], [2.1]]]).double(), 4 * torch.rand(1, 40, 1).double()
    task = Task(xc, torch.tensor([[[1.0], [-1.0]]]).double(), xt)
    samples = aenp.ar_sample(model, task, 3000, **options)[:, 0, :, 0]
    noisy = model.noise**2 * torch.eye(2).double()
    weights = model.covariance(xt, xc) @ torch.linalg.inv(model.covariance(xc, xc) + noisy)
    covariance = model.covariance(xt, xt) - weights @ model.covariance(xc, xt)
    return samples, (weights @ task.yc)[0, :, 0], covariance[0], model.noise**2 * torch.eye(40).double()


@pytest.mark.parametrize("points", [None, 25])
def test_samples_of_a_gaussian_process_have_its_covariance(points):
    """Although several targets are drawn at a time, and the last of them independently."""
    samples, mean, covariance, noise = gaussian_samples(0.5, points=points)
    torch.testing.assert_close(samples.mean(0), mean, rtol=0, atol=0.1)
    torch.testing.assert_close(samples.T.cov(), covariance + noise, rtol=0, atol=0.12)


def test_samples_without_noise_are_smooth_fields():
    samples, mean, covariance, _ = gaussian_samples(1.0, points=20, noise=False)
    torch.testing.assert_close(samples.mean(0), mean, rtol=0, atol=0.1)
    torch.testing.assert_close(samples.T.cov(), covariance, rtol=0, atol=0.12)


def test_samples_are_drawn_from_coarse_to_fine():
    x = torch.tensor([0.0, 0.1, 1.0, 2.1, 3.9, 4.0]).view(1, 6, 1)
    task = Task(x[:, :0], x[:, :0], x)
    assert spread(task, 4).tolist() == [[0, 5, 3, 2]]
    assert spread(Task(x[:, 5:], x[:, 5:], x), 3).tolist() == [[0, 3, 2]]
    masked = Task(x[:, 5:], x[:, 5:], x, target_mask=torch.tensor([[False, True, True, True, False, True]]))
    assert spread(masked, 6).tolist() == [[1, 3, 2, 5, 0, 4]]


def test_samples_are_drawn_at_a_number_of_points():
    with pytest.raises(ValueError, match=r"points, .* must be at least 1; got 0"):
        aenp.ar_sample(build("cnp", 1), random_task(1), 2, points=0)


def test_points_per_unit_of_a_lattice():
    x = torch.cartesian_prod(torch.arange(6) * 0.25 + 0.1, torch.arange(5) * 0.5 - 3)[None].double()
    y = torch.zeros(1, 30, 1)
    assert aenp.points_per_unit(Task(x[:, ::3], y[:, ::3], x, y)) == [4.0, 2.0]
    assert aenp.points_per_unit([Task(x[..., :1], y, x[..., :1], y)]) == 4.0


def test_points_per_unit_of_a_large_lattice_and_of_a_sparse_one():
    x = torch.cartesian_prod(torch.arange(100) * 0.25, torch.arange(100) * 0.25)[None]
    none = torch.zeros(1, 0, 2), torch.zeros(1, 0, 1)
    assert aenp.points_per_unit(Task(*none, x)) == 4.0
    torch.manual_seed(0)
    rounded = (1000 * torch.rand(1, 200, 2).double()).round() / 100
    assert 3 < aenp.points_per_unit(Task(rounded, torch.zeros(1, 200, 1), rounded)) < 10


def test_points_per_unit_needs_points():
    with pytest.raises(ValueError, match="two distinct points"):
        aenp.points_per_unit([])


def test_wavelengths_span_spacing_and_extent():
    x = torch.arange(21.0).view(1, -1, 1) / 2
    assert aenp.wavelengths(Task(x[:, ::2], torch.zeros(1, 11, 1), x)) == (2.0, 20.0)
    covariates = {"context_covariates": torch.ones(1, 11, 3), "target_covariates": torch.ones(1, 21, 3)}
    assert aenp.wavelengths(Task(x[:, ::2], torch.zeros(1, 11, 1), x, **covariates)) == (2.0, 20.0)


def test_points_per_unit_of_scattered_points():
    """About two cells between neighbours: a hundred points in a unit are mostly less than 0.01 apart."""
    torch.manual_seed(0)
    tasks = [Task(torch.rand(2, 50, 1), torch.zeros(2, 50, 1), torch.rand(2, 50, 1)) for _ in range(5)]
    assert 200 < aenp.points_per_unit(tasks) < 1000


@pytest.mark.parametrize("likelihood", [aenp.Normal(min_scale=0.5), aenp.NormalMixture(components=3, min_scale=0.5)])
def test_likelihoods(likelihood, tmp_path):
    torch.manual_seed(0)
    model = aenp.TNP(1, 2, dim=16, heads=2, layers=1, likelihood=likelihood).eval()
    task = random_task(1)
    prediction = model(task)
    assert prediction.mean.shape == prediction.stddev.shape == prediction.log_prob(task.yt).shape == (3, 7, 2)
    assert (prediction.stddev >= 0.5).all()
    y = torch.linspace(-20, 20, 4001)
    density = prediction.log_prob(y.view(-1, 1, 1, 1)).exp()
    torch.testing.assert_close(density.sum(0) * 0.01, torch.ones(3, 7, 2), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close((density * y.view(-1, 1, 1, 1)).sum(0) * 0.01, prediction.mean, rtol=1e-3, atol=1e-3)
    aenp.save(model, tmp_path / "model.safetensors")
    assert torch.equal(aenp.load(tmp_path / "model.safetensors")(task).stddev, prediction.stddev)


def test_components_of_a_mixture_grow_apart():
    """If there are two outcomes, a mixture finds both."""
    torch.manual_seed(0)
    likelihood = aenp.NormalMixture(components=2)
    raw = torch.zeros(1, 1, 6, requires_grad=True)
    y = torch.cat([torch.full((500,), -1.0), torch.full((500,), 1.0)]) + 0.1 * torch.randn(1000)
    optimiser = torch.optim.Adam([raw], lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        (-likelihood(raw).log_prob(y.view(-1, 1, 1, 1)).mean()).backward()
        optimiser.step()
    found = likelihood(raw).component_distribution.mean.flatten()
    torch.testing.assert_close(found, torch.tensor([-1.0, 1.0]), rtol=0, atol=0.05)


def test_the_spacing_is_found_far_from_the_origin_too():
    torch.manual_seed(0)
    near = torch.rand(1, 200, 2, dtype=torch.float64)
    far = near + 1e7
    scale = [aenp.points_per_unit(Task(x, torch.zeros(1, 200, 1), x)) for x in (near, far)]
    assert scale[0] == pytest.approx(scale[1], rel=1e-4)


def test_wavelengths_of_a_context_at_one_place_are_those_of_all_points():
    x = torch.arange(5.0).view(1, -1, 1)
    assert aenp.wavelengths(Task(x[:, :1].expand(1, 3, 1), torch.zeros(1, 3, 1), x)) == (2.0, 8.0)


def test_indistinguishable_points_have_no_spacing():
    x = torch.tensor([[[0.0], [3e-200], [1e-199]]], dtype=torch.float64)
    with pytest.raises(ValueError, match="too close"):
        aenp.points_per_unit(Task(x[:, :0], x[:, :0], x))


@pytest.mark.parametrize(
    "function",
    [aenp.points_per_unit, aenp.wavelengths, aenp.FixedInputs.domain_of, Task.stack],
    ids=lambda f: f.__name__,
)
def test_tasks_of_different_dimensions_are_refused(function):
    with pytest.raises(ValueError, match="same dim_x; got 1 and 2"):
        function([random_task(1), random_task(2)])


@pytest.mark.parametrize("min_scale", [0.0, torch.nan, torch.inf])
def test_the_smallest_scale_is_positive_and_finite(min_scale):
    with pytest.raises(ValueError, match="min_scale must be positive and finite"):
        aenp.Normal(min_scale)


def test_a_likelihood_is_never_in_half_precision():
    """Which cannot hold the squares of 300 or of 0.001."""
    raw, y = torch.tensor([[[100.0, 300.0, 0.0, -9.0]]]), torch.full((1, 1, 2), 0.01)
    torch.testing.assert_close(aenp.Normal()(raw.half()).log_prob(y), aenp.Normal()(raw).log_prob(y))


def test_a_likelihood_needs_all_its_numbers():
    with pytest.raises(ValueError, match="2 numbers for each output in its last dimension; got a tensor of shape"):
        aenp.Normal()(torch.zeros(1, 4, 3))


def test_scores_refuse_unsupported_predictions_and_values():
    y = torch.zeros(4)
    for score in (crps, lambda prediction, y: covered(prediction, y, 0.9)):
        with pytest.raises(ValueError, match="must have a cdf, as those of aenp's likelihoods do; got StudentT"):
            score(torch.distributions.StudentT(3 + y), y)
        with pytest.raises(ValueError, match=r"the prediction's shape \(4,\) and finite values; got shape \(2, 4\)"):
            score(torch.distributions.Normal(y, 1.0), y.expand(2, 4))
        with pytest.raises(ValueError, match="1 of its values not finite"):
            score(torch.distributions.Normal(y, 1.0), torch.tensor([0.0, torch.nan, 1.0, 2.0]))
    for level in (-0.1, 1.5, torch.nan):
        with pytest.raises(ValueError, match="level is a probability"):
            covered(torch.distributions.Normal(y, 1.0), y, level)


def test_an_equivariance_error_needs_a_target():
    task = random_task(1)
    none = Task(task.xc, task.yc, task.xt, target_mask=torch.zeros(3, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match="at least one target point that is not masked"):
        equivariance_error(build("cnp", 1), none, Translation(1).element(1.0))
