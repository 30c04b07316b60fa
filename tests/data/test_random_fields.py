"""Random fields: batches are functions of seed and index, and their values have the law that the field states."""

import math

import numpy as np
import pytest
import torch
from scipy.special import gamma, kv

from aenp.data.random_fields import Field, RandomFields, clustered, gridded, places
from aenp.nn.matern import matern


def plain(**changes: object) -> Field:
    """A stationary, isotropic field without nugget or trend, except for the changes."""
    law = {"roughness": 1.5, "lengthscale": 0.5, "stretch": np.eye(2), "waves": np.empty((0, 3)), "octave": (0.0, 1.0)}
    return Field(**{**law, "nugget": 0.0, "trend": np.zeros(5), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5])
def test_matern_is_the_bessel_function_that_defines_it(smoothness: float) -> None:
    r = np.linspace(0.01, 5, 50)
    z = math.sqrt(2 * smoothness) * r
    expected = 2 ** (1 - smoothness) / gamma(smoothness) * z**smoothness * kv(smoothness, z)
    np.testing.assert_allclose(matern(torch.from_numpy(r), smoothness), expected, rtol=1e-10)


def test_a_batch_is_a_function_of_seed_and_index() -> None:
    source = RandomFields(num_targets=8)
    one, again, other = (source.batch(4, index, seed=3) for index in (5, 5, 6))
    assert torch.equal(one.yc, again.yc) and torch.equal(one.xt, again.xt)
    assert not torch.equal(one.yt, other.yt)


def test_the_number_of_context_points_reaches_both_bounds() -> None:
    source = RandomFields(num_context=(3, 5), num_targets=2)
    assert {source.batch(1, index, 0).xc.shape[1] for index in range(30)} == {3, 4, 5}


def test_values_have_the_covariance_and_the_trend_of_the_field() -> None:
    """Standardised by what the law says of them, values are independent with mean zero and variance one."""
    source, rng = RandomFields(num_targets=20), np.random.default_rng(0)
    standard = []
    for _ in range(60):
        field = source.field(rng)._replace(nugget=0.1)
        task = source.task(rng, field, 20)
        x, y = torch.cat([task.xc[0], task.xt[0]]), torch.cat([task.yc, task.yt], dim=1)[0, :, 0].double()
        factor = torch.linalg.cholesky(field.covariance(x))
        standard.append(torch.linalg.solve_triangular(factor, (y - field.mean(x))[:, None], upper=False))
    values = torch.cat(standard)
    assert abs(values.mean()) < 0.1 and abs(values.var() - 1) < 0.1


def test_stretched_fields_vary_more_slowly_in_one_direction() -> None:
    x = torch.tensor([[0.0, 0.0], [0.3, 0.0], [0.0, 0.3]], dtype=torch.float64)
    cov = plain(stretch=np.diag([2.0, 0.5])).covariance(x)
    assert cov[0, 1] < 0.5 * cov[0, 2]


def test_the_lengthscale_varies_only_with_waves() -> None:
    x = torch.rand(20, 2, dtype=torch.float64)
    assert torch.all(plain().lengthscales(x) == 0.5)
    varying = plain(waves=np.array([[3.0, 0.0, 0.0]])).lengthscales(x)
    assert varying.max() > 1.2 * varying.min()


def test_one_who_knows_the_law_repeats_noiseless_values_and_is_unsure_far_away() -> None:
    xc, yc = torch.rand(6, 2, dtype=torch.float64), torch.randn(6)
    mean, std = plain().predict(xc, yc, torch.cat([xc, torch.full((1, 2), 50.0, dtype=torch.float64)]))
    torch.testing.assert_close(mean[:6], yc.double(), rtol=0, atol=1e-3)
    assert std[:6].max() < 0.01 and abs(std[6] - 1) < 1e-3


def test_there_are_as_many_places_as_asked_for_and_none_twice() -> None:
    for seed in range(50):
        found = places(np.random.default_rng(seed), 1 + seed, 16)
        assert found.shape == (17 + seed, 2)
        assert len(np.unique(found.round(9), axis=0)) == len(found)


def test_gridded_places_are_on_a_lattice_and_clustered_ones_close_together() -> None:
    rng = np.random.default_rng(1)
    nodes = gridded(rng, 50)
    assert len(nodes) >= 50 and len(np.unique(nodes[:, 0].round(9))) * len(np.unique(nodes[:, 1].round(9))) == len(
        nodes
    )
    distances = np.sort(np.linalg.norm(clustered(rng, 200)[:, None] - clustered(rng, 200)[None], axis=-1), axis=1)
    assert np.median(distances[:, 0]) < 0.2
