"""References: what values are compared with, so that a model learns only what differs from it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike

from aenp.configured import Configured

Misses: TypeAlias = Callable[[Mapping[str, Any] | pd.DataFrame], Float[ndarray, "samples points"]]
"Errors of the mean of a reference at places, in its standard deviations: a smooth field for each sample."


class Moments(NamedTuple):
    """A prediction at some places."""

    mean: Float[ndarray, " points"]
    std: Float[ndarray, " points"]


class Reference(Configured, ABC):
    """What is expected at a place and time before anything is observed."""

    @abstractmethod
    def at(self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame) -> Moments:
        """The mean and standard deviation at places."""

    def doubt(self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame) -> Float[ndarray, " points"] | None:
        """The standard error of the mean at places, in standard deviations; None if it is known everywhere."""
        return None

    def misses(self, samples: int, seed: int) -> Misses | None:
        """Errors of the mean of the size of `doubt`, one for each sample; None if it is known everywhere."""
        return None

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments:
        """What is expected, whatever was observed."""
        return self.at(target)

    def anomalies(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with values as deviations from the mean, in standard deviations."""
        mean, std = self.at(table)
        return table.assign(value=(table["value"] - mean) / std)


class Given(Reference):
    """A first guess of the values, such as a reanalysis or a forecast: factor · covariate + offset ± std.

    Args:
        name: of the covariate.
        factor: of its units, in those of the values.
        offset: what is to be added to it, which includes its mean error.
        std: standard deviation of its error.
    """

    def __init__(self, name: str, factor: float, offset: float, std: float) -> None:
        if not (math.isfinite(factor) and math.isfinite(offset) and 0 < std < math.inf):
            raise ValueError(
                f"{name}: factor and offset must be finite and std positive; got {factor}, {offset} and {std}"
            )
        self.name, self.factor, self.offset, self.std = name, factor, offset, std

    def at(self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame) -> Moments:
        guess = np.asarray(coordinates[self.name], float)
        return Moments(self.factor * guess + self.offset, np.full(guess.shape, self.std))
