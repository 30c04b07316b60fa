"""A scientist's own field or stations as tasks in a model's units, for training and for validation."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from aenp.data.blocks import BATCHES, hold_out_blocks, in_blocks
from aenp.data.kinds import CountedFromLevels, largest_share, levels_are_closer
from aenp.data.patches import CELLS_PER_UNIT, Patches
from aenp.data.stream import TaskSource
from aenp.data.windows import Windows
from aenp.earth import deviations
from aenp.earth.covariates import Layer, as_list, columns_and_layers, lacking, unscaled, with_covariates
from aenp.earth.frame import Covariate, Frame, Variable
from aenp.earth.framing import (
    PLACE,
    RELATIVE,
    dates_of,
    frame_of,
    moments,
    period_of,
    scaled_covariates,
    unwrap_longitudes,
    variable_in,
)
from aenp.earth.gridded import open_gridded
from aenp.earth.normalised import Normalised, stacked
from aenp.earth.points import PointsLike, check_units, is_scattered, joined, open_points
from aenp.earth.regions import Period, Region
from aenp.earth.sources import FieldLike, describe, names_of, only_covariates, with_coordinates, without_fills
from aenp.earth.time_windows import days_in, in_time
from aenp.task import Task

IN_MEMORY = 2**30
"The largest field, in bytes, that is read into memory as a whole."
POINTS_IN_WINDOW = 128
MIN_POINTS = 8
"The smallest number of observations in a task."
BLOCK, WINDOW = 0.5, 2.0
"Sides of a block that is held out, and of the window around it or around stations, in units of x."
WIDE = 8.0
"Side of the largest window around stations: a prediction is often made from all of them at once."
OBSERVED = 0.9
"Largest share of the observations around stations that is context: new places are predicted from all stations."
TARGETS, MOST_POINTS = 128, 512
"Largest numbers of targets and of observations in a task with stations."
SHARE, LARGEST_SHARE, FEW = 0.2, 0.25, 16
"The share of the stations that is held out; of a small network more, up to a quarter, so that these are not too few."


@dataclass(frozen=True)
class Data:
    """Tasks in a model's units, and the frame that defines these units.

    Args:
        source: tasks for training.
        validation: tasks for validation.
        frame: coordinates and units.
        new_places: whether the targets of the validation are at stations that are in no task for training.
        spacing: the distance from one station to the next in units of x; 0 for a grid.
        cycles: lengths in days of the cycles that the data cover, if time is an axis of the frame.
        centred: whether the values of each of several variables are counted from the mean of those in the context.
        doubt: of anomalies, the error of the climatology that these are counted from, at places in units of x.
    """

    source: TaskSource
    validation: list[Task]
    frame: Frame
    new_places: bool = False
    spacing: float = 0.0
    cycles: tuple[float, ...] = ()
    centred: bool = False
    doubt: Callable[[Tensor], Tensor] | None = None


def prepare(
    data: PointsLike,
    variable: str | Sequence[str] | None = None,
    region: Region | None = None,
    period: Period | None = None,
    likelihood: str = "normal",
    bounds: tuple[float, float] | None = None,
    covariates: Sequence[FieldLike] = (),
    anomalies: bool = False,
    given: str | None = None,
    time: str | None = None,
) -> Data:
    """The data as tasks: the first nine tenths of the dates for training, the others for validation.

    A fifth of the stations is in no task for training, and validation predicts these from the others. Of a single
    date, blocks of its values are held out. If that is a field with gaps, the context of half the tasks is what other
    gaps like these leave. Several variables are observed independently of each other, one often more than another.
    """
    make_variable, days = partial(variable_in, likelihood, bounds), None if time is None else days_in(time)
    names = _names(data, variable, covariates)
    if len(names) > 1 and (anomalies or given is not None):
        raise ValueError(
            f"anomalies and a first guess are of one variable; got {', '.join(map(str, names))}. Leave them out, or "
            "choose one with `variable`"
        )
    scattered = is_scattered(data)
    columns, layers = columns_and_layers(covariates, data, scattered)
    if scattered:
        tables = [open_points(data, name, region, period, columns) for name in names]
        check_units(data, [str(each.attrs["name"]) for each in tables])
        table = joined({_column(names, each): each for each in tables})
        known = unscaled(columns, layers, table)
        table = with_covariates(table, known, layers, describe(data))
        attributes = {_column(names, each): each.attrs for each in tables}
        beside = [each.name for each in known]
        prepared = _from_points(table, attributes, make_variable, beside, anomalies, given, days)
    else:
        fields = [without_fills(_in_memory(open_gridded(data, name, region, period)), describe(data)) for name in names]
        prepared = _from_fields(fields, describe(data), make_variable, layers, anomalies, given, days)
    return _centred(prepared) if likelihood in RELATIVE and prepared.frame.kinds else prepared


def _names(
    data: PointsLike, variable: str | Sequence[str] | None, covariates: Sequence[FieldLike]
) -> list[str] | list[None]:
    """The variables to learn: those named, or all of a data set in memory but covariates; None for the only one."""
    known = [each for each in as_list(covariates) if isinstance(each, str)]
    if variable is None and isinstance(data, xr.Dataset) and len(data.data_vars) > 1:
        dataset = with_coordinates(data, "latitude", "longitude", "time", "elevation")
        names = [name for name in names_of(dataset, describe(data)) if name not in known]
        if not names:
            raise only_covariates(describe(data), known)
        return names
    if variable is None:
        return [None]
    names = [variable] if isinstance(variable, str) else list(dict.fromkeys(variable))
    if both := [name for name in names if name in known]:
        raise ValueError(f"{both[0]} is to be predicted, so it cannot be a covariate; leave it out of the covariates")
    return names


def _column(names: Sequence[str | None], table: pd.DataFrame) -> str:
    return str(table.attrs["name"]) if len(names) > 1 else "value"


def _centred(data: Data) -> Data:
    """The data with values counted from the mean of each variable in the context, if that is closer to the targets."""
    kinds = data.frame.kinds
    if not levels_are_closer((data.source.batch(16, index, seed=0) for index in range(BATCHES)), kinds):
        return data
    source = CountedFromLevels(data.source, kinds)
    return replace(data, source=source, validation=list(map(source.relative, data.validation)), centred=True)


def _in_memory(field: xr.DataArray) -> xr.DataArray:
    return field.load() if field.nbytes <= IN_MEMORY else field


def _from_fields(
    fields: Sequence[xr.DataArray],
    where: str,
    make_variable: Callable[..., Variable],
    layers: Mapping[str, Layer],
    anomalies: bool,
    given: str | None,
    days: float | None,
) -> Data:
    """Patches of the fields; a unit of x is `CELLS_PER_UNIT` cells."""
    field = fields[0]
    for other in fields[1:]:
        one, two = field.indexes, other.indexes
        if other.sizes != field.sizes or set(one) != set(two) or not all(two[name].equals(one[name]) for name in one):
            raise ValueError(
                f"{where}: {field.name} and {other.name} are not on the same grid at the same times; bring them on one "
                "with .interp_like, or choose from them with `variable`"
            )
    if min(field.shape[1:]) < 4:
        raise ValueError(f"a field needs at least 4 × 4 points to learn from; got {field.shape[1]} × {field.shape[2]}")
    unwrapped = unwrap_longitudes(field.longitude.values)
    fields = [each.assign_coords(longitude=unwrapped).sortby("longitude") for each in fields]
    field = fields[0]
    latitude, longitude = field.latitude.values, field.longitude.values
    steps = [float(np.median(np.diff(values))) for values in (latitude, longitude)]
    covariates, known = _on_grid(fields, layers)
    variables = [make_variable(str(each.name), *moments(str(each.name), each), each.attrs) for each in fields]
    size, degrees = min(32, *field.shape[1:]), CELLS_PER_UNIT * max(steps)
    sides = [WINDOW * degrees] * 2 if days is not None else [size * step for step in steps]
    frame = frame_of(latitude, longitude, steps, degrees, sides, variables, period_of(field), covariates)
    axes = frame.axes["latitude"].x(latitude), frame.axes["longitude"].x(longitude)
    gaps = 0.5 if len(field) == 1 and any(bool(each.isnull().any()) for each in fields) else 0.0

    def patches(values: Any, known: ndarray | None) -> Patches:
        shares = (0.01, largest_share(len(fields)))
        return Patches(values, axes, size, shares, equal_sizes=True, num_targets=256, gaps=gaps, covariates=known)

    values: Any = Normalised([each.data for each in fields], variables)
    if anomalies:
        places = np.meshgrid(latitude, longitude, indexing="ij")
        every = field.values.reshape(len(field), -1)
        times = field["time"].values if "time" in field.coords else np.arange(len(field))
        at = places[0].ravel(), places[1].ravel()
        frame, flat = deviations.anomalies(frame, times, *at, every, _first_held_out(field))
        values = flat.reshape(field.shape)
    if given is not None:
        frame, values = deviations.differences(frame, given, field.values, known)
    if days is not None:
        cells = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        every = values if isinstance(values, ndarray) else values[:, :, :]
        flat_known = None if known is None else known.reshape(*known.shape[:-3], -1, known.shape[-1])
        windows = Windows(
            every.reshape(len(field), len(cells), *every.shape[3:]),
            cells,
            WINDOW,
            max_points=MOST_POINTS,
            min_points=MIN_POINTS,
            num_targets=256,
            covariates=flat_known,
        )
        return Data(**in_time(windows, windows, dates_of(field), frame, days)._asdict())
    if len(field) == 1:
        return _single(patches, values[0], np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), frame, known)
    return _data(patches, values, frame, known)


def _on_grid(fields: Sequence[xr.DataArray], layers: Mapping[str, Layer]) -> tuple[list[Covariate], ndarray | None]:
    """The covariates, and their scaled values on the fields' grid, at each time if one of them changes."""
    if not layers:
        return [], None
    field = fields[0]
    times = field["time"].values if "time" in field.coords else None
    latitude, longitude = np.meshgrid(field.latitude.values, field.longitude.values, indexing="ij")
    each = [layer.on(latitude.ravel(), longitude.ravel(), times) for layer in layers.values()]
    values = np.stack(np.broadcast_arrays(*each), axis=-1).reshape(-1, *field.shape[1:], len(layers))
    there = np.any([each.notnull().values for each in fields], axis=0)
    missing = np.isnan(values) & there[..., None]
    if missing.any():
        time, i, j, number = (int(index[0]) for index in np.nonzero(missing))
        when = times[time] if times is not None else None
        raise lacking(list(layers)[number], "training", layers, latitude[i, j], longitude[i, j], when)
    covariates, scaled = scaled_covariates({name: layer.units for name, layer in layers.items()}, values)
    return covariates, scaled if len(scaled) > 1 else scaled[0]


