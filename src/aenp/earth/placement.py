"""Placement: where further stations would tell most about a field."""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from rich.console import Console
from rich.progress import track

from aenp.earth.covariates import open_layers, with_covariates
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Frame
from aenp.earth.gridded import FieldLike
from aenp.earth.places import PlacesLike, open_places
from aenp.earth.points import PointsLike
from aenp.earth.sources import describe

BATCH = 32
"Number of candidates that are tried in one pass."
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
    places = _places(model, candidates, observed, elevation)
    aims = places if target is None else _places(model, target, observed, elevation)
    for each, what in ((places, "candidates"),) if target is None else ((places, "candidates"), (aims, "targets")):
        _warn_if_far(model.frame, each, what)
    if number not in range(1, len(places) + 1):
        raise ValueError(f"number must be from 1 to {len(places)}, the number of candidates; got {number}")
    shore = None
    if plot is not None:
        from aenp.earth.maps import map_suggestion, read_coast

        shore = None if coast is None else read_coast(coast, places, observed)
    times = [table for _, table in observed.groupby("time")] if "time" in observed else [observed]
    free, targets = (
        [with_covariates(_at(each, table), model.frame.covariates, layers, where) for table in times]
        for each, where in ((places, describe(candidates)), (aims, describe(candidates if target is None else target)))
    )
    before = sum(model.variances([table], at).sum() for table, at in zip(times, targets, strict=True))
    chosen, reductions = [], []
    for _ in track(range(number), "placing", console=Console(stderr=True), disable=not progress, transient=True):
        grown = [_observing(model, table, at) for table, at in zip(times, free, strict=True)]
        after = sum(_sums(model, tables, at) for tables, at in zip(grown, targets, strict=True))
        reductions.append(100 * (1 - after / before))
        best = int(np.argmin(after))
        row = free[0].index[best]
        chosen.append(places.loc[row].to_dict() | {"reduction": reductions[-1][best]})
        times, free = [tables[best] for tables in grown], [at.drop(index=row) for at in free]
    result = pd.DataFrame(chosen, index=pd.RangeIndex(1, number + 1, name="station"))
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


def _observing(model: FieldModel, table: pd.DataFrame, places: pd.DataFrame) -> list[pd.DataFrame]:
    """The observations together with what is predicted at one further place, for each of the places."""
    with warnings.catch_warnings(action="ignore"):  # of a station suggested where there is one
        mean = model.predict(table, places, "value")["mean"].values.astype(float)
    further = places.assign(value=mean)
    return [pd.concat([table, further.iloc[[row]]], join="inner", ignore_index=True) for row in range(len(further))]


def _sums(model: FieldModel, tables: list[pd.DataFrame], targets: pd.DataFrame) -> Float[ndarray, " tables"]:
    """The sum of the targets' variances given each of the tables."""
    parts = (tables[first : first + BATCH] for first in range(0, len(tables), BATCH))
    return np.concatenate([model.variances(part, targets).sum(1) for part in parts])
