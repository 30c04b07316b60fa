import numpy as np
import pytest
import torch

from aenp import Task
from aenp.data import GibbsTasks
from aenp.experiments.gp import oracles

SOURCE = GibbsTasks()
SMALL = GibbsTasks(num_context=(1, 16), num_targets=16)
ORACLES = {
    "ground_truth": lambda task: oracles.ground_truth(SOURCE, task, torch.arange(len(task)) % 2 == 0),
    "bayes": lambda task: oracles.bayes(SOURCE, task),
    "equivariant": lambda task: oracles.equivariant(SOURCE, task),
}


def dyadic_task(contexts, start, seed=0):
    """A task on multiples of 1/64 within four units of `start`: these are edges of a grid with that spacing."""
    torch.manual_seed(seed)
    xc, xt = (start + torch.randint(4 * 64, (count,)) / 64 for count in (contexts, 6))
    xt[:2] = torch.tensor([start - 0.5, start + 4.5])
    return Task(*(value.double().view(1, -1, 1) for value in (xc, torch.randn(contexts), xt, torch.randn(6))))


def regress(task, target, short_left, change=0.0):
    """log p(y_c), mean and variance of y at one target, from the textbook's formulas."""
    x = torch.cat([task.xc[0, :, 0], task.xt[0, target]]).numpy() - change
    y = task.yc[0, :, 0].numpy()
    scale = np.where((x < 0) == short_left, 0.1, 4.0)
    squares = scale[:, None] ** 2 + scale**2
    joint = (2 * np.outer(scale, scale) / squares) ** 0.5 * np.exp(-((x[:, None] - x) ** 2) / squares)
    joint += 0.04 * np.eye(len(x))
    solved = np.linalg.solve(joint[:-1, :-1], np.stack([y, joint[-1, :-1]], axis=1))
    evidence = -0.5 * y @ solved[:, 0] - 0.5 * np.linalg.slogdet(2 * np.pi * joint[:-1, :-1])[1]
    return evidence, joint[-1, :-1] @ solved[:, 0], joint[-1, -1] - joint[-1, :-1] @ solved[:, 1]


def assert_mixture(prediction, task, target, parts):
    """The prediction at one target is the mixture of the Normals with the given weights, means and variances."""
    weight, mean, variance = np.array(parts).T
    weight = weight / weight.sum()
    y = task.yt[0, target].item()
    density = weight @ (np.exp(-((y - mean) ** 2) / (2 * variance)) / (2 * np.pi * variance) ** 0.5)
    expected = np.log(density), weight @ mean, (weight @ (variance + mean**2) - (weight @ mean) ** 2) ** 0.5
    found = prediction.log_prob(task.yt), prediction.mean, prediction.stddev
    assert [value[0, target, 0].item() for value in found] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("start", [-9.0, -2.5, 0.25, 13.0])
def test_known_position_against_plain_formulas(start):
    task = dyadic_task(12, start)
    either = oracles.bayes(SOURCE, task)
    known = {left: oracles.ground_truth(SOURCE, task, torch.tensor([left])) for left in (True, False)}
    for target in range(6):
        parts = {left: regress(task, target, left) for left in (True, False)}
        for left, (_, mean, variance) in parts.items():
            assert_mixture(known[left], task, target, [(1.0, mean, variance)])
        weighted = [(np.exp(evidence), mean, variance) for evidence, mean, variance in parts.values()]
        assert_mixture(either, task, target, weighted)


@pytest.mark.parametrize(("contexts", "start"), [(1, 0.0), (3, -2.0), (5, 20.0)])
def test_unknown_position_against_quadrature(contexts, start):
    """A sum over a fine grid of change points z. The prior of each, up to a factor, is the length of the range of
    centres within 7 of z whose intervals hold context and target."""
    task, step = dyadic_task(contexts, start), 1 / 64
    prediction = oracles.equivariant(SOURCE, task)
    x = task.xc[0, :, 0].numpy()
    for target in range(6):
        xt = task.xt[0, target].item()
        low, high = max(x.max() - 2, xt - 3), min(x.min() + 2, xt + 3)
        parts = []
        for z in np.arange(low - 7 + step / 2, high + 7, step):
            prior = min(high, z + 7) - max(low, z - 7)
            for left in (True, False):
                evidence, mean, variance = regress(task, target, left, change=z)
                parts.append((prior * np.exp(evidence), mean, variance))
        assert_mixture(prediction, task, target, parts)