def _from_points(
    table: pd.DataFrame,
    attributes: Mapping[str, Mapping[Any, Any]],
    make_variable: Callable[..., Variable],
    names: Sequence[str],
    anomalies: bool,
    given: str | None,
    days: float | None,
) -> Data:
    """Windows with about `POINTS_IN_WINDOW` stations; a unit of x is half their side."""
    dated = table if "time" in table else table.assign(time=pd.Timestamp(0))
    every = dated.pivot_table(index="time", columns=list(PLACE), aggfunc="size")

    def by_time(column: str) -> pd.DataFrame:
        one = dated.pivot_table(index="time", columns=list(PLACE), values=column)
        return one.reindex(index=every.index, columns=every.columns)

    wide = {column: by_time(column) for column in attributes}
    observed = sum(each.notna().astype(int) for each in wide.values())
    latitude, longitude = (every.columns.get_level_values(name).to_numpy(float) for name in PLACE)
    longitude = unwrap_longitudes(longitude)
    short, long = sorted((float(np.ptp(latitude)), float(np.ptp(longitude))))
    if not long:
        raise ValueError("all observations are from one place, which tells nothing about others; give several places")
    together = observed.sum(axis=1).median()
    if days is None and together < MIN_POINTS:
        raise ValueError(
            f"most times have fewer than {MIN_POINTS} observations, in the median {together:g}: too few to learn how "
            "places are related. If stations report at different times, give `time`, the length of a window such as "
            "'6 hours', or round their times, for example by table.time.dt.floor('h')"
        )
    area = long * max(short, long / len(latitude))  # stations on a line are as wide as they are apart
    degrees = math.sqrt(area * min(1.0, POINTS_IN_WINDOW / len(latitude))) / 2
    covariates: list[Covariate] = []
    known = None
    if names:
        units = {each: table.attrs["units_of"].get(each) for each in names}
        covariates, known = scaled_covariates(units, np.stack([by_time(each).to_numpy() for each in names], axis=-1))
    named = [(str(about.get("name", "value")), table[column], about) for column, about in attributes.items()]
    variables = [make_variable(name, *moments(name, each), about) for name, each, about in named]
    extent = max(np.ptp(latitude), np.ptp(longitude)) / degrees
    sizes = WINDOW, float(np.clip(extent, WINDOW, WIDE))
    sides = [math.sqrt(sizes[0] * sizes[1]) * degrees] * 2  # tiles of the size in the middle of those met in training
    frame = frame_of(latitude, longitude, (0.0, 0.0), degrees, sides, variables, period_of(table), covariates)
    places = frame.x({"latitude": latitude, "longitude": longitude})
    spacing = WINDOW / math.sqrt(min(len(places), POINTS_IN_WINDOW))
    values = [each.to_numpy(copy=True) for each in wide.values()]
    unseen = _unseen(observed, places, spacing, days)
    for each in values:
        each[: _first_held_out(each), unseen] = np.nan
    scaled = stacked([one.y(each).astype(np.float32) for one, each in zip(variables, values, strict=True)])
    if anomalies:
        times = every.index.to_numpy()
        trained, where = _first_held_out(times), (latitude, longitude)
        in_training, scaled = deviations.anomalies(frame, times, *where, values[0], trained)
        frame = deviations.anomalies(frame, times, *where, next(iter(wide.values())).to_numpy(), trained)[0]
    if given is not None:
        frame, scaled = deviations.differences(frame, given, values[0], known)
    make = partial(Windows, places=places, extent=sizes, max_points=MOST_POINTS, min_points=MIN_POINTS, share=OBSERVED)

    def windows(values: ndarray, known: ndarray | None) -> Windows:
        return make(values, num_targets=TARGETS, covariates=known)

    def windows_with_new_places(values: ndarray, known: ndarray | None) -> Windows:
        return make(values, covariates=known, unseen=unseen)

    held_out = windows_with_new_places if unseen.any() else windows
    if days is not None:
        parts = windows(scaled, known), held_out(scaled, known)
        data = Data(**in_time(*parts, dates_of(table), frame, days)._asdict())
    elif len(scaled) == 1:
        data = _single(windows, scaled[0], places, frame, None if known is None else known[0])
    else:
        data = _data(windows, scaled, frame, known, held_out)
    doubt = partial(_doubt, in_training) if anomalies else None
    return replace(data, new_places=bool(unseen.any()), spacing=spacing, doubt=doubt)


