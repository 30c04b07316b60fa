"""Climatology: what is usual at a place and time."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import ArrayLike
from scipy.spatial import KDTree

from aenp.earth.reference import Misses, Moments, Reference
from aenp.earth.sources import EPOCH

PLACE = ["latitude", "longitude"]
EARTH = 6371.0
"Radius in km."
NEIGHBOURS = 8
"Number of places around a target that inverse distances weight."
WAVES = 64
"Number of waves whose sum is a random field."
YEAR, DAY = (1 / 365.25, 2 / 365.25), (1.0, 2.0)
"The cycles of a climatology, as frequencies per day."


class Climatology(Reference):
    """The mean and the yearly and daily cycle of each place, and the standard deviation around them.

    Those of a place are drawn towards the region's with the weight of one observation. Elsewhere they are those of the
    places around, weighted by inverse distances.

    Args:
        latitude: of each place.
        longitude: of each place.
        coefficients: of each place, those of one, and of the cosines and sines of the cycles.
        stds: the standard deviation at each place.
        cycles: frequencies per day.
    """

    def __init__(
        self,
        latitude: ArrayLike,
        longitude: ArrayLike,
        coefficients: ArrayLike,
        stds: ArrayLike,
        cycles: Sequence[float],
    ) -> None:
        self.positions = positions({"latitude": latitude, "longitude": longitude})
        self.coefficients, self.stds = np.asarray(coefficients, float), np.asarray(stds, float)
        self.cycles = list(cycles)
        if self.coefficients.shape != (len(self.positions), 1 + 2 * len(self.cycles)) or not (self.stds > 0).all():
            raise ValueError(
                f"a climatology of {len(self.positions)} places and {len(self.cycles)} cycles needs as many rows of "
                f"{1 + 2 * len(self.cycles)} coefficients, and positive stds; got {self.coefficients.shape}"
            )

    @staticmethod
    def fit(history: pd.DataFrame) -> "Climatology":
        """Of a table of observations, as `open_points` returns it."""
        dated = history if "time" in history else history.assign(time=EPOCH)
        wide = dated.pivot_table(index="time", columns=PLACE, values="value")
        places = wide.columns.to_frame()
        return Climatology.of(
            wide.index.to_numpy(), places["latitude"].to_numpy(), places["longitude"].to_numpy(), wide.to_numpy()
        )

    @staticmethod
    def of(
        times: ndarray,
        latitude: Float[ndarray, " places"],
        longitude: Float[ndarray, " places"],
        values: Float[ndarray, "times places"],
    ) -> "Climatology":
        """Least squares; cycles are left out where the times do not cover them, and NaN is no observation."""
        cycles = cycles_in(times)
        features = _features(times, cycles)
        seen, values = (~np.isnan(values)).astype(float), np.nan_to_num(values)
        products = (features[:, :, None] * features[:, None, :]).reshape(len(features), -1)
        gram, moments = (seen.T @ products).reshape(seen.shape[1], *2 * [features.shape[1]]), values.T @ features
        one = np.eye(features.shape[1])
        region = np.linalg.lstsq(gram.sum(0), moments.sum(0), rcond=None)[0]
        places = region + np.linalg.solve(gram + one, (moments - gram @ region)[..., None])[..., 0]
        squares = seen * (values - features @ places.T) ** 2
        variance = (squares.sum(0) + squares.sum() / seen.sum()) / (seen.sum(0) + 1)
        stds = np.sqrt(np.maximum(variance, smallest(values)))
        return Climatology(latitude, longitude, places, stds, cycles)

    def at(self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame) -> Moments:
        """The mean and standard deviation at places, and at their times if it has cycles."""
        index, weights = nearby(self.positions, positions(coordinates))
        if self.cycles and "time" not in coordinates:
            raise ValueError(
                "the climatology has yearly or daily cycles, but places or observations have no time; add a column or "
                "coordinate `time`"
            )
        times = np.asarray(coordinates["time"] if self.cycles else np.full(len(index), EPOCH))
        coefficients = (weights[..., None] * self.coefficients[index]).sum(1)
        return Moments((_features(times, self.cycles) * coefficients).sum(1), (weights * self.stds[index]).sum(1))

    def doubt(self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame) -> Float[ndarray, " points"]:
        """The standard error of the mean at places, in standard deviations: zero at the climatology's own.

        Its square grows with the distance to the nearest of them, at the rate at which the places around, if each is
        left out, are missed; up to the variance between all of them.
        """
        at = positions(coordinates)
        index, weights = nearby(self.positions, at)
        squares, distance, between = self._missed
        rate = squares[index].sum(1) / np.maximum(distance[index].sum(1), 1e-3)
        square = np.minimum(rate * np.linalg.norm(at - self.positions[index[:, 0]], axis=1), between)
        return np.sqrt(square) / (weights * self.stds[index]).sum(1)

    def misses(self, samples: int, seed: int) -> Misses:
        """Sums of waves about as long as places are apart, as large as `doubt`; a place has the same at all times."""
        rng = np.random.default_rng(seed)
        frequencies = rng.standard_normal((samples, WAVES, 3)) / max(float(np.median(self._missed[1])), 1e-3)
        phases = rng.uniform(0, 2 * np.pi, (samples, 1, WAVES))

        def fields(coordinates: Mapping[str, Any] | pd.DataFrame) -> Float[ndarray, "samples points"]:
            waves = np.cos(positions(coordinates) @ frequencies.transpose(0, 2, 1) + phases)
            return self.doubt(coordinates) * math.sqrt(2 / WAVES) * waves.sum(-1)

        return fields

    @cached_property
    def _missed(self) -> tuple[Float[ndarray, " places"], Float[ndarray, " places"], float]:
        """The squared error of what others say of a place, how far the nearest is, and the variance between all."""
        if len(self.positions) == 1:
            return np.zeros(1), np.ones(1), 0.0
        index, weights = nearby(self.positions, self.positions, itself=False)
        error = self.coefficients - (weights[..., None] * self.coefficients[index]).sum(1)
        distance = np.linalg.norm(self.positions - self.positions[index[:, 0]], axis=1)
        between = self._square(self.coefficients - self.coefficients.mean(0)).mean()
        return self._square(error), distance, float(between)

    def _square(self, coefficients: Float[ndarray, "places features"]) -> Float[ndarray, " places"]:
        """The mean square over time of what these are the coefficients of."""
        return coefficients[:, 0] ** 2 + (coefficients[:, 1:] ** 2).sum(1) / 2

    def on(self, times: ndarray) -> tuple[Float[ndarray, "times places"], Float[ndarray, " places"]]:
        """The mean at all of these times and the standard deviation, at its own places."""
        return _features(times, self.cycles) @ self.coefficients.T, self.stds


def cycles_in(times: ndarray) -> tuple[float, ...]:
    """The cycles that the times cover."""
    dates = pd.DatetimeIndex(times)
    return (*YEAR * (dates.month.nunique() >= 10), *DAY * (dates.hour.nunique() >= 4))


def positions(table: Mapping[str, ArrayLike] | pd.DataFrame) -> Float[ndarray, "points 3"]:
    """Places in space, in km, whose straight distances are chords."""
    latitude, longitude = (np.radians(np.asarray(table[name], float)) for name in PLACE)
    across = np.cos(latitude)
    return EARTH * np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1)


def nearby(
    known: Float[ndarray, "places 3"], at: Float[ndarray, "points 3"], itself: bool = True
) -> tuple[Int[ndarray, "points neighbours"], Float[ndarray, "points neighbours"]]:
    """The nearest known places, and their weights 1/d², which sum to one; a place itself outweighs all others.

    Without `itself`, the nearest of all is left out: each of the known places is to be told from the others.
    """
    first = 1 if itself else 2
    distance, index = KDTree(known).query(at, k=np.arange(first, min(NEIGHBOURS + first - 1, len(known)) + 1))
    weights = np.maximum(distance, 1e-3) ** -2.0
    return index, weights / weights.sum(1, keepdims=True)


def _features(times: ndarray, cycles: Sequence[float]) -> Float[ndarray, "times features"]:
    """One, and the cosine and sine of each cycle."""
    days = (times - EPOCH) / np.timedelta64(1, "D")
    phase = 2 * np.pi * np.outer(days, np.array(cycles, float))
    return np.concatenate([np.ones((len(days), 1)), np.cos(phase), np.sin(phase)], axis=1)


def smallest(values: ndarray) -> float:
    """The smallest variance that values of this size can have, so that equal ones have a likelihood."""
    return float(1e-12 * np.max(values**2) + np.finfo(float).tiny)
