"""Three operators that are not equivariant, how far approximations are from them, and what is known beforehand."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from aenp.theory.circle import basis, norm, places, project
from aenp.theory.theorems import Approximation

Matrix = Float[ndarray, "points points"]


def smoothing(points: int, length: float, variation: float) -> Matrix:
    """A compact operator: the mean of f around x, over a length that depends on x."""
    x = places(points)
    lengths = length + variation * np.cos(2 * np.pi * x)
    weights = np.exp((np.cos(2 * np.pi * (x[:, None] - x)) - 1) / (2 * np.pi * lengths[:, None]) ** 2)
    return weights / weights.sum(axis=1, keepdims=True)


def multiplication(points: int) -> Matrix:
    """An operator that is not compact: f(x) times 1 + cos(2πx) / 2."""
    return np.diag(1 + np.cos(2 * np.pi * places(points)) / 2)


@dataclass(frozen=True)
class SmoothedRoot:
    """A nonlinear operator, T(f) = S √|S f| with linear S: ‖T(u) − T(v)‖ ≤ c ‖u − v‖^½."""

    linear: Matrix

    def __call__(self, f: Float[ndarray, "*many points"]) -> Float[ndarray, "*many points"]:
        return np.sqrt(np.abs(f @ self.linear.T)) @ self.linear.T

    @property
    def constant(self) -> float:
        """c = ‖S‖^{3/2}, because ‖√|u| − √|v|‖ ≤ ‖u − v‖^½."""
        return operator_norm(self.linear) ** 1.5

    def bound(self, n: int, radius: float, width: float) -> float:
        """sup ‖T(f) − P_n T P_n(f)‖ + c h^½ over ‖f‖ ≤ radius, with a bound in place of the first term."""
        size, rest = operator_norm(self.linear), np.eye(len(self.linear)) - project(np.eye(len(self.linear)), n)
        of_outputs = operator_norm(rest @ self.linear) * math.sqrt(size * radius)
        of_inputs = size * math.sqrt(operator_norm(self.linear @ rest) * radius)
        return of_outputs + of_inputs + self.constant * math.sqrt(width)


def operator_norm(operator: Matrix) -> float:
    return float(np.linalg.norm(operator, 2))


def linear_error(operator: Matrix, approximation: Approximation) -> float:
    """‖T − E(·, t_1, …, t_k)‖, for an approximation that is linear in f."""
    columns = [approximation(f) for f in np.eye(len(operator))]
    return operator_norm(operator - np.column_stack(columns))


def linear_bound(operator: Matrix, n: int) -> float:
    """(Σ_{i > n} ‖T* e_i‖²)^½, the Hilbert–Schmidt norm of T − P_n T."""
    return float(np.linalg.norm(norm(basis(len(operator))[n:] @ operator)))


def largest_error(
    operator: Callable[[ndarray], ndarray], approximation: Approximation, functions: Float[ndarray, "many points"]
) -> float:
    """The largest ‖T(f) − E(f, t_1, …, t_k)‖ among the given functions."""
    return max(float(norm(operator(f) - approximation(f))) for f in functions)


def functions_of_norm(radius: float, points: int, count: int, seed: int) -> Float[ndarray, "many points"]:
    """Random functions, from rough to smooth, and the functions of the basis, all of this norm."""
    random = np.random.default_rng(seed)
    decay = np.arange(1, points + 1) ** -random.uniform(0, 3, (count, 1))
    functions = np.concatenate([random.standard_normal((count, points)) * decay @ basis(points), basis(points)])
    return radius * functions / norm(functions)[:, None]