def _doubt(frame: Frame, x: Float[Tensor, "*points dim_x"]) -> Float[Tensor, "*points 1"]:
    """The standard error of the frame's climatology at places in the model's unit, whose time does not matter."""
    each = zip(frame.axes.items(), x.flatten(0, -2).T.double().numpy(), strict=False)
    doubt = frame.doubt({name: axis.origin + axis.unit * values for (name, axis), values in each})
    return torch.from_numpy(doubt).float().view(*x.shape[:-1], 1)


def _unseen(
    observed: pd.DataFrame, places: Float[ndarray, "stations 2"], spacing: float, days: float | None
) -> Bool[ndarray, " stations"]:
    """Which stations are held out, given how many values each has at each time.

    Neighbours are held out together, and only stations with values at the dates held out too. None are if there
    are too few dates, or too few observations at a time, or in a window of `days`, would be left.
    """
    known = observed[_first_held_out(observed) :].any().to_numpy()
    share = np.clip(FEW / len(places), SHARE, LARGEST_SHARE)
    unseen = in_blocks(places, spacing, share) & known
    left = observed.loc[:, ~unseen].sum(axis=1)
    if days is not None:
        left = left.rolling(pd.Timedelta(days=days), closed="both").sum()
    return unseen if unseen.sum() > 1 and left.median() >= 2 * MIN_POINTS else np.zeros_like(unseen)


