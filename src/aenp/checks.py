"""Checks of tensors that users pass, with errors that name the argument."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

LIMIT = 1e15
"Upper bound for inputs and outputs: sums of their squares must fit into float32."


def check_floating(**values: object) -> None:
    """Raises an error that names the first value that is not a floating-point tensor."""
    for name, value in values.items():
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a torch.Tensor; got {type(value).__name__}")
        if not value.is_floating_point():
            raise ValueError(f"{name} must be a floating-point tensor; got {value.dtype}. Call .float() or .double()")


def vector(what: str, value: float | Sequence[float] | Tensor, dim: int) -> Tensor:
    """One number, or one for each dimension, as a vector; float64 unless it is a tensor already."""
    try:
        numbers = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        if not numbers.is_complex() and numbers.shape in ((), (1,), (dim,)):
            return numbers.expand(dim)
    except (RuntimeError, TypeError, ValueError):
        pass
    raise ValueError(f"{what} must be one number, or one for each of {dim} dimensions; got {value}")


def positive(name: str, value: float | Sequence[float], dim: int) -> list[float]:
    """One positive number, or one for each dimension, as one for each."""
    numbers = np.ravel(value).tolist()
    numbers = numbers * dim if len(numbers) == 1 else numbers
    if len(numbers) != dim or not all(1 / LIMIT < number < LIMIT for number in numbers):
        raise ValueError(f"{name} must be one number or {dim}, between {1 / LIMIT:g} and {LIMIT:g}; got {value}")
    return numbers
