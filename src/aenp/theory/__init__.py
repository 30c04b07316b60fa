"""The paper's theorems as programs: operators on the circle, approximated by equivariant maps with fixed inputs.

They need NumPy and none of the models; `aenp theory` compares their errors with the bounds.
"""

from aenp.theory.circle import basis, from_fourier, inner, norm, places, project, rotate
from aenp.theory.theorems import Approximation, linear_approximation, nonlinear_approximation

__all__ = [
    "Approximation",
    "basis",
    "from_fourier",
    "inner",
    "linear_approximation",
    "nonlinear_approximation",
    "norm",
    "places",
    "project",
    "rotate",
]
