"""Muon: matrices move in orthogonal directions, and everything else as AdamW moves it."""

import pytest
import torch

from aenp.training.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(16, 16), (16, 400), (200, 32)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape) * torch.tensor([1e-6, 1.0, 1e6])[:, None, None]
    made = orthogonal(matrices)
    for matrix, result in zip(matrices.double(), made.double(), strict=True):
        left, _, right = torch.linalg.svd(matrix, full_matrices=False)
        values = torch.linalg.svdvals(result)
        assert values.min() > 0.5 and values.max() < 1.3
        overlap = ((left @ right) * result).sum() / values.sum()
        assert overlap > 0.99


def test_zero_gradients_change_nothing() -> None:
    assert torch.equal(orthogonal(torch.zeros(2, 16, 20)), torch.zeros(2, 16, 20))


def test_the_first_step_follows_the_gradient_and_is_as_large_as_adams() -> None:
    """Kernels are flattened to matrices, and matrices of one shape are treated each by itself."""
    torch.manual_seed(0)
    kernels = [torch.nn.Parameter(torch.randn(32, 16, 5, 5)) for _ in range(2)]
    before = [kernel.detach().clone() for kernel in kernels]
    optimiser = Muon([{"params": kernels, "weight_decay": 0.5, "orthogonal": True}], lr=0.1)
    for kernel, scale in zip(kernels, (1.0, 1e-3), strict=True):
        kernel.grad = scale * torch.randn_like(kernel)
    optimiser.step()
    for kernel, old in zip(kernels, before, strict=True):
        moved = (kernel.detach() - (1 - 0.1 * 0.5) * old) / -0.1
        expected = orthogonal(kernel.grad.flatten(1)[None])[0].view_as(kernel)  # type: ignore[union-attr]
        torch.testing.assert_close(moved, 0.2 * 400**0.5 * expected, rtol=1e-3, atol=1e-4)
        assert 0.1 < moved.square().mean().sqrt() < 0.3


def test_momentum_averages_gradients_and_looks_ahead() -> None:
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.zeros(16, 20))
    optimiser = Muon([{"params": [matrix], "weight_decay": 0.0, "orthogonal": True}], lr=1.0, momentum=0.75)
    first, second = torch.randn(2, 16, 20)
    for gradient in (first, second):
        before = matrix.detach().clone()
        matrix.grad = gradient
        optimiser.step()
    momentum = 0.75 * 0.25 * first + 0.25 * second
    expected = orthogonal((0.25 * second + 0.75 * momentum)[None])[0] * -0.2 * 20**0.5
    torch.testing.assert_close(matrix.detach() - before, expected, rtol=1e-4, atol=1e-5)


def test_other_parameters_are_trained_as_by_adamw() -> None:
    torch.manual_seed(0)
    start = [torch.randn(5, 3), torch.randn(7)]
    ours, theirs = ([torch.nn.Parameter(value.clone()) for value in start] for _ in range(2))
    muon = Muon([{"params": ours, "weight_decay": 0.1}], lr=0.01)
    adam = torch.optim.AdamW(theirs, lr=0.01, weight_decay=0.1)
    for _ in range(20):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        muon.step()
        adam.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_parameters_without_gradients_do_not_change() -> None:
    used, unused = (torch.nn.Parameter(torch.ones(16, 16)) for _ in range(2))
    optimiser = Muon([{"params": [used, unused], "weight_decay": 0.1, "orthogonal": True}], lr=0.1)
    used.grad = torch.eye(16)
    optimiser.step()
    assert torch.equal(unused, torch.ones(16, 16)) and not torch.equal(used, torch.ones(16, 16))
