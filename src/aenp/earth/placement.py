"""Placement: where further stations would tell most about a field."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.field_model import FieldModel
from aenp.earth.gridded import FieldLike
from aenp.earth.places import PlacesLike
from aenp.earth.points import PointsLike

BATCH = 32
"Number of candidates that are tried in one pass."


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
) -> pd.DataFrame:
    """As `FieldModel.suggest`."""
    if len(model.frame.variables) > 1:
        raise ValueError("stations can be suggested by models of one variable; this one has several")
    observed = model.observed(context, variable, elevation, covariates)
    free = places = _places(model, candidates, observed, elevation, covariates)
    targets = places if target is None else _places(model, target, observed, elevation, covariates)
    if not 1 <= number <= len(places):
        raise ValueError(f"number must be from 1 to {len(places)}, the number of candidates; got {number}")
    times = [table for _, table in observed.groupby("time")] if "time" in observed else [observed]
    before = sum(model.variances([table], _at(targets, table)).sum() for table in times)
    chosen, reductions = [], []
    for _ in range(number):
        grown = [_observing(model, table, free) for table in times]
        after = sum(_sums(model, tables, targets) for tables in grown)
        reductions.append(100 * (1 - after / before))
        best = int(np.argmin(after))
        chosen.append(free.iloc[best].to_dict() | {"reduction": reductions[-1][best]})
        times, free = [tables[best] for tables in grown], free.drop(index=free.index[best])
    result = pd.DataFrame(chosen, index=pd.RangeIndex(1, number + 1, name="station"))
    if plot is not None:
        from aenp.earth.maps import map_suggestion

        map_suggestion(result, places.assign(reduction=reductions[0]), observed, Path(plot))
    return result


def _places(
    model: FieldModel,
    candidates: PlacesLike,
    observed: pd.DataFrame,
    elevation: FieldLike | None,
    covariates: Sequence[FieldLike],
) -> pd.DataFrame:
    """The places as a table, with elevations and covariates if the model sees them."""
    places = model.places(candidates, observed.drop(columns="time", errors="ignore"), elevation, covariates)
    kept = ["latitude", "longitude", "elevation", *(each.name for each in model.frame.covariates)]
    names = list(dict.fromkeys(name for name in kept if name in places.coordinates))
    columns = xr.broadcast(*(places.coordinates[name] for name in names))
    table = pd.DataFrame({name: each.values.ravel() for name, each in zip(names, columns, strict=True)})
    return table.dropna(subset=[name for name in names if name in model.frame.axes]).reset_index(drop=True)


def _at(places: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The places at the time of these observations, if they have one."""
    return places.assign(time=table["time"].iloc[0]) if "time" in table else places


def _observing(model: FieldModel, table: pd.DataFrame, places: pd.DataFrame) -> list[pd.DataFrame]:
    """The observations together with what is predicted at one further place, for each of the places."""
    further = _at(places, table)
    further = further.assign(value=model.predict(table, further, "value")["mean"].values.astype(float))
    return [pd.concat([table, further.iloc[[row]]], join="inner", ignore_index=True) for row in range(len(further))]


def _sums(model: FieldModel, tables: list[pd.DataFrame], targets: pd.DataFrame) -> Float[ndarray, " tables"]:
    """The sum of the targets' variances given each of the tables."""
    parts = (tables[first : first + BATCH] for first in range(0, len(tables), BATCH))
    return np.concatenate([model.variances(part, _at(targets, part[0])).sum(1) for part in parts])
