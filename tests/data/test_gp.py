from itertools import islice

import pytest
import torch
from torch.utils.data import DataLoader

from aenp.data import GibbsTasks, Stream
from aenp.data.gp import gibbs


def same(a, b):
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("xc", "yc", "xt", "yt", "context_mask"))


def kernel(x, short_left):
    """The covariance of y, point by point from its definition."""
    scale = [0.1 if (value < 0) == short_left else 4.0 for value in x]
    rows = [
        [
            (2 * a * b / (a**2 + b**2)) ** 0.5 * torch.exp(-((p - q) ** 2) / (a**2 + b**2))
            for b, q in zip(scale, x, strict=True)
        ]
        for a, p in zip(scale, x, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64) + 0.04 * torch.eye(len(x), dtype=torch.float64)


def test_a_batch_is_a_function_of_seed_and_index():
    source = GibbsTasks()
    first = source.batch(16, index=3, seed=5)
    assert same(first, GibbsTasks().batch(16, index=3, seed=5))
    assert same(first, source.batch_with_truth(16, index=3, seed=5)[0])
    assert not torch.equal(first.xt, source.batch(16, index=5, seed=3).xt)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # where there are fewer cores than workers
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_workers_do_not_change_the_stream(workers):
    source = GibbsTasks(num_targets=5)
    loader = DataLoader(Stream(source, 4, seed=1, start=2), batch_size=None, num_workers=workers)
    for index, task in enumerate(islice(loader, 7)):
        assert same(task, source.batch(4, index + 2, seed=1))


def test_shapes_and_dtypes():
    task, short_left = GibbsTasks().batch_with_truth(16, index=0, seed=0)
    count = task.context_mask.sum(1)
    assert task.xc.shape == task.yc.shape == (16, int(count.max()), 1) and task.xt.shape == task.yt.shape == (
        16,
        128,
        1,
    )
    assert len(count.unique()) > 1 and count.min() >= 1
    assert {value.dtype for value in (task.xc, task.yc, task.xt, task.yt)} == {torch.float32}
    assert short_left.shape == (16,) and short_left.dtype == torch.bool


def test_equal_sizes_need_no_padding():
    tasks = [GibbsTasks(equal_sizes=True, num_targets=1).batch(16, index, seed=0) for index in range(200)]
    assert all(task.context_mask is None for task in tasks)
    counts = torch.tensor([task.xc.shape[1] for task in tasks], dtype=torch.float32)
    assert 1 <= counts.min() < 5 and 60 < counts.max() <= 64
    assert abs(counts.mean() - 32.5) < 5 * (64**2 / 12 / 200) ** 0.5


@pytest.mark.parametrize("centre", [(-7.0, 7.0), (13.0, 27.0)])
def test_inputs_are_drawn_as_described(centre):
    source = GibbsTasks(centre, num_targets=16)
    batches = [source.batch_with_truth(1024, index, seed=0) for index in range(4)]
    counts = torch.cat([task.context_mask.sum(1) for task, _ in batches])
    expected = len(counts) / 64
    assert ((counts.bincount(minlength=65)[1:] - expected).abs() < 5 * expected**0.5).all() and counts.max() == 64
    middles = torch.cat([task.xt.mean(1) for task, _ in batches])
    half = (centre[1] - centre[0]) / 2
    assert abs(middles.mean() - sum(centre) / 2) < 5 * half / (3 * len(middles)) ** 0.5
    assert middles.var().item() == pytest.approx(half**2 / 3 + 3 / 16, rel=0.05)
    offsets = torch.cat([(task.xc - task.xt.mean(1, keepdim=True))[task.context_mask] for task, _ in batches])
    assert offsets.var().item() == pytest.approx(4 / 3 + 3 / 16, rel=0.05)
    orientation = torch.cat([short_left for _, short_left in batches]).float().mean()
    assert abs(orientation - 0.5) < 5 * 0.5 / len(counts) ** 0.5


def test_targets_reach_one_unit_beyond_the_context():
    source = GibbsTasks(centre=(2.0, 2.0), num_context=(64, 64))
    task = source.batch(256, index=0, seed=0)
    assert task.context_mask is None
    for x, low, high in ((task.xc, 0, 4), (task.xt, -1, 5)):
        assert low <= x.min() < low + 0.01 and high - 0.01 < x.max() <= high


def test_kernel_against_its_definition():
    source, x = GibbsTasks(), torch.linspace(-1, 1, 9, dtype=torch.float64)
    for short_left in (True, False):
        scale = source.lengthscale(x < 0, torch.tensor(short_left))
        found = gibbs(x, scale, x, scale) + 0.04 * torch.eye(9, dtype=torch.float64)
        torch.testing.assert_close(found, kernel(x, short_left), rtol=0, atol=1e-12)


@pytest.mark.parametrize("short_left", [True, False])
def test_covariance_of_samples(short_left):
    """Over draws of y at the same inputs the covariance is k(x, x) + noise² I, within five standard errors."""
    x, draws = torch.tensor([-3.0, -0.3, -0.2, -0.05, 0.0, 0.05, 0.2, 0.3, 3.0]), 20_000
    normals = torch.randn(draws, len(x), generator=torch.Generator().manual_seed(0))
    y = GibbsTasks().sample(x.expand(draws, -1), torch.tensor([short_left]).expand(draws), normals).double()
    expected = kernel(x.double(), short_left)
    error = ((1.04**2 + expected**2) / draws) ** 0.5
    assert ((y.T @ y / draws - expected).abs() < 5 * error).all()
    assert (y.mean(0).abs() < 5 * (1.04 / draws) ** 0.5).all()


def test_outputs_belong_to_their_inputs():
    """Whitened with the covariance of its own inputs and orientation, a task is standard normal; with another, not."""
    source = GibbsTasks(centre=(-1.0, 1.0), num_context=(8, 8), num_targets=16)
    task, short_left = source.batch_with_truth(64, index=0, seed=0)
    squares = {True: [], False: []}
    x, y = (torch.cat(pair, dim=1).double() for pair in ((task.xc, task.xt), (task.yc, task.yt)))
    for i, left in enumerate(short_left.tolist()):
        for right in (True, False):
            factor = torch.linalg.cholesky(kernel(x[i, :, 0], left == right))
            squares[right].append(torch.linalg.solve_triangular(factor, y[i], upper=False).square())
    true, false = (torch.cat(squares[right]) for right in (True, False))
    assert abs(true.mean() - 1) < 5 * (2 / len(true)) ** 0.5 and false.mean() > 2


def test_float32_is_precise_enough():
    generator = torch.Generator().manual_seed(0)
    x, normals = 6 * torch.rand(16, 192, generator=generator) - 3, torch.randn(16, 192, generator=generator)
    short_left = torch.arange(16) < 8
    single = GibbsTasks().sample(x, short_left, normals)
    double = GibbsTasks().sample(x.double(), short_left, normals.double())
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-4)
