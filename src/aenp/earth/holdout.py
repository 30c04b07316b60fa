"""Tasks from a user's data: what is observed at a time, what is to be predicted, and what baselines may learn from."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool
from numpy import ndarray
from numpy.random import Generator

from aenp.earth.baselines import MAX_TIMES, Split
from aenp.earth.climatology import PLACE, nearby, positions
from aenp.earth.field_model import FieldModel
from aenp.earth.gridded import FieldLike, open_gridded
from aenp.earth.places import PlacesLike, elevation_or_error, open_places
from aenp.earth.points import PointsLike, is_scattered
from aenp.earth.regions import Period, Region, inside, no_data, wrap
from aenp.earth.sources import EPOCH, READ_FROM, NoSuchVariable, NoValues, describe

STATIONS, CELLS = 0.8, 0.1
"The share of the places that is observed, of stations and of the cells of a grid."
MAX_CELLS, MAX_CONTEXT, MAX_TARGETS, MAX_HISTORY = 4096, 4096, 1000, 1000
"Cells of a grid, observations and targets of a task, and times for baselines; of more, so many are drawn at random."
NEAR = 0.05
"Kilometres within which two places are the same."


@dataclass(frozen=True)
class Choice:
    """What to hold out.

    Args:
        stations: places that the model has never seen, which are the targets at all times; by default each time has its
            own random targets.
        days: first and last date; by default those after the model's training period, or else others outside it.
        region: south, north, west, east in degrees; by default all of the data.
        fraction: the share of places that is observed; by default 0.8 of stations, 0.1 of the cells of a grid, and all
            places other than `stations`.
        tasks: the largest number of times to predict, spread over the days.
        variable: the name of the values; by default the name in training, or the only one. Of a model of several
            variables, the one to predict, where all are observed at the other places.
        elevation: a topography in metres, for kriging with elevation and for models that see it, if data have none.
        seed: of the choice of places and times.
        covariates: fields of the model's covariates, if the data have none.
    """

    stations: PlacesLike | None = None
    days: Period | None = None
    region: Region | None = None
    fraction: float | None = None
    tasks: int = 30
    variable: str | None = None
    elevation: FieldLike | None = None
    seed: int = 0
    covariates: Sequence[FieldLike] = ()

    def __post_init__(self) -> None:
        if self.fraction is not None and not 0 < self.fraction < 1:
            raise ValueError(f"fraction, the share of places observed, must be between 0 and 1; got {self.fraction}")
        if self.tasks < 1:
            raise ValueError(f"tasks, the number of times to predict, must be at least 1; got {self.tasks}")


@dataclass(frozen=True)
class Holdout:
    """What is held out.

    Args:
        splits: what is observed and what is to be predicted at each time.
        history: observations for baselines to learn from, without places that the model has never seen.
        rehearsals: some times of the history, split in the same way.
        note: what to know about the times, if anything.
        around: observations of the times of the splits and those beside them, for a model that sees these.
        reach: how far from a time such a model sees.
    """

    splits: Sequence[Split]
    history: pd.DataFrame
    rehearsals: Sequence[Split]
    note: str
    around: pd.DataFrame
    reach: np.timedelta64

    def seen(self, split: Split) -> pd.DataFrame:
        """What the model is given: the observations at the context's places within its reach."""
        if not self.reach:
            return split.context
        near = self.around[(self.around["time"] - split.target["time"].iloc[0]).abs() <= self.reach]
        places = pd.MultiIndex.from_frame(split.context[PLACE])
        return near[pd.MultiIndex.from_frame(near[PLACE]).isin(places)].reset_index(drop=True)


def hold_out(model: FieldModel, data: PointsLike, choice: Choice) -> Holdout:
    """The tasks, and for baselines the data of the training period or, if there are none, of other times.

    If there is a single time, baselines learn from what is observed then.
    """
    if model.frame.kinds and choice.variable not in model.columns:
        raise ValueError(
            f"the model has the variables {', '.join(model.columns)}; choose with `variable` which one to predict; got "
            f"{choice.variable}"
        )
    rng = np.random.default_rng(choice.seed)
    source, density, fewer = _open(model, data, choice, rng)
    times = usable = np.unique(source["time"])
    if model.frame.kinds and isinstance(source, pd.DataFrame):
        usable = np.unique(source["time"][source[choice.variable].notna()])
        _check_any(usable, data, choice)
    tested, past, note = _periods(usable, model.frame.period, choice.days, describe(data))
    chosen = _some(usable[tested], choice.tasks, rng)
    earlier, reach = _some(usable[past], MAX_HISTORY, rng), model.frame.reach or np.timedelta64(0, "s")
    beside = times[(np.abs(times[:, None] - chosen) <= reach).any(axis=1)]
    table = _table(model, source, np.unique(np.concatenate([chosen, earlier, beside])), choice)
    _check_any(table["value"].dropna(), data, choice)
    unseen = _unseen(table, choice.stations)
    fraction = choice.fraction or (CELLS if density else STATIONS)
    share = min(fraction * (density or 1.0), max(fraction, 0.5))
    everything = 1.0 if choice.fraction is None and choice.stations is not None else share
    is_tested = table["time"].isin(chosen).to_numpy()
    splits = list(_splits(table[is_tested], unseen[is_tested], everything, choice.stations is not None, rng))
    history = table[table["time"].isin(earlier) & ~is_tested & ~unseen].dropna(subset="value")
    if history.empty and splits:
        history = pd.concat([split.context for split in splits]).dropna(subset="value")
    practice = history[history["time"].isin(_some(np.unique(history["time"]), MAX_TIMES, rng))]
    rehearsals = list(_splits(practice, np.zeros(len(practice), bool), share, False, rng))
    if not splits or not rehearsals:
        raise ValueError(f"{describe(data)} has too few places; each time needs one to predict from and one to predict")
    around = table[table["time"].isin(beside) & ~unseen]
    return Holdout(splits, history, rehearsals, " ".join(filter(None, [note, fewer])), around, reach)


