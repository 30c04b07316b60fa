"""Other ways to break a symmetry as special cases of fixed inputs (appendix C).

On the line, u and v are cells, and u⁻¹v is v − u.
"""

import pytest
import torch
from torch import Tensor

from aenp import FixedInputs
from aenp.nn.convolution import Level, RelaxedConvolution

CELLS, KERNEL = 24, 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def within(values: Tensor, margin: int = 6) -> Tensor:
    """The values `(cells, channels)` with zeros near both ends, so that nothing is lost by a shift."""
    inside = torch.zeros_like(values)
    inside[margin:-margin] = values[margin:-margin]
    return inside


def relaxed(kernels: Tensor) -> RelaxedConvolution:
    """The layer with the kernels k_l `(L, cells)` whose fixed inputs are the functions t_l themselves."""
    count, size = kernels.shape
    layer = RelaxedConvolution(1, 1, 1, size, kernels=count, num=count).double()
    with torch.no_grad():
        layer.weight.copy_(kernels)
        layer.modulate.weight.copy_(torch.eye(count))
    return layer


@torch.no_grad()
def apply(layer: RelaxedConvolution, f: Tensor, t: Tensor) -> Tensor:
    """E(f, t) of functions `(cells,)` and `(cells, L)` of the line."""
    mask = torch.ones(1, len(f), 1, dtype=f.dtype)
    return layer(f[None, :, None], Level(mask, t[None]))[0, :, 0]


def offsets(size: int) -> range:
    return range(-(size // 2), size // 2 + 1)


def test_relaxed_group_convolutions_are_equivariant_maps_of_weights_as_fixed_inputs() -> None:
    """Wang et al. (2022): Σ_v Σ_l f(v) w_l(v) k_l(u⁻¹v), with w_l = 1 + t_l."""
    f, w, k = random(CELLS), random(CELLS, 3, seed=1), random(3, KERNEL, seed=2)
    expected = torch.zeros_like(f)
    for u in range(CELLS):
        for i, step in enumerate(offsets(KERNEL)):
            if 0 <= (v := u + step) < CELLS:
                expected[u] += f[v] * (w[v] * k[:, i]).sum()
    torch.testing.assert_close(apply(relaxed(k), f, w - 1), expected, rtol=0, atol=1e-12)


def test_non_stationary_kernels_are_relaxed_convolutions_with_a_fixed_input_for_each_offset() -> None:
    """Van der Ouderaa et al. (2022): Σ_v k(v⁻¹u, v) f(v), where every place v has a kernel of its own.

    Since k(d, v) = Σ_l δ(d − d_l) k(d_l, v), kernels that are one at a single offset and weights k(d_l, ·) are enough.
    """
    f, k = random(CELLS), random(CELLS, KERNEL, seed=1)
    expected = torch.zeros_like(f)
    for u in range(CELLS):
        for i, step in enumerate(offsets(KERNEL)):
            if 0 <= (v := u - step) < CELLS:
                expected[u] += k[v, i] * f[v]
    deltas = torch.eye(KERNEL, dtype=torch.float64).flip(1)  # the layer looks at v − u, the kernel at u − v
    torch.testing.assert_close(apply(relaxed(deltas), f, k - 1), expected, rtol=0, atol=1e-12)


def test_kernels_of_low_rank_need_as_few_fixed_inputs_as_their_rank() -> None:
    """By a singular value decomposition, k(d, v) = Σ_l w_l(v) k_l(d) with as many terms as k has rank."""
    f, k = random(CELLS), random(CELLS, 2, seed=1) @ random(2, KERNEL, seed=2)
    w, sizes, kernels = torch.linalg.svd(k, full_matrices=False)
    few = relaxed((sizes[:2, None] * kernels[:2]).flip(1))
    every = relaxed(torch.eye(KERNEL, dtype=torch.float64).flip(1))
    torch.testing.assert_close(apply(few, f, w[:, :2] - 1), apply(every, f, k - 1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shift", [1, -4])
def test_outputs_move_with_function_and_fixed_inputs_and_not_with_the_function_alone(shift: int) -> None:
    f, t = within(random(CELLS, 1))[:, 0], within(random(CELLS, 3, seed=1))
    layer = relaxed(random(3, KERNEL, seed=2))
    moved = apply(layer, f, t).roll(shift)
    torch.testing.assert_close(apply(layer, f.roll(shift), t.roll(shift, 0)), moved, rtol=0, atol=1e-12)
    assert (apply(layer, f.roll(shift), t) - moved).abs().max() > 0.1


def test_fixed_inputs_learn_a_known_non_stationary_operator() -> None:
    """(T f)(u) = Σ_v k(v − u) w(v) f(v): the layer learns T, which no convolution can, and 1 + t learns w."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 64)
    w, k = 1 + 0.8 * torch.sin(3 * x), torch.tensor([[0.25, 1.0, 0.5]])
    fixed = FixedInputs(1, num=1, domain=[(-1, 1)], dropout=0.0, width=32)
    layer = RelaxedConvolution(1, 1, 1, 3, kernels=1, num=1)
    mask = torch.ones(1, 64, 1)

    def error(f: Tensor, t: Tensor) -> Tensor:
        truth = torch.nn.functional.conv1d((w * f)[:, None], k[:, None], padding=1)[:, 0]
        found = layer(f[..., None], Level(mask, t.expand(len(f), -1, -1)))[..., 0]
        return (found - truth).square().mean() / truth.square().mean()

    optimiser = torch.optim.Adam([*layer.parameters(), *fixed.parameters()], lr=1e-2)
    for _ in range(300):
        optimiser.zero_grad()
        error(torch.randn(32, 64), fixed(x[None, :, None])).backward()
        optimiser.step()
    with torch.no_grad():
        t, test = fixed(x[None, :, None]), torch.randn(256, 64)
        learned = 1 + layer.modulate(t)[0, :, 0]
        best_convolution = 1 - w.mean().square() / w.square().mean()
        assert error(test, t) < 0.02 < 0.2 < best_convolution
    assert torch.corrcoef(torch.stack([learned, w]))[0, 1] > 0.99  # up to a factor, which is the kernel's
