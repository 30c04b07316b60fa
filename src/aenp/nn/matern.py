"""Matérn correlations, which random fields are drawn with and kriging weighs with."""

import math

from jaxtyping import Float
from torch import Tensor

SMOOTHNESS = (0.5, 1.5, 2.5, math.inf)
"Smoothness ν of the correlations that have a formula; infinity is the squared exponential."

LEAST = -40.0
"The least logarithm of a correlation: denormal numbers would take more time than all others."


def matern(r: Float[Tensor, "*batch"], smoothness: float) -> Float[Tensor, "*batch"]:
    """The correlation at distances r in lengthscales, for ν = ½, 3/2, 5/2 or infinity."""
    if smoothness == math.inf:
        return (-r.square() / 2).clamp(min=LEAST).exp()
    r = math.sqrt(2 * smoothness) * r
    decay = (-r).clamp(min=LEAST).exp()
    if smoothness == 0.5:
        return decay
    return (1 + r) * decay if smoothness == 1.5 else (1 + r + r.square() / 3) * decay