@pytest.mark.parametrize("name", ORACLES)
def test_masked_points_are_ignored(name):
    task, _ = SOURCE.batch_with_truth(4, index=0, seed=0)
    whole = ORACLES[name](task)
    for i, one in enumerate(task):
        seen = task.context_mask[i]
        own = Task(one.xc[:, seen], one.yc[:, seen], one.xt, one.yt)
        alone = ORACLES[name](Task.stack([own, own]))
        for value, expected in ((alone.mean, whole.mean), (alone.log_prob(one.yt), whole.log_prob(task.yt))):
            torch.testing.assert_close(value[i % 2], expected[i], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ORACLES)
def test_without_context_the_prediction_is_the_prior(name):
    task = SMALL.batch(3, index=0, seed=0)
    empty = Task(task.xc[:, :0], task.yc[:, :0], task.xt, task.yt)
    masked = Task(task.xc, task.yc, task.xt, task.yt, context_mask=torch.zeros_like(task.context_mask))
    for one in (empty, masked):
        prediction = ORACLES[name](one)
        assert prediction.mean.dtype == torch.float64 and prediction.mean.shape == (3, 16, 1)
        torch.testing.assert_close(prediction.mean, torch.zeros_like(prediction.mean))
        torch.testing.assert_close(prediction.variance, torch.full_like(prediction.mean, 1.04))


def test_equivariant_to_shifts_and_reflections():
    task = SOURCE.batch(4, index=0, seed=0).to(torch.float64)
    mirrored = Task(-task.xc, task.yc, -task.xt, task.yt, task.context_mask)
    expected = oracles.equivariant(SOURCE, task).log_prob(task.yt)
    for moved in (task.shift(20.0), task.shift(-3.3), mirrored):
        torch.testing.assert_close(oracles.equivariant(SOURCE, moved).log_prob(task.yt), expected, rtol=1e-8, atol=1e-8)
    shifted = oracles.bayes(SOURCE, task.shift(-3.3)).log_prob(task.yt)
    assert (shifted - oracles.bayes(SOURCE, task).log_prob(task.yt)).abs().max() > 0.1


def test_knowing_more_scores_higher():
    """In expectation: orientation and position known ≥ position known ≥ neither known ≥ neither, with a Normal."""
    scores = [[] for _ in range(5)]
    for index in range(8):
        task, short_left = SMALL.batch_with_truth(64, index, seed=0)
        either, anywhere = oracles.bayes(SOURCE, task), oracles.equivariant(SOURCE, task)
        truth = oracles.ground_truth(SOURCE, task, short_left)
        predictions = (truth, either, oracles.as_normal(either), anywhere, oracles.as_normal(anywhere))
        for score, prediction in zip(scores, predictions, strict=True):
            score.append(prediction.log_prob(task.yt).mean((1, 2)))
    known, either, either_normal, anywhere, anywhere_normal = map(torch.cat, scores)
    for better, worse in (
        (known, either),
        (either, either_normal),
        (either, anywhere),
        (anywhere, anywhere_normal),
        (either_normal, anywhere_normal),
    ):
        gain = better - worse
        assert gain.mean() > 3 * gain.std() / len(gain) ** 0.5


@pytest.mark.parametrize("name", ["bayes", "equivariant"])
def test_uncertainty_is_calibrated(name):
    """Over tasks from the source, E[(y − μ)² / σ²] = 1: the weights of the mixture are those of the source."""
    squares = []
    for index in range(8):
        task = SMALL.batch(64, index, seed=1)
        prediction = ORACLES[name](task)
        squares.append(((task.yt - prediction.mean) ** 2 / prediction.variance).mean((1, 2)))
    squares = torch.cat(squares)
    assert abs(squares.mean() - 1) < 3 * squares.std() / len(squares) ** 0.5


def test_as_normal_keeps_mean_and_variance():
    task = SOURCE.batch(2, index=0, seed=0)
    mixture = oracles.bayes(SOURCE, task)
    normal = oracles.as_normal(mixture)
    torch.testing.assert_close(normal.mean, mixture.mean)
    torch.testing.assert_close(normal.variance, mixture.variance)


def test_invalid_arguments_raise():
    x = torch.zeros(1, 2, 1)
    with pytest.raises(ValueError, match="must cover"):
        oracles.equivariant(GibbsTasks(centre=(13.0, 27.0)), Task(x, x, x))
    with pytest.raises(ValueError, match="dim_x = dim_y = 1"):
        oracles.bayes(SOURCE, Task(x.expand(1, 2, 2), x, x.expand(1, 2, 2)))


def test_equal_inputs_may_have_unequal_outputs():
    """A gap without width holds no change point, however well that would explain the data."""
    xc, yc, xt = (torch.tensor(v).double().view(1, -1, 1) for v in ((0.5, 0.5, 1.5), (5.0, -5.0, 0.0), (0.4, 0.7, 2.0)))
    prediction = oracles.equivariant(SOURCE, Task(xc, yc, xt))
    assert torch.isfinite(prediction.mean).all() and torch.isfinite(prediction.stddev).all()
