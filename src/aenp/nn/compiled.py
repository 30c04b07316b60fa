"""Loops of kernels.c for predictions on a processor, if aenp was installed with a compiler; else torch does them."""

import ctypes
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

INTERFACE = 1
"The number of the functions' arguments and their meaning; a library with another one was built from other code."
MOST = 2**15
"Points that a function may have arrays of on its stack."


def _library() -> ctypes.CDLL | None:
    """What was built beside this file, if it can be loaded here."""
    found = find_spec("aenp.nn._kernels")
    if found is None or found.origin is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
        return library if library.interface() == INTERFACE else None
    except (OSError, AttributeError):
        return None


library = _library()


def usable(x: Tensor) -> bool:
    """Whether they may be used for such numbers: there are no gradients."""
    plain = x.dtype == torch.float64 and x.device.type == "cpu" and not torch.compiler.is_compiling()
    return library is not None and plain and not torch.is_grad_enabled() and x.shape[-2] <= MOST


def _call(name: str, *arguments: int | Tensor | ndarray) -> None:
    """Calls a function with integers and arrays; what it writes to must be contiguous."""
    given = [each.contiguous() if isinstance(each, Tensor) else each for each in arguments]
    getattr(library, name)(*map(_argument, given))


def _argument(value: int | Tensor | ndarray) -> ctypes.c_int64 | ctypes.c_void_p:
    if isinstance(value, int):
        return ctypes.c_int64(value)
    return ctypes.c_void_p(value.data_ptr() if isinstance(value, Tensor) else value.ctypes.data)


def add_covariances(
    cov: Float[Tensor, "*batch n m"],
    x1: Float[Tensor, "*batch n dim_x"],
    x2: Float[Tensor, "*batch m dim_x"],
    smoothness: Sequence[float],
    variance: Float[Tensor, "*batch shapes"],
    lengthscale: Float[Tensor, "*batch shapes"],
    triangle: bool,
) -> None:
    """Adds Σ_s variance_s · matern(|x1 − x2|, smoothness_s, lengthscale_s), of a triangle not above its diagonal."""
    sizes = cov.shape[:-2].numel(), *cov.shape[-2:], x1.shape[-1], len(smoothness), int(triangle)
    _call("add_covariances", *sizes, np.array(smoothness), variance, lengthscale, x1, x2.mT, cov)


def nearest_distances(
    x: Float[Tensor, "batch points dim_x"], mask: Bool[Tensor, "batch points"]
) -> Float[Tensor, "batch points"]:
    """The distance of each point to the nearest other that counts, infinite where there is none."""
    nearest = x.new_empty(mask.shape)
    _call("nearest_distances", *x.shape, x, mask, nearest)
    return nearest


def profile(
    points: Float[Tensor, "batch points regressors"],
    key: Float[Tensor, "batch points"],
    lift: Float[Tensor, "batch points"],
    count: Int[Tensor, " batch"],
    extent: Float[Tensor, " batch"],
    rows: int,
    references: Float[ndarray, "references 5"],
    stretches: Float[ndarray, "stretches dim_x dim_x"],
) -> tuple[Float[Tensor, "batch references"], Float[Tensor, "batch references"]]:
    """What `vecchia.profile` returns, from a value, coordinates, one and covariates of points in the order of `key`."""
    logliks, scales = points.new_empty(2, len(points), len(references))
    sizes = *points.shape[:2], stretches.shape[1], points.shape[2], rows, len(references)
    _call("profile", *sizes, references, stretches, points.mT, key, lift, count, extent, logliks, scales)
    return logliks, scales
