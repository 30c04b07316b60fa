"""Smoke plumes: physics, reproducibility, and PhiFlow as the reference."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from aenp.experiments.smoke.simulator import Box, Plumes, Projection, run, simulate

SMALL = Box(size=32, obstacle=(16.0, 25.0), obstacle_radius=4.0, steps=12)
PLUMES = Plumes(np.array([5.0, 4.0]), np.array([16.0, 9.0]), np.array([0.4, 0.2]))


def divergence(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.diff(u, axis=1) + np.diff(v, axis=2)


def test_smoke_is_never_negative_and_comes_from_the_inflow() -> None:
    """Advection of this kind conserves mass only nearly; without buoyancy nothing moves, and it is exact."""
    still, _ = run(replace(PLUMES, buoyancy=np.zeros(2)), SMALL)
    moving, _ = run(PLUMES, SMALL)
    once, _ = run(PLUMES, replace(SMALL, steps=1))
    assert np.allclose(still, SMALL.steps * once)
    assert moving.min() >= 0
    assert moving.sum(axis=(1, 2)) == pytest.approx(still.sum(axis=(1, 2)), rel=0.1)


def test_the_projected_velocity_has_no_divergence_in_the_fluid() -> None:
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(2, 33, 32)), rng.normal(size=(2, 32, 33))
    projection = Projection.of(SMALL)
    projection(u, v)
    # What the soft edge of the obstacle lets through in total is spread over the fluid.
    left = divergence(u, v) * projection.fluid
    assert np.abs(left - projection.fluid * left.sum((1, 2), keepdims=True) / projection.fluid.sum()).max() < 1e-11


def test_nothing_flows_through_walls_or_within_the_obstacle() -> None:
    _, (u, v) = run(PLUMES, SMALL)
    assert not u[:, [0, -1]].any() and not v[:, :, [0, -1]].any()
    x, y = np.meshgrid(np.arange(33), np.arange(32) + 0.5, indexing="ij")
    assert not u[:, np.hypot(x - 16, y - 25) <= 4].any()
    x, y = np.meshgrid(np.arange(32) + 0.5, np.arange(33), indexing="ij")
    assert not v[:, np.hypot(x - 16, y - 25) <= 4].any()
    assert np.abs(v).max() > 0.1


def test_a_centred_plume_is_mirror_symmetric() -> None:
    smoke, _ = run(PLUMES, SMALL)
    assert np.allclose(smoke[0], smoke[0, ::-1], atol=1e-9)
    assert not np.allclose(smoke[1], smoke[1, ::-1], atol=1e-3)


def alone(plumes: Plumes, number: int) -> Plumes:
    return Plumes(*(values[number : number + 1] for values in vars(plumes).values()))


def assert_same_density(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal as float32 except for the last digit."""
    np.testing.assert_allclose(found, expected, rtol=2.5e-7, atol=1e-7 * expected.max())


def test_a_plume_is_the_same_in_any_batch_and_with_any_number_of_threads() -> None:
    """Among the plumes is one, number 1, that single precision would change by several per cent."""
    plumes = Plumes.draw(range(5), 0)
    together = simulate(plumes)
    for number in range(len(plumes)):
        assert_same_density(simulate(alone(plumes, number))[0], together[number])
    with threadpool_limits(2):
        assert_same_density(simulate(Plumes.draw(range(1, 4), 0)), together[1:4])


def test_round_off_is_not_amplified_to_float32_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that round differently, as on another CPU, do not change the density."""
    expected = simulate(Plumes.draw(range(3), 0))
    rng, exact = np.random.default_rng(0), Projection.solve

    def rounded(self: Projection, divergence: np.ndarray) -> np.ndarray:
        return exact(self, divergence) * (1 + 2.0**-52 * rng.integers(-2, 3, divergence.shape))

    monkeypatch.setattr(Projection, "solve", rounded)
    assert_same_density(simulate(Plumes.draw(range(3), 0)), expected)


def test_conditions_depend_on_seed_and_number_alone() -> None:
    whole, part = Plumes.draw(range(100), 3), Plumes.draw(range(40, 50), 3)
    assert np.array_equal(whole.radius[40:50], part.radius) and np.array_equal(whole.x[40:50], part.x)
    assert set(np.unique(whole.x)) == {30.0, 64.0, 110.0}
    assert 5 <= whole.radius.min() < 7 and 28 < whole.radius.max() <= 30
    assert 0.1 <= whole.buoyancy.min() < 0.13 and 0.47 < whole.buoyancy.max() <= 0.5
    assert not np.array_equal(whole.radius, Plumes.draw(range(100), 4).radius)


def test_plumes_reach_the_obstacle() -> None:
    """A strong centred plume flows around it, and would be elsewhere without it."""
    strong = Plumes(np.array([20.0]), np.array([64.0]), np.array([0.5]))
    smoke = simulate(strong)[0]
    without = simulate(strong, Box(obstacle=(64.0, 100.0), obstacle_radius=0.0))[0]
    assert smoke[:, 86:].sum() > 0
    assert np.linalg.norm(smoke - without) > 0.1 * np.linalg.norm(smoke)


@pytest.mark.slow
@pytest.mark.parametrize(("radius", "x", "buoyancy", "box"), [(4.0, 9.0, 0.2, SMALL), (28.0, 110.0, 0.3, Box())])
def test_phiflow_agrees(radius: float, x: float, buoyancy: float, box: Box) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from benchmarks.phiflow_reference import simulation

        expected = simulation(radius, x, buoyancy, box)()
    found = run(Plumes(np.array([radius]), np.array([x]), np.array([buoyancy])), box)[0][0]
    assert np.linalg.norm(found - expected) < 2e-4 * np.linalg.norm(expected)
