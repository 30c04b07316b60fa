"""Vecchia's likelihood is exact for few points, and cells are small beside the distance of their points."""

import pytest
import torch

from aenp.nn.cells import cells
from aenp.nn.matern import matern
from aenp.nn.vecchia import NEIGHBOURS, _conditional, profile, references, spacing, traceless

GENERATOR = torch.Generator().manual_seed(0)


def cloud(points: int, dim: int = 2) -> torch.Tensor:
    x = torch.rand(1, points, dim, dtype=torch.float64, generator=GENERATOR)
    return 3 * (x - x.mean(dim=1, keepdim=True))


def everyone(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x[..., 0], dtype=torch.bool)


def test_few_points_have_the_exact_likelihood() -> None:
    """Where every predecessor is a neighbour, the product of conditionals is the joint density."""
    x, y = cloud(NEIGHBOURS + 1), torch.randn(1, NEIGHBOURS + 1, dtype=torch.float64, generator=GENERATOR)
    logliks, scales = profile(x, y, everyone(x))
    for number, reference in enumerate(references(2)):
        if reference.stretch or reference.trend:
            continue
        cov = matern(torch.cdist(x[0], x[0]) / reference.lengthscale, reference.smoothness) + 1
        cov += reference.nugget * torch.eye(len(cov), dtype=cov.dtype)
        variance = (y[0] @ torch.linalg.solve(cov, y[0])) / len(cov)
        loglik = -(variance.log() + torch.logdet(cov) / len(cov)) / 2
        assert abs(scales[0, number] - variance.log()) < 0.01 + 1e-3 * abs(variance.log())
        assert abs(logliks[0, number] - loglik) < 0.01


def test_conditional_variances_and_errors_are_those_of_cholesky_factors() -> None:
    """For each of some matrices of five points: L_nn² and L_nn · (L⁻¹ y)_n."""
    root = torch.randn(3, 2, 7, 5, 5, dtype=torch.float64, generator=GENERATOR)
    values = torch.randn(2, 7, 5, dtype=torch.float64, generator=GENERATOR)
    nugget = torch.tensor([1e-3, 0.1, 1.0], dtype=torch.float64)[:, None, None]
    cov = root @ root.mT
    factor = torch.linalg.cholesky(cov + nugget[..., None, None] * torch.eye(5))
    errors = torch.linalg.solve_triangular(factor, values.unsqueeze(-1).expand(3, 2, 7, 5, 1), upper=False)
    pairs = cov[..., *torch.triu_indices(5, 5)].permute(3, 0, 1, 2).clone()
    found = _conditional(pairs, values.permute(2, 0, 1).unsqueeze(0), nugget)
    torch.testing.assert_close(found[0], factor[..., -1, -1].square())
    torch.testing.assert_close(found[1], factor[..., -1, -1] * errors[..., -1, 0])


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_order_of_the_points_and_masked_points_do_not_matter(dim: int) -> None:
    x, y = cloud(40, dim), torch.randn(1, 40, dtype=torch.float64, generator=GENERATOR)
    expected = profile(x, y, everyone(x))[0]
    order = torch.randperm(40, generator=GENERATOR)
    torch.testing.assert_close(profile(x[:, order], y[:, order], everyone(x))[0], expected, rtol=1e-3, atol=1e-3)
    longer = torch.nn.functional.pad(x, [0, 0, 0, 5]), torch.nn.functional.pad(y, [0, 5])
    mask = torch.arange(45)[None] < 40
    torch.testing.assert_close(profile(*longer, mask)[0], expected, rtol=1e-3, atol=1e-3)


def test_the_reference_like_the_field_has_the_larger_likelihood() -> None:
    x = 10 * cloud(200)
    cov = matern(torch.cdist(x[0], x[0]) / 16, 2.5) + 1e-3 * torch.eye(200, dtype=torch.float64)
    y = (torch.linalg.cholesky(cov) @ torch.randn(200, 1, dtype=torch.float64, generator=GENERATOR)).T
    logliks = dict(zip(references(2), profile(x, y - y.mean(), everyone(x))[0][0].tolist(), strict=True))
    best = max(logliks, key=logliks.__getitem__)
    assert best.smoothness > 1 and best.lengthscale >= 3 and best.nugget <= 0.03


def test_directions_of_anisotropy_are_traceless_symmetric_and_independent() -> None:
    for dim in (1, 2, 3):
        basis = torch.from_numpy(traceless(dim))
        assert len(basis) == dim * (dim + 1) // 2 - 1
        torch.testing.assert_close(basis, basis.mT)
        assert not basis.diagonal(dim1=1, dim2=2).sum(1).any()
        assert not len(basis) or torch.linalg.matrix_rank(basis.flatten(1)) == len(basis)


def test_spacing_of_a_lattice_of_coinciding_points_and_of_one() -> None:
    nodes = torch.cartesian_prod(*[torch.arange(4, dtype=torch.float64)] * 2)[None]
    torch.testing.assert_close(spacing(nodes, everyone(nodes)), torch.ones(1, dtype=torch.float64))
    twice = torch.zeros(1, 6, 2, dtype=torch.float64)
    assert spacing(twice, everyone(twice)).item() == pytest.approx(6**-0.5 / 50)
    assert spacing(twice, torch.arange(6)[None] < 1).item() == 1


def test_each_place_is_in_one_cell_whatever_other_places_there_are() -> None:
    points, places = cloud(300)[0], 4 * cloud(100)[0]
    found = {int(place): near.sort().values for near, members, _ in cells(points, places, 20) for place in members}
    assert sorted(found) == list(range(100))
    for near, members, _ in cells(points, places[:10], 20):
        for place in members:
            assert torch.equal(near.sort().values, found[int(place)])


def test_cells_are_small_beside_the_distance_of_their_points() -> None:
    points, places = cloud(300)[0], cloud(500)[0]
    for near, members, _ in cells(points, places, 20):
        width = (places[members].amax(0) - places[members].amin(0)).norm()
        radius = (points[near] - places[members].mean(0)).norm(dim=1).max()
        assert width <= 1.6 * radius


def test_coinciding_points_are_divided_no_further_than_they_can_be() -> None:
    points = torch.zeros(10, 2, dtype=torch.float64)
    assert sum(len(cell.members) for cell in cells(points, torch.zeros(3, 2, dtype=torch.float64), 4)) == 3


def test_every_place_is_near_the_middle_of_a_cell_in_one_of_three_divisions() -> None:
    """Borders on a line lie a third of a cell apart, so that a place is at most a sixth of a cell off a middle."""
    points = torch.linspace(-1, 1, 400, dtype=torch.float64)[:, None]
    places = torch.linspace(-0.8, 0.8, 301, dtype=torch.float64)[:, None]
    weights = torch.zeros(3, 301, dtype=torch.float64)
    for number in range(3):
        for cell in cells(points, places, 30, 2 / 3 * number):
            weights[number, cell.members] = cell.weights
    assert weights.min() > 0 and weights.max() <= 1
    assert weights.amax(dim=0).min() > 8 / 9 - 0.01
