"""Models as the page takes them: their settings as JSON, and the weights of all of them as one text."""

import base64
import math
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray
from torch import Tensor

from aenp.likelihoods import Normal
from aenp.models.convcnp import ConvCNP
from aenp.models.pttnp import PTTNP
from aenp.models.tnp import TNP
from aenp.nn.convolution import UNet
from aenp.process import NeuralProcess

BITS = 20
"Weights of large tensors are multiples of 2⁻²⁰ of the power of two above them: with all bits, they exceed 3 MB."
LARGE = 1024
"Smaller tensors, such as frequencies, on which phases depend, are not rounded."


def facts(process: NeuralProcess) -> dict[str, Any]:
    """What the page has to know about a model beside its weights, and the shapes of these in their order."""
    check_known(process)
    assert process.fixed_inputs is not None and isinstance(process.likelihood, Normal)
    known = {
        "family": process.family,
        "values": process.values,
        "minScale": process.likelihood.min_scale,
        "domain": process.fixed_inputs.domain,
        "strength": process.fixed_inputs.strength,
        "tensors": {name: list(value.shape) for name, value in process.state_dict().items()},
    }
    if isinstance(process, ConvCNP):
        return known | {"spacing": process.spacing[0], "margin": process.margin, "stride": process.network.stride}
    assert isinstance(process, TNP | PTTNP)
    return known | {"heads": process.heads, "fixedAtTargets": process.fixed_at_targets}


def check_known(process: NeuralProcess) -> None:
    """Raises an error that names the first thing about a model that the page's JavaScript cannot compute."""
    fixed = process.fixed_inputs
    needed = {
        "a TNP, PTTNP or ConvCNP": type(process) in (TNP, PTTNP, ConvCNP),
        "one output": process.dim_y == 1,
        "a Normal likelihood": isinstance(process.likelihood, Normal),
        "raw or centred values": process.values in ("raw", "centred"),
        "no covariates": process.dim_covariates == 0,
        "fixed inputs of positions with a bounded domain, a sharp edge and no periods, added to the channels": (
            fixed is not None
            and fixed.positions
            and bool(np.isfinite(fixed.domain).all())
            and not (fixed.taper or fixed.concatenate or any(fixed.periods))
        ),
        "spectral attention": getattr(process, "attention", "spectral") == "spectral",
        "the induced form of pseudo-tokens, on no grid": getattr(process, "form", "induced") == "induced",
        "a U-Net on the line, off the grid": not isinstance(process, ConvCNP)
        or (isinstance(process.network, UNet) and process.dim_x == 1 and not process.on_grid),
    }
    for what, found in needed.items():
        if not found:
            raise ValueError(
                f"the page computes only models with {what}; got {process.label}. Ship a model that has it"
            )


def pack(processes: Iterable[NeuralProcess]) -> str:
    """The weights of all models in base 64: float32, rounded, one byte of each after the other, and deflated."""
    values = [rounded(value) for process in processes for value in process.state_dict().values()]
    planes: UInt8[ndarray, "4 n"] = np.concatenate(values).view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(zlib.compress(planes.tobytes(), 9)).decode()


def rounded(value: Tensor) -> ndarray:
    """The tensor's numbers in float32; those of a large one to `BITS` bits after that of the largest."""
    numbers = value.detach().cpu().numpy().ravel().astype("<f4")
    if numbers.size < LARGE:
        return numbers
    step = 2.0 ** (math.ceil(math.log2(float(np.abs(numbers).max()) or 1.0)) - BITS)
    return (np.round(numbers / step) * step).astype("<f4")
