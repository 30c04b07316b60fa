"""Matérn correlations, which random fields are drawn with and kriging weighs with."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

SMOOTHNESS = (0.5, 1.5, 2.5, math.inf)
"Smoothness ν of the correlations that have a formula; infinity is the squared exponential."

MOST = 60.0
"Correlations are halved so many times at most: denormal numbers would take more time than all others."
LN2 = math.log(2.0)


def matern(
    r: Float[Tensor, "*#shape"], smoothness: float, lengthscale: Float[Tensor, "*#shape"] | float = 1.0
) -> Float[Tensor, "*#shape"]:
    """The correlation at distances r, for ν = ½, 3/2, 5/2 or infinity; by powers of two, which are fast."""
    if smoothness == math.inf:
        return (r.square() * (-0.5 / LN2 / lengthscale**2)).clamp_(min=-MOST).exp2_()
    r = (r * (-math.sqrt(2 * smoothness) / LN2 / lengthscale)).clamp_(min=-MOST)
    if smoothness == 0.5:
        return r.exp2_()
    decay = r.exp2()
    if smoothness == 1.5:
        return torch.addcmul(decay, r, decay, value=-LN2)
    return torch.rsub(r, 1, alpha=LN2).addcmul_(r, r, value=LN2**2 / 3).mul_(decay)
