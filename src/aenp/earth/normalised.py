"""Values of one or several variables as arrays in a model's units."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.frame import Variable


class Normalised:
    """Fields in a model's units, read and computed as they are sliced; several along a last dimension."""

    def __init__(self, fields: Sequence[Any], variables: Sequence[Variable]) -> None:
        self.fields, self.variables = list(fields), list(variables)
        self.shape = (*fields[0].shape, len(fields)) if len(fields) > 1 else fields[0].shape

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, part: Any) -> Any:
        if isinstance(part, slice):
            return Normalised([field[part] for field in self.fields], self.variables)
        both = zip(self.fields, self.variables, strict=True)
        return stacked([variable.y(np.asarray(field[part])).astype(np.float32) for field, variable in both])


def stacked(values: Sequence[Float[ndarray, "*points"]]) -> Float[ndarray, "*points_and_kinds"]:
    """Values of several variables along a last dimension, or those of the only one as they are."""
    return np.stack(values, axis=-1) if len(values) > 1 else values[0]
