"""What a model has to beat: climatology, inverse distances and kriging, given the same observations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from aenp.earth.climatology import Climatology, nearby, positions, smallest
from aenp.earth.reference import Given, Moments, Reference

SLOPE = 10.0
"Standard deviation of a change over a kilometre of elevation, in those of the field; wide enough to say nothing."
MAX_POINTS, MAX_TIMES = 256, 12
"Observations of a time, and times, that kriging is fitted to."


class Split(NamedTuple):
    """Observations of one time in two parts, one of which is to be predicted from the other."""

    context: pd.DataFrame
    target: pd.DataFrame


@runtime_checkable
class Baseline(Protocol):
    """Predicts the values at the target's places and time from the context's; both are tables of `open_points`."""

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments: ...


def fit_baselines(history: pd.DataFrame, splits: Sequence[Split], given: Given | None = None) -> dict[str, Baseline]:
    """Every baseline by name; those with elevation only if it is known at all places.

    Args:
        history: observations of many times, for the climatology.
        splits: some of these times, divided as those that are to be predicted.
        given: the model's first guess, which baselines may then use too.
    """
    climatology = Climatology.fit(history)
    tables = [pd.concat(split) for split in splits[:MAX_TIMES]]
    tables = [table.sample(min(len(table), MAX_POINTS), random_state=0) for table in tables]
    baselines: dict[str, Baseline] = {"climatology": climatology, "inverse distance": InverseDistance.fit(splits)}
    baselines["kriging"] = Kriging.fit(tables)
    if "elevation" in history:
        baselines["kriging with elevation"] = Kriging.fit(tables, SLOPE)
    of_anomalies = Kriging.fit([climatology.anomalies(table) for table in tables])
    baselines["kriging of anomalies"] = Anomalies(climatology, of_anomalies)
    if given is not None:
        of_differences = Kriging.fit(list(map(given.anomalies, tables)), SLOPE if "elevation" in history else 0.0)
        baselines |= {given.name: given, "kriging of differences": Anomalies(given, of_differences)}
    return baselines


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
        return InverseDistance(float(np.sqrt(max(square, smallest(splits[0].context["value"].to_numpy())))))

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
        variance = max(squares / freedom, *map(smallest, values))
        return 0.5 * (freedom * np.log(variance) + determinants), variance

    def _factor(self, pairs: Pairs) -> Float[ndarray, "points points"]:
        """The Cholesky factor of the correlations of observations."""
        return cholesky(self._correlation(pairs) + self.nugget * np.eye(len(pairs.distance)), lower=True)

    def _correlation(self, pairs: Pairs) -> Float[ndarray, "a b"]:
        r = np.sqrt(3) * pairs.distance / self.scale
        return (1 + r) * np.exp(-r) + self.slope**2 * pairs.heights


@dataclass(frozen=True)
class Anomalies:
    """A baseline that predicts deviations from a climatology or first guess, which turns them back into values."""

    reference: Reference
    baseline: Baseline

    def predict(self, context: pd.DataFrame, target: pd.DataFrame) -> Moments:
        mean, std = self.reference.predict(context, target)
        anomaly = self.baseline.predict(self.reference.anomalies(context), target)
        return Moments(mean + std * anomaly.mean, std * anomaly.std)


def _kilometres(table: pd.DataFrame) -> Float[ndarray, " points"]:
    return table["elevation"].to_numpy(float) / 1000