def _check_any(known: ndarray | pd.Series, data: PointsLike, choice: Choice) -> None:
    """Raises an error if nothing is known of the variable to predict."""
    if not len(known):
        raise NoValues(f"{describe(data)} has no values of {choice.variable} to predict; choose another `variable`")


def held_out_table(model: FieldModel, data: PointsLike, choice: Choice) -> pd.DataFrame:
    """The observations of times like those that `hold_out` splits, without what baselines learn from."""
    rng = np.random.default_rng(choice.seed)
    source = _open(model, data, choice, rng)[0]
    times = np.unique(source["time"])
    tested = _periods(times, model.frame.period, choice.days, describe(data))[0]
    return _table(model, source, _some(times[tested], choice.tasks, rng), choice)


def _open(
    model: FieldModel, data: PointsLike, choice: Choice, rng: Generator
) -> tuple[pd.DataFrame | xr.Dataset, float | None, str]:
    """The observations with their times, of a grid as points, how many cells each of these stands for, and a note.

    Of very many places, some are drawn at random, which the note tells.
    """
    name = None if model.frame.kinds else choice.variable
    if is_scattered(data):
        table = model.observed(data, name, choice.elevation, choice.covariates)
        table, note = _fewer(table, choice.stations, rng)
        return table if "time" in table else table.assign(time=EPOCH), None, note
    fields = _fields(model, data, name, choice.region)
    cells = fields[0][0].size
    drawn = np.sort(rng.permutation(cells)[:MAX_CELLS])
    rows, columns = (xr.DataArray(index, dims="place") for index in np.unravel_index(drawn, fields[0].shape[1:]))
    every = [*fields, *_known(model, data, fields[0], choice.region)]
    parts = {str(each.name): each.isel(latitude=rows, longitude=columns) for each in every}
    points = xr.Dataset(parts, attrs={READ_FROM: describe(data)})
    dated = points if "time" in points.coords else points.assign_coords(time=[EPOCH])
    return dated, cells / len(drawn), _drawn(cells, "cells")


def _fields(model: FieldModel, data: PointsLike, name: str | None, region: Region | None) -> list[xr.DataArray]:
    """The fields of the model's variables, or that of this name, or the only one."""
    fields = []
    for each in model.frame.variables:
        try:
            fields.append(open_gridded(data, name or each.name, region))
        except NoSuchVariable:
            if name is not None:
                raise
    return fields or [open_gridded(data, region=region)]


def _known(model: FieldModel, data: PointsLike, like: xr.DataArray, region: Region | None) -> Iterator[xr.DataArray]:
    """Those of the model's covariates that the data hold on the same grid, without time if they do not change."""
    for each in model.frame.covariates:
        with suppress(NoSuchVariable):
            field = open_gridded(data, each.name, region).rename(each.name)
            if all(field.indexes[name].equals(like.indexes[name]) for name in PLACE):
                yield field if "time" in field.coords else field.isel(time=0)


def _fewer(table: pd.DataFrame, stations: PlacesLike | None, rng: Generator) -> tuple[pd.DataFrame, str]:
    """The observations of at most `MAX_CELLS` places, and of the stations named, with a note."""
    places = table[PLACE].drop_duplicates()
    if len(places) <= MAX_CELLS:
        return table, ""
    drawn = places.iloc[np.sort(rng.permutation(len(places))[:MAX_CELLS])]
    kept = pd.MultiIndex.from_frame(table[PLACE]).isin(pd.MultiIndex.from_frame(drawn)) | _unseen(table, stations)
    return table[kept], _drawn(len(places), "places")


def _drawn(number: int, what: str) -> str:
    return f"Of {number:,} {what}, {MAX_CELLS:,} drawn at random are used." if number > MAX_CELLS else ""


