"""Matérn correlations, which random fields are drawn with and kriging weighs with."""

import math

from jaxtyping import Float
from torch import Tensor

SMOOTHNESS = (0.5, 1.5, 2.5, math.inf)
"Smoothness ν of the correlations that have a formula; infinity is the squared exponential."

MOST = 40.0
"Correlations decay by the exponential of this at most: denormal numbers would take more time than all others."


def matern(
    r: Float[Tensor, "*#shape"], smoothness: float, lengthscale: Float[Tensor, "*#shape"] | float = 1.0
) -> Float[Tensor, "*#shape"]:
    """The correlation at distances r, for ν = ½, 3/2, 5/2 or infinity."""
    if smoothness == math.inf:
        return (r / lengthscale).square_().mul_(-0.5).clamp_(min=-MOST).exp_()
    r = (r * (-math.sqrt(2 * smoothness) / lengthscale)).clamp_(min=-MOST)
    if smoothness == 0.5:
        return r.exp_()
    decay = r.exp()
    return (1 - r).mul_(decay) if smoothness == 1.5 else (1 - r).addcmul_(r, r, value=1 / 3).mul_(decay)
