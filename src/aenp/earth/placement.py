"""Placement: where further stations would tell most about a field."""

import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from rich.console import Console
from rich.progress import Progress

from aenp.earth.covariates import open_layers, with_covariates
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Frame
from aenp.earth.gridded import FieldLike
from aenp.earth.places import PlacesLike, open_places
from aenp.earth.points import PointsLike
from aenp.earth.sources import describe

BATCH = 32
"Number of candidates that are tried in one pass."
UPPER = 0.9
"Probability of the upper of the two quantiles that a new station is taken to observe."
WIDTH = NormalDist().inv_cdf(UPPER)
"How many standard deviations each of them is away from a Normal's mean."
ALIKE = 0.1
"Share of a Normal's distance between these below which they say nothing: of rain, both may be zero."
MOST = 256
"The largest number of targets; of more, so many stand for all."
TINY, ROUND_OFF = 1e-30, 1e-9
"The least variance, and the least share of it that counts once other stations are known."
FAR = 1.0
"Units of x outside the box of the training data beyond which a warning tells that the model is not to be trusted."


def suggest(
    model: FieldModel,
    context: PointsLike,
    candidates: PlacesLike,
    number: int = 5,
    target: PlacesLike | None = None,
    variable: str | None = None,
    elevation: FieldLike | None = None,
    plot: str | os.PathLike[str] | None = None,
    covariates: Sequence[FieldLike] = (),
    coast: FieldLike | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """As `FieldModel.suggest`."""
    if len(model.frame.variables) > 1:
        raise ValueError("stations can be suggested by models of one variable; this one has several")
    observed, layers = (
        model.observed(context, variable, elevation, covariates),
        open_layers(covariates, model.frame.covariates, elevation),
    )
    given = {"candidates": candidates} | ({} if target is None else {"targets": target})
    every = {what: _places(model, each, observed, elevation) for what, each in given.items()}
    for what, each in every.items():
        _warn_if_far(model.frame, each, what)
    if len(every.get("targets", ())) > MOST:
        every["targets"] = every["targets"].sample(MOST, random_state=0)
    places = every["candidates"]
    if number not in range(1, len(places) + 1):
        raise ValueError(f"number must be from 1 to {len(places)}, the number of candidates; got {number}")
    shore = None
    if plot is not None:
        from aenp.earth.maps import map_suggestion, read_coast

        shore = None if coast is None else read_coast(coast, places, observed)
    times = [table for _, table in observed.groupby("time")] if "time" in observed else [observed]
    found = []
    with Progress(console=Console(stderr=True), disable=not progress, transient=True) as bar:
        line = bar.add_task("imagining stations", total=2 * len(times) * sum(map(len, every.values())))
        for table in times:
            known = [
                with_covariates(_at(each, table), model.frame.covariates, layers, describe(given[what]))
                for what, each in every.items()
            ]
            found.append(_covariances(model, table, pd.concat(known, ignore_index=True), partial(bar.advance, line)))
    covariance, variance = (np.mean(each, axis=0) for each in zip(*found, strict=True))
    rows, reductions = _greedy(nearest_covariance(covariance), variance, len(places), number)
    result = places.iloc[rows].assign(reduction=reductions[np.arange(number), rows])
    result.index = pd.RangeIndex(1, number + 1, name="station")
    if plot is not None:
        map_suggestion(result, places.assign(reduction=reductions[0]), observed, Path(plot), shore)
    return result


def _places(
    model: FieldModel, candidates: PlacesLike, observed: pd.DataFrame, elevation: FieldLike | None
) -> pd.DataFrame:
    """The places as a table, with elevations if the model sees them, and covariates of their own."""
    further = [each.name for each in model.frame.covariates]
    places = open_places(candidates, observed.drop(columns="time", errors="ignore"), False, further)
    if "elevation" in model.frame.axes:
        places = places.with_elevation(elevation, describe(candidates))
    kept = ["latitude", "longitude", "elevation", *further]
    names = list(dict.fromkeys(name for name in kept if name in places.coordinates))
    columns = xr.broadcast(*(places.coordinates[name] for name in names))
    table = pd.DataFrame({name: each.values.ravel() for name, each in zip(names, columns, strict=True)})
    return table.dropna(subset=[name for name in names if name in model.frame.axes]).reset_index(drop=True)


def _warn_if_far(frame: Frame, places: pd.DataFrame, what: str) -> None:
    """Warns of places far from where the model was trained."""
    far, lengths = np.zeros(len(places), bool), []
    for axis in (frame.axes[name] for name in ("latitude", "longitude") if frame.axes[name].interval is not None):
        x, (low, high) = axis.x(places[axis.name].to_numpy()), axis.interval or (0.0, 0.0)
        far = far | (x < low - FAR) | (x > high + FAR)
        lengths.append(FAR * axis.unit)
    if far.any():
        warnings.warn(
            f"{far.sum()} of {len(places)} {what} are over {min(lengths):.3g}° outside the box of the training data, "
            "where the model is not to be trusted; leave them out",
            stacklevel=4,
        )


def _at(places: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The places at the time of these observations, if they have one."""
    return places.assign(time=table["time"].iloc[0]) if "time" in table else places


def _covariances(
    model: FieldModel, table: pd.DataFrame, places: pd.DataFrame, advance: Callable[[float], None]
) -> tuple[Float[ndarray, "places places"], Float[ndarray, " places"]]:
    """Covariances between all places, by how predictions answer to what would be observed at each, and variances.

    Given the observations D, Cov(y_t, y_s | D) = Var(y_s | D) · dE(y_t | y_s, D) / dy_s if all is Normal. The
    derivative is taken between a low and a high value of y_s, and the variance is that of a Normal with these as
    quantiles, so that rare faults do not count.
    """
    with warnings.catch_warnings(action="ignore"):  # of a station suggested where there is one
        predicted = model.predict(table, places, "value", quantiles=(1 - UPPER, UPPER))
    low, high = predicted["quantiles"].transpose("quantile", ...).values.reshape(2, -1).astype(float)
    low, high = low_and_high(low, high, *(predicted[name].values.ravel() for name in ("mean", "std")))
    below, above = (_means(model, table, places.assign(value=each), places, advance) for each in (low, high))
    std = (high - low) / (2 * WIDTH)
    return std[:, None] * (above - below) / (2 * WIDTH), std**2


def low_and_high(
    low: Float[ndarray, " n"], high: Float[ndarray, " n"], mean: Float[ndarray, " n"], std: Float[ndarray, " n"]
) -> tuple[Float[ndarray, " n"], Float[ndarray, " n"]]:
    """The two quantiles; where nearly all values are the same, the one beyond the mean is as far away as a Normal's."""
    alike = high - low < ALIKE * 2 * WIDTH * std
    upwards = mean >= (low + high) / 2
    high = np.where(alike & upwards, mean + WIDTH * std, high)
    return np.where(alike & ~upwards, mean - WIDTH * std, low), high


def _means(
    model: FieldModel,
    table: pd.DataFrame,
    further: pd.DataFrame,
    places: pd.DataFrame,
    advance: Callable[[float], None],
) -> Float[ndarray, "further places"]:
    """The mean at the places given the observations and one further one, for each of these."""
    means = []
    for first in range(0, len(further), BATCH):
        rows = range(first, min(first + BATCH, len(further)))
        grown = [pd.concat([table, further.iloc[[row]]], join="inner", ignore_index=True) for row in rows]
        means.append(model.means(grown, places))
        advance(len(rows))
    return np.concatenate(means)


def nearest_covariance(matrix: Float[ndarray, "n n"]) -> Float[ndarray, "n n"]:
    """The symmetric matrix without negative eigenvalues that is nearest to this one."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * values.clip(min=0)) @ vectors.T


def _greedy(
    covariance: Float[ndarray, "places places"], variance: Float[ndarray, " places"], count: int, number: int
) -> tuple[list[int], Float[ndarray, "number candidates"]]:
    """Some of the candidates, one after another, and at each step by how many percent each reduces the variance.

    Candidates are the first `count` places; targets are the others or, if there are none, the candidates. All is taken
    as Normal: with a station at b, C_st ← C_st − C_sb C_bt / C_bb. What `covariance` lacks of the candidates' variance
    is noise, which tells nothing of the targets.
    """
    targets = slice(count, None) if count < len(covariance) else slice(None)
    own, cross, left = covariance[:count, :count], covariance[:count, targets], variance[targets]
    own = own + np.diag((variance[:count] - own.diagonal()).clip(min=0))
    before, least, rows, reductions = left.sum(), (ROUND_OFF * own.diagonal()).clip(min=TINY), list[int](), []
    for _ in range(number):
        size = np.maximum(own.diagonal(), least)
        after = (left - cross**2 / size[:, None]).clip(min=0)
        reductions.append(100 * (before - after.sum(axis=1)) / max(before, TINY))
        best = int(np.delete(np.arange(count), rows)[np.delete(reductions[-1], rows).argmax()])
        rows.append(best)
        share = own[:, [best]] / size[best]
        left, cross, own = after[best], cross - share * cross[best], own - share * own[best]
    return rows, np.array(reductions)
