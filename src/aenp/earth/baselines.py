"""What a model has to beat: climatology, inverse distances and kriging, given the same observations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from aenp.earth.frame import EPOCH

PLACE = ["latitude", "longitude"]
EARTH = 6371.0
"Radius in km."
NEIGHBOURS = 8
"Number of places around a target that inverse distances weight."
YEAR, DAY = (1 / 365.25, 2 / 365.25), (1.0, 2.0)
"The cycles of a climatology, as frequencies per day."
SLOPE = 10.0
"Standard deviation of a change over a kilometre of elevation, in those of the field; wide enough to say nothing."
MAX_POINTS, MAX_TIMES = 256, 12
"Observations of a time, and times, that kriging is fitted to."


class Moments(NamedTuple):
    """A prediction at some places."""

    mean: Float[ndarray, " points"]
    std: Float[ndarray, " points"]


class Split(NamedTuple):
    """Observations of one time in two parts, one of which is to be predicted from the other."""

    context: pd.DataFrame
    target: pd.DataFrame


@runtime_checkable
class Baseline(Protocol):
    """Predicts the values at the target's places and time from the context's; both are tables of `open_points`."""

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments: ...


def fit_baselines(history: pd.DataFrame, splits: Sequence[Split]) -> dict[str, Baseline]:
    """Every baseline by name; those with elevation only if it is known at all places.

    Args:
        history: observations of many times, for the climatology.
        splits: some of these times, divided as those that are to be predicted.
    """
    climatology = Climatology.fit(history)
    tables = [pd.concat(split) for split in splits[:MAX_TIMES]]
    tables = [table.sample(min(len(table), MAX_POINTS), random_state=0) for table in tables]
    baselines: dict[str, Baseline] = {"climatology": climatology, "inverse distance": InverseDistance.fit(splits)}
    baselines["kriging"] = Kriging.fit(tables)
    if "elevation" in history:
        baselines["kriging with elevation"] = Kriging.fit(tables, SLOPE)
    of_anomalies = Kriging.fit([climatology.anomalies(table) for table in tables])
    return baselines | {"kriging of anomalies": Anomalies(climatology, of_anomalies)}


@dataclass(frozen=True)
class Climatology:
    """The mean and the yearly and daily cycle of each place, and the standard deviation around them.

    Those of a place are drawn towards the region's with the weight of one observation. Elsewhere they are those of the
    places around, weighted by inverse distances.
    """

    positions: Float[ndarray, "places 3"]
    coefficients: Float[ndarray, "places features"]
    stds: Float[ndarray, " places"]
    cycles: Sequence[float]

    @staticmethod
    def fit(history: pd.DataFrame) -> "Climatology":
        """Least squares; cycles are left out where the times do not cover them."""
        dated = history if "time" in history else history.assign(time=EPOCH)
        wide = dated.pivot_table(index="time", columns=PLACE, values="value")
        cycles = (*YEAR * (wide.index.month.nunique() >= 10), *DAY * (wide.index.hour.nunique() >= 4))
        features = _features(wide.index.to_numpy(), cycles)
        seen, values = wide.notna().to_numpy(float), wide.fillna(0.0).to_numpy()
        products = (features[:, :, None] * features[:, None, :]).reshape(len(features), -1)
        gram, moments = (seen.T @ products).reshape(seen.shape[1], *2 * [features.shape[1]]), values.T @ features
        one = np.eye(features.shape[1])
        region = np.linalg.lstsq(gram.sum(0), moments.sum(0), rcond=None)[0]
        places = region + np.linalg.solve(gram + one, (moments - gram @ region)[..., None])[..., 0]
        squares = seen * (values - features @ places.T) ** 2
        variance = (squares.sum(0) + squares.sum() / seen.sum()) / (seen.sum(0) + 1)
        return Climatology(
            positions(wide.columns.to_frame()), places, np.sqrt(np.maximum(variance, _smallest(values))), cycles
        )

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments:
        index, weights = nearby(self.positions, positions(target))
        times = target["time"].to_numpy() if "time" in target else np.full(len(target), EPOCH)
        coefficients = (weights[..., None] * self.coefficients[index]).sum(1)
        mean = (_features(times, self.cycles) * coefficients).sum(1)
        return Moments(mean, (weights * self.stds[index]).sum(1))

    def anomalies(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with values as deviations from the mean, in standard deviations."""
        mean, std = self.predict(table, table)
        return table.assign(value=(table["value"] - mean) / std)


