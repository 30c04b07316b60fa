"""The layers that models are made of, against their definitions."""

import pytest
import torch
from torch.nn.functional import conv1d

from aenp.nn import line_convolution, set_convolution
from aenp.nn.convolution import CNN, Convolution, Level, UNet, convolve, double, halve
from aenp.nn.group_convolution import GroupCNN, GroupConvolution, steerable_basis
from aenp.nn.lattice import Lattice, lattice_anchor
from aenp.nn.line_convolution import DirectConvolution, FourierConvolution
from aenp.nn.set_convolution import FromGrid, GaussianRead, ToGrid, distances, gaussian, grid_to_points, points_to_grid
from aenp.nn.spectral import turn
from aenp.symmetry import C, D


def lattice_around(points, spacing, margin=2, stride=1):
    anchor = lattice_anchor(points.mean(1, keepdim=True), points, None, spacing)
    return Lattice.around(anchor, points, None, spacing, margin, stride)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_separable_sums_equal_the_plain_ones(dim_x):
    torch.manual_seed(0)
    x, values = torch.rand(2, 5, dim_x, dtype=torch.float64), torch.randn(2, 5, 3, dtype=torch.float64)
    lattice = lattice_around(x, [0.25, 0.2, 0.5][:dim_x])
    lengthscale = torch.tensor(1.3, dtype=torch.float64)
    away = distances(*lattice.locate(x, x.dtype), lattice.shape)
    weights = [gaussian(distance.square(), -0.5 / lengthscale**2) for distance in away]
    cells = lattice.centres(1).flatten(1, -2)
    steps = x.new_tensor(lattice.spacing)
    squared = ((x.unsqueeze(2) - cells.unsqueeze(1)) / steps).square().sum(-1)
    kernel = torch.exp(-0.5 * squared / lengthscale**2)
    grid = points_to_grid(values, weights)
    assert grid.shape == (2, *lattice.shape, 3)
    torch.testing.assert_close(grid.flatten(1, -2), kernel.transpose(1, 2) @ values)
    torch.testing.assert_close(grid_to_points(grid, weights), kernel @ grid.flatten(1, -2))


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_reading_a_grid_has_the_right_gradients(dim_x):
    torch.manual_seed(0)
    grid = torch.randn(2, *[5, 4, 3][:dim_x], 5, dtype=torch.float64, requires_grad=True)
    cell = torch.randint(3, (2, 4, dim_x)).double()
    offset = (torch.rand(2, 4, dim_x).double() - 0.5).requires_grad_()
    scales = torch.tensor([-0.5, -0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(GaussianRead.apply, (grid, cell, offset, scales))


@pytest.mark.parametrize("kind", [DirectConvolution, FourierConvolution])
@pytest.mark.parametrize("size", [1, 3, 5, 21])
def test_both_convolutions_on_the_line(kind, size):
    """Both are torch's own, and have the right gradients, also where the kernel is wider than the array."""
    torch.manual_seed(0)
    h, weight = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 7, 3), (4, 3, size)))
    expected = conv1d(h.mT, weight, padding=size // 2).mT
    torch.testing.assert_close(kind.apply(h, weight), expected)
    assert torch.autograd.gradcheck(kind.apply, (h, weight))


def test_the_fourier_convolution_is_as_accurate_in_single_precision():
    torch.manual_seed(0)
    h, weight = torch.randn(4, 286, 64), torch.randn(64, 64, 21) / 37
    exact = conv1d(h.mT.double(), weight.double(), padding=10).mT
    assert (FourierConvolution.apply(h, weight) - exact).abs().max() < 5e-6 * exact.abs().max()


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_on_the_grid_points_go_to_their_own_cells_and_back(dim_x):
    torch.manual_seed(0)
    spacing = [0.5, 0.25, 0.2][:dim_x]
    index = torch.stack([torch.randperm(6)[:4] for _ in range(dim_x)], -1)
    x = (index * torch.tensor(spacing, dtype=torch.float64) + 17.3)[None]
    values = torch.randn(1, 4, 2)
    lattice = lattice_around(x, spacing)
    grid = ToGrid(on_grid=True)(lattice, x, values, None)
    back = FromGrid(on_grid=True, lengthscales=1)(lattice, grid, x)
    torch.testing.assert_close(back, torch.cat([torch.ones(1, 4, 1), values], -1), rtol=1e-5, atol=1e-5)
    assert grid[..., 0].sum() == 4 and (grid[..., 0] > 0).sum() == 4
    with pytest.raises(ValueError, match="on_grid=True needs points on a lattice"):
        lattice.check_on(x + 0.2, None)


@pytest.mark.parametrize("dim_x", [1, 2])
def test_a_constant_field_is_preserved(dim_x):
    x = torch.rand(1, 9, dim_x, dtype=torch.float64)
    lattice = lattice_around(x, [0.05] * dim_x, margin=30)
    values = FromGrid(on_grid=False, lengthscales=3)(lattice, torch.ones(1, *lattice.shape, 3), x)
    torch.testing.assert_close(values, torch.ones(1, 9, 3), rtol=4e-2, atol=0)


@pytest.mark.parametrize("stride", [1, 4])
def test_the_lattice_holds_all_points_and_lies_on_the_data(stride):
    torch.manual_seed(0)
    x = torch.randint(-9, 9, (4, 6, 2)).double() * 0.25 + 0.1
    lattice = lattice_around(x, [0.25, 0.25], margin=3, stride=stride)
    assert all(count % stride == 0 for count in lattice.shape)
    cell, offset = lattice.locate(x, torch.float64)
    assert offset.abs().max() < 1e-9
    assert (cell >= 3).all() and (cell <= lattice.size[:, None] - 1 - 3).all()


@pytest.mark.parametrize("poolings", [0, 1, 2])
def test_a_block_has_its_centre_at_the_mean_of_its_cells(poolings):
    """As for pooling by means, also with a different spacing in each dimension."""
    origin = torch.tensor([[[0.3, -7.0]], [[20.0, 1.5]]], dtype=torch.float64)
    i, j = torch.meshgrid(torch.arange(8.0), torch.arange(4.0), indexing="ij")
    places = origin[:, None] + torch.stack([0.25 * i, 2.0 * j], dim=-1)
    for _ in range(poolings):
        places = halve(places)
    lattice = Lattice(origin, [0.25, 2.0], torch.tensor([[8.0, 4.0], [4.0, 4.0]]), (8, 4))
    torch.testing.assert_close(lattice.centres(2**poolings), places)


def test_the_anchor_of_scattered_points_is_their_mean():
    x = torch.rand(3, 10, 2, dtype=torch.float64)
    mean = x.mean(1, keepdim=True)
    torch.testing.assert_close(lattice_anchor(mean, x, None, [0.1, 0.1]), mean)


def test_a_grid_too_large_for_memory_is_refused():
    x = torch.tensor([[[0.0, 0.0], [1e7, 1e7]]], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"1 × 1000\d{5} × 1000\d{5} cells .* an extent of 1e\+07 × 1e\+07: .* Lower"):
        lattice_around(x, [0.1, 0.1]).check_size(1, torch.float32)


@pytest.mark.parametrize(("gradients", "dtype", "largest"), [(False, 4, 225), (True, 4, 56), (False, 8, 112)])
def test_arrays_of_the_grid_are_bounded(gradients, dtype, largest):
    """A million cells in a batch of four, each with some numbers: fewer with gradients or in double precision."""
    lattice = Lattice(torch.zeros(4, 1, 2), [1.0, 1.0], torch.full((4, 2), 500.0), (500, 500))
    dtype = {4: torch.float32, 8: torch.float64}[dtype]
    with torch.set_grad_enabled(gradients):
        lattice.check_size(largest, dtype)
        with pytest.raises(ValueError, match="4 × 500 × 500 cells"):
            lattice.check_size(largest + 1, dtype)


def test_cells_too_small_for_the_coordinates_are_refused():
    x = torch.rand(2, 5, 2, dtype=torch.float64) + 1e9
    lattice_around(x, [0.1, 0.1]).check_size(1, torch.float32)
    with pytest.raises(ValueError, match=r"torch.float32 cannot resolve .* 0.1 wide, .* are about 1e\+09"):
        lattice_around(x.float(), [0.1, 0.1]).check_size(1, torch.float32)


def test_too_many_context_points_for_a_wide_grid_are_refused():
    sides = (1000, 2000)
    lattice = Lattice(torch.zeros(1, 1, 2), [1.0, 1.0], torch.tensor([sides]).double(), sides)
    x = torch.zeros(1, 1, 2).expand(1, 200_000, 2)
    with torch.no_grad(), pytest.raises(ValueError, match="1 × 200000 context points on a grid of 1000 × 2000 cells"):
        ToGrid(on_grid=False)(lattice, x, x[..., :1], None)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_reading_in_parts_gives_the_same_values(dim_x, monkeypatch):
    torch.manual_seed(0)
    grid = torch.randn(3, *[6, 5, 4][:dim_x], 7, dtype=torch.float64, requires_grad=True)
    offset = (torch.rand(3, 11, dim_x, dtype=torch.float64) - 0.5).requires_grad_()
    cell, scales = torch.randint(4, (3, 11, dim_x)).double(), torch.tensor([-0.5, -0.2]).double().requires_grad_()

    def read():
        values = GaussianRead.apply(grid, cell, offset, scales)
        return [values, *torch.autograd.grad(values.square().sum(), (grid, offset, scales))]

    whole = read()
    monkeypatch.setattr(set_convolution, "SUMS", 100)
    assert len({some.start for _, some in GaussianRead._parts(grid, cell, scales)}) > 1
    torch.testing.assert_close(read(), whole)


def test_half_precision_is_turned_in_single_precision():
    """Mixed precision produces such channels, which torch cannot view as complex numbers."""
    torch.manual_seed(0)
    channels, angle = torch.randn(1, 2, 3, 8).bfloat16(), torch.rand(1, 2, 3, 4)
    phases = torch.complex(angle.cos(), angle.sin())
    torch.testing.assert_close(turn(channels, phases), turn(channels.float(), phases), rtol=0, atol=0)


def test_a_long_line_is_not_convolved_by_filters_for_each_frequency(monkeypatch):
    """These would take the memory of the line times the number of channels."""
    torch.manual_seed(0)
    h, weight, bias = torch.randn(1, 300, 8), torch.randn(8, 8, 21), torch.randn(8)
    expected = convolve(h, weight, bias)
    monkeypatch.setattr(line_convolution, "SPECTRA", 300 * 64 - 1)
    monkeypatch.setattr(FourierConvolution, "forward", None)
    torch.testing.assert_close(convolve(h, weight, bias), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_convolve_is_a_sum_over_neighbours(dim_x):
    torch.manual_seed(0)
    h, weight, bias = torch.randn(1, *[5] * dim_x, 2), torch.randn(3, 2, *[3] * dim_x), torch.randn(3)
    out = convolve(h, weight, bias)
    centre = (0, *[2] * dim_x)
    patch = h[(0, *[slice(1, 4)] * dim_x)].movedim(-1, 0)
    torch.testing.assert_close(out[centre], (weight * patch).flatten(1).sum(1) + bias)


@pytest.mark.parametrize("dim_x", [1, 2, 3])
def test_a_network_sees_zeros_beyond_a_box(dim_x):
    """The same box in a larger array gives the same values, for each network."""
    torch.manual_seed(0)
    small, large = [8] * dim_x, [16] * dim_x

    def make(channels_in, channels_out):
        return Convolution(dim_x, channels_in, channels_out, 3)

    for network in (CNN([make(4, 4) for _ in range(3)]), UNet(make, [4, 5, 6])):
        h = torch.randn(1, *small, 4)
        box = (0, *[slice(8)] * dim_x)
        padded, mask = torch.zeros(1, *large, 4), torch.zeros(1, *large, 1)
        padded[box], mask[box] = h[0], 1.0
        strides = [1, 2, 4] if network.stride > 1 else [1]
        own = [Level(torch.ones(1, *[n // s for n in small], 1)) for s in strides]
        shared = [Level(mask[(slice(None), *[slice(None, None, s)] * dim_x)]) for s in strides]
        torch.testing.assert_close(network(padded, shared)[box], network(h, own)[0])


def test_halving_keeps_the_mean_and_doubling_keeps_a_line():
    h = torch.arange(8.0).view(1, 8, 1)
    assert torch.equal(halve(h).flatten(), torch.tensor([0.5, 2.5, 4.5, 6.5]))
    torch.testing.assert_close(double(halve(h)).flatten()[1:-1], h.flatten()[1:-1])


@pytest.mark.parametrize("group", [C(4), C(8), D(4), D(8)], ids=repr)
def test_steerable_filters_turn_exactly_by_quarter_turns(group):
    """The filters of a rotated element are the rotated filters: rot90 acts on the array as the element on the plane."""
    basis = steerable_basis(group, 7)
    elements = group.elements()
    for i, element in enumerate(elements):
        turned = next(
            j for j, other in enumerate(elements) if (C(4).elements()[1] @ element).matrix.allclose(other.matrix)
        )
        torch.testing.assert_close(basis[turned], basis[i].rot90(1, (-2, -1)))


@pytest.mark.parametrize("group", [C(8), D(8)], ids=repr)
def test_a_group_cnn_turns_with_its_input(group):
    torch.manual_seed(0)
    network = GroupCNN(group, 16, fields=2, kernel=5, layers=3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.3)
    h = torch.randn(1, 12, 12, 16)
    level = [Level(torch.ones(1, 12, 12, 1))]
    out = network(h, level)
    for k in (1, 2, 3):
        torch.testing.assert_close(network(h.rot90(k, (1, 2)), level), out.rot90(k, (1, 2)), rtol=1e-5, atol=1e-4)
    mirrored = torch.isclose(network(h.flip(2), level), out.flip(2), rtol=1e-5, atol=1e-4).all()
    assert bool(mirrored) == isinstance(group, D)


def test_an_eighth_turn_is_nearly_exact_for_smooth_fields():
    """A smooth bump off the centre, turned by 45°: C8 follows within a few percent, a plain convolution does not."""
    torch.manual_seed(0)
    axis = torch.arange(-20.0, 21.0)
    i, j = torch.meshgrid(axis, axis, indexing="ij")

    def bump(angle):
        a, b = 7 * torch.cos(torch.tensor(angle)), 7 * torch.sin(torch.tensor(angle))
        wide = torch.exp(-((i - a) ** 2 + (j - b) ** 2) / 18)
        return torch.stack([wide, torch.exp(-(i**2 + j**2) / 30)], -1)[None]

    level = Level(torch.ones(1, 41, 41, 1))
    lift = GroupConvolution(C(8), 2, 3, kernel=9, lift=True)
    plain = Convolution(2, 2, 3, 9)

    def readings(layer, angle):
        """The response right at the bump, over all group elements: it should not depend on where the bump is."""
        row, column = (round(20 + 7 * f(torch.tensor(angle)).item()) for f in (torch.cos, torch.sin))
        return layer(bump(angle), level)[0, row, column]

    quarter, eighth = readings(lift, 0.0).view(3, 8), readings(lift, torch.pi / 4).view(3, 8)
    error = (eighth.roll(-1, 1) - quarter).norm() / quarter.norm()
    other = (readings(plain, torch.pi / 4) - readings(plain, 0.0)).norm() / readings(plain, 0.0).norm()
    assert error < 0.1 < other


def test_only_cells_in_reach_are_read_from_a_wide_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = Lattice(torch.zeros(1, 1, 2), [1.0, 1.0], torch.full((1, 2), 200.0), (200, 200))
    read, grid = FromGrid(on_grid=False, lengthscales=3), torch.randn(1, 200, 200, 6)
    for corner in (-3.0, 90.0, 190.0):
        x = corner + 12 * torch.rand(1, 40, 2)
        with torch.no_grad():
            near = read(lattice, grid, x)
            monkeypatch.setattr(set_convolution, "WIDE", 10**9)
            torch.testing.assert_close(near, read(lattice, grid, x), rtol=1e-4, atol=1e-5)
            monkeypatch.undo()