def _periods(
    times: ndarray, period: Sequence[str] | None, days: Period | None, where: str
) -> tuple[Bool[ndarray, " times"], Bool[ndarray, " times"], str]:
    """Which times are to be predicted, which baselines may learn from, and a note on what is unusual."""
    number, count = np.arange(len(times)), len(times)
    trained = np.zeros(count, bool) if period is None else inside("time", times, None, (period[0], period[1]))
    if days is not None:
        tested = inside("time", times, None, days)
        if not tested.any():
            raise no_data(where, None, days, {"time": times})
    elif trained.all():
        tested = number >= count - max(1, count // 10)
    elif trained.any():
        later = number > number[trained].max()
        tested = later if later.any() else ~trained
    else:
        tested = number >= 2 * count // 3
    past = trained & ~tested
    note = "" if past.any() else "The data do not hold the training period, so baselines learned from other times."
    if period is None:
        note = "The model does not know its training period, which may include the times predicted here."
    if (tested & trained).any():
        note = (
            f"The training data are from {' to '.join(period or ())}, which includes times predicted here; `fit` does "
            "not train on the last tenth of its data."
        )
    return tested, past if past.any() else ~tested, note


def _some(times: ndarray, number: int, rng: Generator) -> ndarray:
    """At most this many of the times: one at random from each of as many parts of equal length."""
    if len(times) <= number:
        return times
    return times[((np.arange(number) + rng.random(number)) * len(times) / number).astype(int)]


def _table(model: FieldModel, source: pd.DataFrame | xr.Dataset, times: ndarray, choice: Choice) -> pd.DataFrame:
    """The observations of these times, one for each place and time, with elevations if these are all known."""
    if isinstance(source, xr.Dataset):
        some = source.isel(time=np.isin(source["time"], times))
        table = model.observed(some, elevation=choice.elevation, covariates=choice.covariates)
    else:
        table = source[source["time"].isin(times)]
    if model.frame.kinds:
        table = table.assign(value=table[choice.variable])
    if choice.region is not None:
        whole, table = table, table.assign(longitude=wrap(table["longitude"], choice.region))
        for name in PLACE:
            table = table[inside(name, table[name].to_numpy(), choice.region, None)]
        if table.empty:
            raise no_data(describe(source), choice.region, choice.days, {name: whole[name] for name in PLACE})
    table = _each_once(table.reset_index(drop=True))
    if choice.elevation is not None and "elevation" not in table:
        table = _with_elevation(table, choice.elevation, describe(source))
    return table.drop(columns="elevation") if "elevation" in table and table["elevation"].isna().any() else table


def _each_once(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each time and place, as `fit` sees them: rows that differ in their elevation become their mean."""
    keys = ["time", *PLACE]
    if not table.duplicated(keys).any():
        return table
    once = table.groupby(keys, sort=False, as_index=False).mean()
    once.attrs = table.attrs
    return once


def _with_elevation(table: pd.DataFrame, topography: FieldLike, where: str) -> pd.DataFrame:
    places = table[PLACE].drop_duplicates()
    at = places["latitude"].to_numpy(float), places["longitude"].to_numpy(float)
    heights = elevation_or_error(np.full(len(places), np.nan), *at, topography, where)
    return table.merge(places.assign(elevation=heights), on=PLACE, how="left")


def _unseen(table: pd.DataFrame, stations: PlacesLike | None) -> Bool[ndarray, " rows"]:
    """Which observations are from the stations that the model has never seen."""
    if stations is None:
        return np.zeros(len(table), bool)
    named = open_places(stations, table.drop(columns="time", errors="ignore"), any_time=True).coordinates
    latitude, longitude = (each.values.ravel() for each in xr.broadcast(*(named[name] for name in PLACE)))
    at = positions(pd.DataFrame({"latitude": latitude, "longitude": longitude}))
    here = positions(table)
    missing = ~_close(at, here)
    if missing.any():
        where = f"{latitude[missing][0]:.4f}, {longitude[missing][0]:.4f}"
        raise ValueError(
            f"the data have no observations at {missing.sum()} of the stations, such as {where}; leave these out, or "
            "correct their places"
        )
    return _close(here, at)


def _close(a: ndarray, b: ndarray) -> Bool[ndarray, " points"]:
    """Whether each of the places `a` is one of `b`."""
    index = nearby(b, a)[0][:, 0]
    return np.linalg.norm(a - b[index], axis=1) < NEAR


def _splits(
    table: pd.DataFrame, unseen: Bool[ndarray, " rows"], share: float, named: bool, rng: Generator
) -> Iterator[Split]:
    """A share of the places seen of each time, and what is not seen, if named, or else the other places.

    Where the value is missing, another variable may be observed, but nothing is to be predicted.
    """
    known = table["value"].notna().to_numpy()
    for rows in table.groupby("time").indices.values():
        seen = rng.permutation(rows[~unseen[rows]])
        count = max(1, min(round(share * len(seen)), len(seen) - (not named)))
        context, target = seen[:count], rows[unseen[rows]] if named else seen[count:]
        target = target[known[target]]
        if known[context].any() and len(target):
            parts = context[:MAX_CONTEXT], target[:MAX_TARGETS]
            yield Split(*(table.iloc[part].reset_index(drop=True) for part in parts))
