"""The theorems: joint equivariance of the constructions, and errors that fall where the theorems say so."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from aenp.theory import (
    basis,
    from_fourier,
    inner,
    linear_approximation,
    nonlinear_approximation,
    norm,
    places,
    project,
    rotate,
)
from aenp.theory.commands import linear_rows, nonlinear_rows
from aenp.theory.examples import (
    SmoothedRoot,
    functions_of_norm,
    largest_error,
    multiplication,
    operator_norm,
    smoothing,
)
from aenp.theory.theorems import lattice

POINTS = 15
ANGLES = (1 / POINTS, 0.5, 0.1234, -0.789)
"Rotations onto the grid's own places and between them."
each_angle = pytest.mark.parametrize("angle", ANGLES)


def random_functions(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((*shape, POINTS))


def root() -> SmoothedRoot:
    return SmoothedRoot(smoothing(POINTS, 0.2, 0.1))


def test_the_basis_is_orthonormal() -> None:
    functions = basis(POINTS)
    np.testing.assert_allclose(inner(functions[:, None], functions), np.eye(POINTS), atol=1e-13)


@each_angle
def test_rotations_move_waves_and_preserve_inner_products(angle: float) -> None:
    np.testing.assert_allclose(
        rotate(np.cos(6 * np.pi * places(POINTS)), angle), np.cos(6 * np.pi * (places(POINTS) - angle)), atol=1e-13
    )
    f, g = random_functions(2)
    assert inner(rotate(f, angle), rotate(g, angle)) == pytest.approx(inner(f, g), abs=1e-13)


def test_an_operator_may_be_given_by_its_fourier_matrix() -> None:
    matrix = random_functions(POINTS)
    e = basis(POINTS)
    np.testing.assert_allclose(inner(e[:, None], (from_fourier(matrix) @ e.T).T), matrix, atol=1e-12)


@pytest.mark.parametrize("points", [0, 8])
def test_a_grid_without_a_middle_frequency_is_refused(points: int) -> None:
    with pytest.raises(ValueError, match=f"odd number of points; got {points}"):
        places(points)


def shift(points: int) -> np.ndarray:
    """The operator that rotates by three places."""
    return np.roll(np.eye(points), 3, axis=0)


def equivariant_linear() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return linear_approximation(random_functions(POINTS), 4).equivariant


def equivariant_nonlinear() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return nonlinear_approximation(root(), POINTS, 3, radius=1, width=4).equivariant


@each_angle
@pytest.mark.parametrize("make", [equivariant_linear, equivariant_nonlinear])
def test_a_map_rotates_with_all_its_inputs_and_not_with_one(
    make: Callable[[], Callable[[np.ndarray, np.ndarray], np.ndarray]], angle: float
) -> None:
    """Whatever the fixed inputs are, E(g f, g t_1, …) = g E(f, t_1, …)."""
    equivariant, f, t = make(), random_functions(seed=1), random_functions(8, seed=2)
    together, expected = equivariant(rotate(f, angle), rotate(t, angle)), rotate(equivariant(f, t), angle)
    np.testing.assert_allclose(together, expected, atol=1e-12)
    alone = equivariant(rotate(f, angle), t)
    assert norm(alone - expected) > 0.1 * norm(expected) > 0


@each_angle
def test_approximations_rotate_with_all_their_inputs(angle: float) -> None:
    f = random_functions(seed=1)
    f /= norm(f)
    for made in (
        linear_approximation(smoothing(POINTS, 0.08, 0.04), 6),
        nonlinear_approximation(root(), POINTS, 3, radius=1, width=0.5),
    ):
        moved = made.equivariant(rotate(f, angle), rotate(made.fixed_inputs, angle))
        np.testing.assert_allclose(moved, rotate(made(f), angle), atol=1e-10)


@each_angle
def test_condition_star_holds_for_odd_n_only(angle: float) -> None:
    """Cosine and sine of a frequency turn into each other, so that both have to be in the span or none."""
    f = random_functions()
    for n in range(1, POINTS + 1):
        commutes = np.allclose(project(rotate(f, angle), n), rotate(project(f, n), angle), atol=1e-12)
        assert commutes == (n % 2 == 1 or angle == 0.5)  # half a turn only changes signs


def test_theorem_2_has_2n_fixed_inputs_and_projects_the_operator() -> None:
    operator, f = random_functions(POINTS), random_functions(seed=1)
    made = linear_approximation(operator, 4)
    assert made.fixed_inputs.shape == (8, POINTS)
    np.testing.assert_allclose(made(f), project(operator @ f, 4), atol=1e-12)
    np.testing.assert_allclose(linear_approximation(operator, POINTS)(f), operator @ f, atol=1e-12)


def test_errors_of_a_compact_operator_fall_below_the_bound() -> None:
    operator, sizes = smoothing(65, 0.08, 0.04), (1, 9, 17, 25, 33)
    rows = linear_rows(operator, sizes)
    best = np.linalg.svd(operator, compute_uv=False)[list(sizes)]
    assert all(after.error < before.error / 2 for before, after in pairwise(rows)) and rows[-1].error < 1e-3
    assert all(low - 1e-12 <= row.error <= row.bound for low, row in zip(best, rows, strict=True))


@pytest.mark.parametrize("points", [33, 129])
@pytest.mark.parametrize("make", [multiplication, shift])
def test_errors_of_operators_that_are_not_compact_do_not_fall(make: Callable[[int], np.ndarray], points: int) -> None:
    """Up to half of all waves, on any grid, the error is the operator's own norm."""
    operator = make(points)
    for row in linear_rows(operator, (1, points // 4, points // 2)):
        assert row.error == pytest.approx(operator_norm(operator), rel=0.02)


def test_errors_of_a_kernel_with_a_jump_fall_slowly_and_below_the_bound() -> None:
    """(T f)(x) = ∫₀ˣ f is compact, but its kernel is not smooth: errors fall as n^{-1/2} or faster."""
    x, sizes = places(129), (1, 4, 16, 64)
    rows = linear_rows((x <= x[:, None]) / len(x), sizes)
    assert all(row.error <= row.bound for row in rows)
    assert all(before.error / 4 < after.error < before.error / 2**0.5 for before, after in pairwise(rows))


def test_the_smoothed_root_is_hoelder_continuous_and_not_linear() -> None:
    operator, (u, v) = root(), random_functions(2, 500)
    v = u + np.geomspace(1e-6, 10, 500)[:, None] * v
    assert (norm(operator(u) - operator(v)) <= operator.constant * np.sqrt(norm(u - v)) + 1e-12).all()
    assert norm(operator(2 * u[0]) - 2 * operator(u[0])) > 0.1


def test_every_function_is_near_the_lattice() -> None:
    """Where a function of norm 1 is, some a_i is closer than half the width, and a_i beyond its reach are left out."""
    points = lattice(3, radius=1, width=0.5)
    inside = np.random.default_rng(0).standard_normal((200, 3))
    inside *= np.random.default_rng(1).uniform(0, 1, (200, 1)) / np.linalg.norm(inside, axis=1, keepdims=True)
    distances = np.linalg.norm(inside[:, None] - points, axis=-1)
    assert distances.min(axis=1).max() < 0.25 and np.linalg.norm(points, axis=1).max() < 1.5


def test_errors_of_a_nonlinear_operator_are_below_the_bound_and_fall() -> None:
    rows = nonlinear_rows({1: (1.0, 0.125), 3: (1.0, 0.5, 0.25)})
    errors = {(row.n, row.width): row.error for row in rows}
    assert all(row.error <= row.bound for row in rows)
    assert errors[3, 0.25] < 0.75 * errors[3, 0.5] < 0.75 * 0.75 * errors[3, 1.0] < errors[1, 0.125]


def test_theorem_3_is_below_its_bound_throughout_the_ball() -> None:
    operator = root()
    made = nonlinear_approximation(operator, POINTS, 3, radius=2, width=0.5)
    for radius in (0.0, 0.01, 0.5, 2.0):
        functions = radius * functions_of_norm(1, POINTS, 5, seed=1)
        assert largest_error(operator, made, functions) <= operator.bound(3, 2, 0.5)


def test_beyond_all_lattice_points_theorem_3_gives_zero() -> None:
    made = nonlinear_approximation(root(), POINTS, 1, radius=1, width=0.5)
    assert not made(np.full(POINTS, 9.0)).any()


@pytest.mark.parametrize(
    ("n", "width", "told"),
    [(2, 1.0, "odd"), (9, 0.1, "smaller n or a larger"), (1, 0.0, "positive"), (1, np.inf, "finite")],
)
def test_lattices_that_cannot_be_made_are_refused(n: int, width: float, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        nonlinear_approximation(root(), POINTS, n, radius=1, width=width)


@pytest.mark.parametrize("n", [0, -1, POINTS + 1])
def test_no_more_functions_than_the_basis_has(n: int) -> None:
    with pytest.raises(ValueError, match=f"n must be between 1 .* {POINTS}; got {n}"):
        linear_approximation(np.eye(POINTS), n)


def test_a_nonlinear_operator_knows_one_function_at_a_time() -> None:
    """T(f) = S |f − ∫f|, written for one function, which it could not tell from others in rows of a matrix."""
    linear = smoothing(POINTS, 0.2, 0.1)
    made = nonlinear_approximation(lambda f: linear @ np.abs(f - f.mean()), POINTS, 3, radius=1, width=1)
    a, t = made.fixed_inputs[::2], made.fixed_inputs[1::2]
    every = np.abs(a - a.mean(axis=1, keepdims=True)) @ linear.T
    np.testing.assert_allclose(t, project(every, 3), atol=1e-12)


def test_the_theory_needs_no_torch() -> None:
    subprocess.run([sys.executable, "-c", "import aenp.theory, sys; sys.exit('torch' in sys.modules)"], check=True)


def test_the_command_prints_and_draws_every_approximation(
    call: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aenp.theory.commands.WIDTHS", {1: (1.0, 0.5), 3: (1.0,), 5: (2.0,)})
    monkeypatch.setattr("aenp.theory.commands.SIZES", (1, 41))
    printed = call("theory", "--out", tmp_path / "new")
    lines = printed.splitlines()
    assert "| 41 | 82 | 6.6e-05 | 9.5e-05 | 1.50 |" in lines and "| 1 | 0.500 | 14 | 0.39 | 1.97 |" in lines
    assert len([line for line in lines if line.startswith("| ")]) == 4 + 2 + 4
    assert (tmp_path / "new/theory.png").read_bytes().startswith(b"\x89PNG")