@dataclass(frozen=True)
class InverseDistance:
    """The mean of the nearest observations, weighted by 1/d²; its error is the same everywhere.

    Args:
        std: standard deviation of the error.
    """

    std: float

    @staticmethod
    def fit(splits: Sequence[Split]) -> "InverseDistance":
        errors = [target["value"] - InverseDistance(1.0).predict(context, target).mean for context, target in splits]
        square = np.concatenate([error.to_numpy() ** 2 for error in errors]).mean()
        return InverseDistance(float(np.sqrt(max(square, _smallest(splits[0].context["value"].to_numpy())))))

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments:
        index, weights = nearby(positions(context), positions(target))
        return Moments((weights * context["value"].to_numpy()[index]).sum(1), np.full(len(target), self.std))


class Pairs(NamedTuple):
    """What a covariance depends on: the chord between two places in km, and the product of their elevations in km²."""

    distance: Float[ndarray, "a b"]
    heights: Float[ndarray, "a b"] | float

    @staticmethod
    def of(a: pd.DataFrame, b: pd.DataFrame, with_elevation: bool) -> "Pairs":
        heights = np.outer(_kilometres(a), _kilometres(b)) if with_elevation else 0.0
        return Pairs(cdist(positions(a), positions(b)), heights)


@dataclass(frozen=True)
class Kriging:
    """y = m + f(x) + ε with cov(f(x), f(x')) = std² (1 + r) exp(−r), r = √3 |x − x'| / scale, and m unknown.

    |x − x'| is the chord between two places, and ε the nugget effect.

    Args:
        std: standard deviation of f.
        scale: lengthscale in km.
        nugget: variance of ε, in that of f.
        slope: standard deviation of an unknown change over a kilometre of elevation, in that of f; 0 for none.
    """

    std: float
    scale: float
    nugget: float
    slope: float = 0.0

    @staticmethod
    def fit(tables: Sequence[pd.DataFrame], slope: float = 0.0) -> "Kriging":
        """The parameters of the largest restricted likelihood, jointly over tables of one time each."""
        tables = [table for table in tables if len(table) >= 3]
        if not tables:
            raise ValueError("kriging is fitted to times with at least 3 observations; got none")
        extent = max(float(np.ptp(positions(table), axis=0).max()) for table in tables) or 1.0

        pairs = [Pairs.of(table, table, slope > 0) for table in tables]
        values = [table["value"].to_numpy(float) for table in tables]

        def kriging(logarithms: ndarray) -> Kriging:
            scale, nugget = np.exp(logarithms)
            return Kriging(1.0, scale, nugget, slope)

        def cost(logarithms: ndarray) -> float:
            return kriging(logarithms)._restricted(pairs, values)[0]

        starts = [np.log([extent * part, nugget]) for part in (0.03, 0.1, 0.3, 1.0) for nugget in (0.01, 0.3)]
        bounds = [(np.log(extent / 1000), np.log(10 * extent)), (np.log(1e-6), np.log(100.0))]
        found = minimize(
            cost, min(starts, key=cost), method="Nelder-Mead", bounds=bounds, options={"xatol": 0.02, "fatol": 0.05}
        )
        best = kriging(found.x)
        return replace(best, std=float(np.sqrt(best._restricted(pairs, values)[1])))

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments:
        y = context["value"].to_numpy(float)
        own, other = (Pairs.of(context, table, self.slope > 0) for table in (context, target))
        middle = y.mean()
        columns = np.column_stack([np.ones(len(y)), y - middle, self._correlation(other)])
        one, values, weights = np.split(solve_triangular(self._factor(own), columns, lower=True), [1, 2], axis=1)
        one, values = one[:, 0], values[:, 0]
        level = one @ values / (one @ one)
        mean = middle + level + weights.T @ (values - level * one)
        before = 1 + (self.slope * _kilometres(target)) ** 2 if self.slope else 1.0
        variance = before - (weights**2).sum(0) + (1 - one @ weights) ** 2 / (one @ one) + self.nugget
        return Moments(mean, self.std * np.sqrt(variance))

    def _restricted(self, pairs: Sequence[Pairs], values: Sequence[ndarray]) -> tuple[float, float]:
        """The negative restricted log-likelihood up to a constant, with the best variance of f, and that variance."""
        squares, determinants, freedom = 0.0, 0.0, 0
        for pair, y in zip(pairs, values, strict=True):
            factor = self._factor(pair)
            one, rest = solve_triangular(factor, np.column_stack([np.ones(len(y)), y - y.mean()]), lower=True).T
            squares += rest @ rest - (one @ rest) ** 2 / (one @ one)
            determinants += 2 * np.log(np.diag(factor)).sum() + np.log(one @ one)
            freedom += len(y) - 1
        variance = max(squares / freedom, *map(_smallest, values))
        return 0.5 * (freedom * np.log(variance) + determinants), variance

    def _factor(self, pairs: Pairs) -> Float[ndarray, "points points"]:
        """The Cholesky factor of the correlations of observations."""
        return cholesky(self._correlation(pairs) + self.nugget * np.eye(len(pairs.distance)), lower=True)

    def _correlation(self, pairs: Pairs) -> Float[ndarray, "a b"]:
        r = np.sqrt(3) * pairs.distance / self.scale
        return (1 + r) * np.exp(-r) + self.slope**2 * pairs.heights


