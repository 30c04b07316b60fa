"""Operators on the circle as equivariant maps with fixed inputs, as in the proofs of theorems 2 and 3."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from aenp.theory.circle import basis, inner, norm, project

Function = Float[ndarray, " points"]
FixedFunctions = Float[ndarray, "k points"]
LARGEST = 2_000_000
"Of lattices: about 1 GB of fixed inputs on 31 places."


@dataclass(frozen=True)
class Approximation:
    """T ≈ E(·, t_1, …, t_k), with E(g f, g t_1, …, g t_k) = g E(f, t_1, …, t_k) for every rotation g.

    Args:
        equivariant: the map E of a function and k others.
        fixed_inputs: the functions t_1, …, t_k, which stay where they are when f is rotated.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import Approximation
        >>> approximation = Approximation(lambda f, t: t[0] * f, np.ones((1, 3)))  # multiplication
        >>> approximation(np.arange(3.0)).tolist()
        [0.0, 1.0, 2.0]
    """

    equivariant: Callable[[Function, FixedFunctions], Function]
    fixed_inputs: FixedFunctions

    def __call__(self, f: Function) -> Function:
        """E(f, t_1, …, t_k)."""
        return self.equivariant(f, self.fixed_inputs)


def linear_approximation(operator: Float[ndarray, "points points"], n: int) -> Approximation:
    """Theorem 2: P_n T f = Σ_i e_i ⟨τ_i, f⟩, an equivariant map of f and of the 2n functions τ_i = T* e_i and e_i.

    Args:
        operator: the linear operator T, a matrix that acts on the values of f; `from_fourier` makes one.
        n: how many functions of the basis the result is made of.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import basis, linear_approximation
        >>> approximation = linear_approximation(np.eye(9), n=5)  # the projection on five functions
        >>> approximation.fixed_inputs.shape, np.allclose(approximation(basis(9)[1]), basis(9)[1])
        ((10, 9), True)
    """
    points = len(operator)
    if not 1 <= n <= points:
        raise ValueError(f"n must be between 1 and the number of functions in the basis, {points}; got {n}")
    e = basis(points)[:n]
    return Approximation(_sum_of_projections, _in_turn(e @ operator, e))


def _sum_of_projections(f: Function, fixed_inputs: FixedFunctions) -> Function:
    tau, e = fixed_inputs[::2], fixed_inputs[1::2]
    return inner(tau, f) @ e


def nonlinear_approximation(
    operator: Callable[[Function], Function], points: int, n: int, radius: float, width: float
) -> Approximation:
    """Theorem 3: the mean of t_i = P_n T(a_i) over the a_i near P_n f, weighted by how near they are.

    The a_i are a lattice in the span of the first n functions of the basis, so fine that some of them lie within
    `width` of P_n f wherever ‖f‖ ≤ radius.

    Args:
        operator: T, of the values of a function.
        points: number of places at which functions are given.
        n: dimension of the lattice; odd, so that rotations map the span to itself, which is condition (∗).
        radius: the largest norm M of functions to approximate T for.
        width: the distance h at which an a_i no longer counts.

    Example:
        >>> import numpy as np
        >>> from aenp.theory import nonlinear_approximation, norm
        >>> approximation = nonlinear_approximation(np.abs, points=9, n=1, radius=1.0, width=0.1)
        >>> bool(norm(approximation(-0.5 * np.ones(9)) - 0.5) <= 0.1)
        True
    """
    if n < 1 or n % 2 == 0 or n > points:
        raise ValueError(f"n must be odd, so that rotations map the first n waves to each other; got {n} of {points}")
    a = lattice(n, radius, width) @ basis(points)[:n]
    t = project(np.stack([operator(each) for each in a]), n)

    def mean_of_near(f: Function, fixed_inputs: FixedFunctions) -> Function:
        a, t = fixed_inputs[::2], fixed_inputs[1::2]
        weights = np.maximum(width - norm(project(f, n) - a), 0)
        return weights @ t / weights.sum() if weights.any() else np.zeros_like(f)

    return Approximation(mean_of_near, _in_turn(a, t))


def lattice(n: int, radius: float, width: float) -> Float[ndarray, "count n"]:
    """The points with coordinates j·h/√(2n), without those too far away to count for a function of norm ≤ radius."""
    if not (0 < radius < math.inf and 0 < width < math.inf):
        raise ValueError(f"radius and width must be positive and finite; got {radius} and {width}")
    spacing = width / math.sqrt(2 * n)
    steps = math.ceil(radius / spacing)
    if (1 + 2 * steps) ** n > LARGEST:
        raise ValueError(
            f"n = {n} with a width of {width:g} takes a lattice of {float(1 + 2 * steps) ** n:.0e} points, more than "
            f"{LARGEST:.0e}; choose a smaller n or a larger width"
        )
    whole = np.indices([1 + 2 * steps] * n).reshape(n, -1).T - steps
    points = spacing * whole
    return points[np.linalg.norm(points, axis=1) < radius + width]


def _in_turn(first: FixedFunctions, second: FixedFunctions) -> Float[ndarray, "both points"]:
    """first_1, second_1, first_2, second_2, …"""
    return np.stack([first, second], axis=1).reshape(-1, first.shape[-1])
