"""Other ways to break a symmetry as special cases of fixed inputs (appendix C).

On the line, u and v are cells, and u⁻¹v is v − u.
"""

import pytest
import torch
from torch import Tensor

from aenp import FixedInputs
from aenp.nn.convolution import Level, RelaxedConvolution
from aenp.symmetry import D

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


X = torch.linspace(-1, 1, 64)
"The places of the operators to learn."


def weighted() -> Tensor:
    """Wang et al. (2022): one kernel, times a weight that depends on the place."""
    return (1 + 0.8 * torch.sin(3 * X))[:, None] * torch.tensor([0.0, 0.25, 1.0, 0.5, 0.0])


def moving() -> Tensor:
    """Van der Ouderaa et al. (2022): kernels that move f to the left or to the right, depending on the place."""
    return torch.exp(-2 * (torch.arange(-2.0, 3.0) - 1.5 * torch.sin(3 * X)[:, None]).square())


@pytest.mark.parametrize(("kernels", "count"), [(weighted(), 1), (moving(), KERNEL)], ids=["weighted", "moving"])
def test_fixed_inputs_learn_a_known_non_stationary_operator(kernels: Tensor, count: int) -> None:
    """(T f)(u) = Σ_v k(v⁻¹u, v) f(v), which no convolution can be: the best one has the mean of all kernels."""
    torch.manual_seed(0)
    fixed = FixedInputs(1, num=count, domain=[(-1, 1)], dropout=0.0, width=32)
    layer = RelaxedConvolution(1, 1, 1, KERNEL, kernels=count, num=count)
    mask, places = torch.ones(1, len(X), 1), range(len(X))
    operator = torch.zeros(len(X), len(X))
    for v in places:
        for i, step in enumerate(offsets(KERNEL)):
            if (u := v + step) in places:
                operator[u, v] = kernels[v, i]

    def error(f: Tensor) -> Tensor:
        t, truth = fixed(X[None, :, None]).expand(len(f), -1, -1), f @ operator.T
        found = layer(f[..., None], Level(mask, t))[..., 0]
        return (found - truth).square().mean() / truth.square().mean()

    optimiser = torch.optim.Adam([*layer.parameters(), *fixed.parameters()], lr=1e-2)
    for _ in range(300):
        optimiser.zero_grad()
        error(torch.randn(32, len(X))).backward()
        optimiser.step()
    best_convolution = 1 - kernels.mean(0).square().sum() / kernels.square().sum(1).mean()
    with torch.no_grad():
        assert error(torch.randn(256, len(X))) < 0.05 < 0.2 < best_convolution


def group_tables() -> tuple[Tensor, Tensor]:
    """The numbers of u v and of u⁻¹ in D(4), which does not commute, for all its elements u and v."""
    elements = torch.stack([element.matrix for element in D(4).elements()])
    products = torch.einsum("uij,vjk->uvik", elements, elements)
    times = (products.unsqueeze(2) - elements).abs().amax((-1, -2)).argmin(2)
    return times, (times == times[0, 0]).int().argmax(1)


@pytest.mark.parametrize("g", range(8))
def test_on_a_group_both_are_equivariant_maps_of_function_and_fixed_inputs(g: int) -> None:
    """E(f, w)(u) = Σ_v Σ_l f(v) w_l(v) k_l(u⁻¹v), and E(f, t)(u) = Σ_v k(v⁻¹u, t(v)) f(v) with t(v) = v."""
    times, inverse = group_tables()
    f, w, t = random(8), random(3, 8, seed=1), torch.arange(8)
    relaxing, kernel = random(3, 8, seed=2), random(8, 8, seed=3)
    moved = times[inverse[g]]  # (g f)(u) = f(g⁻¹u)

    def relaxed_group(f: Tensor, w: Tensor) -> Tensor:
        return torch.einsum("v,lv,luv->u", f, w, relaxing[:, times[inverse]])

    def input_dependent(f: Tensor, t: Tensor) -> Tensor:
        return (kernel[times[inverse], t[:, None]] * f[:, None]).sum(0)

    for equivariant, fixed in ((relaxed_group, w), (input_dependent, t)):
        expected = equivariant(f, fixed)[moved]
        torch.testing.assert_close(equivariant(f[moved], fixed[..., moved]), expected, rtol=0, atol=1e-12)
        assert g == 0 or (equivariant(f[moved], fixed) - expected).abs().max() > 0.1
