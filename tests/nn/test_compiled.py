"""What is compiled computes what PyTorch computes, up to round-off, and only where there are no gradients."""

from collections.abc import Callable

import pytest
import torch
from torch.distributions import Distribution

import aenp
from aenp import KrigingNP, Task
from aenp.nn import compiled
from aenp.nn.vecchia import profile, spacing

built = pytest.mark.skipif(compiled.library is None, reason="needs a C compiler")


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple]:
    """Calls a function twice: with what is compiled, and without."""

    def call(function: Callable, *arguments: object) -> tuple:
        with torch.no_grad(), monkeypatch.context() as patch:
            fast = function(*arguments)
            patch.setattr(compiled, "library", None)
            return fast, function(*arguments)

    return call


def points(count: int, dim_x: int, batch: int = 2, lattice: bool = False) -> tuple[torch.Tensor, ...]:
    """Places of which two coincide, values, and a mask that leaves some out."""
    generator = torch.Generator().manual_seed(count + dim_x)
    x = 10 * torch.rand(batch, count, dim_x, dtype=torch.float64, generator=generator)
    x = x.round() if lattice else x
    x[:, : count // 5] = x[:, -(count // 5) or count :][:, : count // 5]
    y = torch.randn(batch, count, dtype=torch.float64, generator=generator)
    mask = torch.arange(count) < torch.tensor([[count], [count // 2]])[:batch]
    x = (x - x.mean(dim=1, keepdim=True)) * mask.unsqueeze(-1)
    return x, y * mask, mask


@built
@pytest.mark.parametrize("dim_x", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 40, 300])
@pytest.mark.parametrize("lattice", [False, True])
def test_likelihoods_and_spacings_are_those_of_torch(
    both: Callable[..., tuple], dim_x: int, count: int, lattice: bool
) -> None:
    x, y, mask = points(count, dim_x, lattice=lattice)
    torch.testing.assert_close(*both(spacing, x, mask), rtol=1e-14, atol=0)
    covariates = torch.randn(*y.shape, 2, dtype=y.dtype) * mask.unsqueeze(-1)
    for each in (None, covariates):
        torch.testing.assert_close(*both(profile, x, y, mask, each), rtol=1e-8, atol=1e-8)


@built
@pytest.mark.parametrize("exponent", [1e-9, 1e-3, 0.1, 1.0, 41.0, 59.0, 1e3])
def test_correlations_are_exact(both: Callable[..., tuple], exponent: float) -> None:
    """At any distance, to the last digits."""
    x = exponent * torch.linspace(0, 1, 300, dtype=torch.float64)[None, :, None]
    for smoothness in (0.5, 1.5, 2.5, float("inf")):
        cov, one = torch.zeros(1, 300, 300, dtype=x.dtype), torch.ones(1, 1, dtype=x.dtype)
        compiled.add_covariances(cov, x, x, (smoothness,), one, one, False)
        expected = aenp.nn.matern.matern((x - x.mT).abs(), smoothness)
        torch.testing.assert_close(cov, expected, rtol=2e-14, atol=0)


def assert_same(fast: Distribution, plain: Distribution, tolerance: float = 1e-9) -> None:
    for value, expected in ((fast.mean, plain.mean), (fast.stddev, plain.stddev)):
        torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@built
@pytest.mark.parametrize("dim_x", [1, 2, 3])
@pytest.mark.parametrize(("count", "window"), [(0, 256), (1, 256), (30, 256), (60, 20)])
@pytest.mark.parametrize("dim_covariates", [0, 1])
def test_predictions_are_those_of_torch(
    both: Callable[..., tuple], dim_x: int, count: int, window: int, dim_covariates: int
) -> None:
    """Whole and in cells, with masks, several outputs, covariates and none."""
    torch.manual_seed(0)
    model = KrigingNP(dim_x, 2, dim=16, window=window, dim_covariates=dim_covariates).double().eval()
    x = torch.rand(2, count + 9, dim_x, dtype=torch.float64)
    y = torch.randn(2, count, 2, dtype=x.dtype)
    y[0, : count // 4] = torch.nan
    known = torch.randn(2, count + 9, 1, dtype=x.dtype) if dim_covariates else None
    at = (None, None) if known is None else (known[:, :count], known[:, count:])
    task = Task(x[:, :count], y, x[:, count:], context_covariates=at[0], target_covariates=at[1])
    assert_same(*both(model, task))


@built
@pytest.mark.parametrize("count", [5, 100, 600])
def test_predictions_of_the_base_model_are_those_of_torch(both: Callable[..., tuple], count: int) -> None:
    x = torch.rand(1, count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (5 * x).sin().sum(dim=-1, keepdim=True) + 0.1 * torch.cos(1e3 * x[..., :1])
    model = aenp.pretrained("base/krigingnp-exact").double()
    assert_same(*both(aenp.predict, model, Task(x, y, x + 0.01)), 1e-8)


def test_gradients_flow_as_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the loss that they are of is bit for bit the same."""
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        model, x = KrigingNP(2, 1, dim=16), torch.rand(2, 30, 2)
        loss = -aenp.loglik(model, Task(x[:, :20], x[:, :20, :1].sin(), x[:, 20:], x[:, 20:, :1].sin())).mean()
        loss.backward()
        found.append([loss.detach(), *(each.grad for each in model.parameters())])
        monkeypatch.setattr(compiled, "library", None)
    assert all(each is not None and torch.equal(each, other) for each, other in zip(*found, strict=True))