def _first_held_out(values: Any) -> int:
    """The number of the first date for validation."""
    return len(values) - len(values) // 10


def _single(
    make: Callable[[Any, ndarray | None], TaskSource],
    values: ndarray,
    places: ndarray,
    frame: Frame,
    covariates: ndarray | None,
) -> Data:
    """The values of one date, of which some blocks are for validation."""
    if not frame.kinds:
        kept, validation = hold_out_blocks(values, places, BLOCK, WINDOW, covariates)
        return Data(make(kept[None], covariates), validation, frame)
    # Each value as a point of its own.
    kind = np.broadcast_to(np.eye(frame.kinds, dtype=np.float32), (*values.shape, frame.kinds))
    known = [] if covariates is None else [np.repeat(covariates[..., None, :], frame.kinds, axis=-2)]
    at = np.broadcast_to(places[..., None, :], (*values.shape, places.shape[-1]))
    kept, validation = hold_out_blocks(values, at, BLOCK, WINDOW, np.concatenate([*known, kind], axis=-1))
    return Data(make(kept[None], covariates), validation, frame)


def _data(
    make: Callable[[Any, ndarray | None], TaskSource],
    values: Any,
    frame: Frame,
    covariates: ndarray | None,
    make_validation: Callable[[Any, ndarray | None], TaskSource] | None = None,
) -> Data:
    """The values of several dates, the last of which are for validation."""
    first, dimensions = _first_held_out(values), len(values.shape) - bool(frame.kinds)
    change = covariates is not None and covariates.ndim > dimensions

    def part(make: Callable[[Any, ndarray | None], TaskSource], dates: slice) -> TaskSource:
        return make(values[dates], covariates[dates] if covariates is not None and change else covariates)

    last = slice(first, None)
    held_out = part(make_validation or make, last) if first < len(values) else None
    validation = [] if held_out is None else [held_out.batch(16, index, seed=0) for index in range(BATCHES)]
    return Data(part(make, slice(first)), validation, frame)