@dataclass(frozen=True)
class Anomalies:
    """A baseline that predicts anomalies, which the climatology turns back into values."""

    climatology: Climatology
    baseline: Baseline

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments:
        mean, std = self.climatology.predict(context, target)
        anomaly = self.baseline.predict(self.climatology.anomalies(context), target)
        return Moments(mean + std * anomaly.mean, std * anomaly.std)


def positions(table: pd.DataFrame) -> Float[ndarray, "points 3"]:
    """Places in space, in km, whose straight distances are chords."""
    latitude, longitude = (np.radians(table[name].to_numpy(float)) for name in PLACE)
    across = np.cos(latitude)
    return EARTH * np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)], axis=-1)


def nearby(
    known: Float[ndarray, "places 3"], at: Float[ndarray, "points 3"]
) -> tuple[Int[ndarray, "points neighbours"], Float[ndarray, "points neighbours"]]:
    """The nearest known places, and their weights 1/d², which sum to one; a place itself outweighs all others."""
    distance, index = KDTree(known).query(at, k=np.arange(1, min(NEIGHBOURS, len(known)) + 1))
    weights = np.maximum(distance, 1e-3) ** -2.0
    return index, weights / weights.sum(1, keepdims=True)


def _features(times: ndarray, cycles: Sequence[float]) -> Float[ndarray, "times features"]:
    """One, and the cosine and sine of each cycle."""
    days = (times - EPOCH) / np.timedelta64(1, "D")
    phase = 2 * np.pi * np.outer(days, np.array(cycles, float))
    return np.concatenate([np.ones((len(days), 1)), np.cos(phase), np.sin(phase)], axis=1)


def _kilometres(table: pd.DataFrame) -> Float[ndarray, " points"]:
    return table["elevation"].to_numpy(float) / 1000


def _smallest(values: ndarray) -> float:
    """The smallest variance that values of this size can have, so that equal ones have a likelihood."""
    return float(1e-12 * np.max(values**2) + np.finfo(float).tiny)
