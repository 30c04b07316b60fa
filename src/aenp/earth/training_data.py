"""A scientist's own field or stations as tasks in a model's units, for training and for validation."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Bool, Float
from numpy import ndarray

from aenp.data.blocks import BATCHES, hold_out_blocks, in_blocks
from aenp.data.patches import CELLS_PER_UNIT, Patches
from aenp.data.stream import TaskSource
from aenp.data.windows import Windows
from aenp.earth.climatology import Climatology
from aenp.earth.covariates import Layer, columns_and_layers, lacking, unscaled, with_covariates
from aenp.earth.frame import Axis, Covariate, Frame, Variable
from aenp.earth.gridded import open_gridded
from aenp.earth.points import PointsLike, is_scattered, open_points
from aenp.earth.reference import Given
from aenp.earth.sources import FieldLike, Period, Region, converted, describe, without_fills
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
TARGETS, MOST_POINTS = 128, 512
"Largest numbers of targets and of observations in a task with stations."
SHARE, LARGEST_SHARE, FEW = 0.1, 0.25, 16
"The share of the stations that is held out; of a small network more, up to a quarter, so that these are not too few."
SAME = 1e-5
"Of a variable's std, within which differences are those of rounding."
PLACE = ("latitude", "longitude")
BOUNDS = {"%": (0.0, 100.0), "percent": (0.0, 100.0), "1": (0.0, 1.0), "(0 - 1)": (0.0, 1.0)}
"The bounds of bounded variables in units that tell them."


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
    """

    source: TaskSource
    validation: list[Task]
    frame: Frame
    new_places: bool = False
    spacing: float = 0.0
    cycles: tuple[float, ...] = ()


def prepare(
    data: PointsLike,
    variable: str | None = None,
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

    A tenth of the stations is in no task for training, and validation predicts these from the others. Of a single
    date, blocks of its values are held out. If that is a field with gaps, the context of half the tasks is what other
    gaps like these leave.
    """
    make_variable, days = partial(_variable, likelihood, bounds), None if time is None else days_in(time)
    scattered = is_scattered(data)
    columns, layers = columns_and_layers(covariates, data, scattered)
    if scattered:
        table = open_points(data, variable, region, period, columns)
        table = with_covariates(table, unscaled(columns, layers, table), layers, describe(data))
        return _from_points(table, make_variable, [*columns, *layers], anomalies, given, days)
    field = without_fills(_in_memory(open_gridded(data, variable, region, period)), describe(data))
    return _from_field(field, make_variable, layers, anomalies, given, days)


def _variable(
    likelihood: str,
    bounds: tuple[float, float] | None,
    name: str,
    mean: float,
    std: float,
    units: str,
    long_name: str,
) -> Variable:
    """The variable in units that suit the likelihood: from its mean, from zero, or from one bound to the other."""
    if likelihood == "normal":
        return Variable(name, mean, std, units, long_name)
    if likelihood == "precipitation":
        return Variable(name, 0.0, std, units, long_name, low=0.0)
    known = bounds or BOUNDS.get(units)
    if known is None:
        raise ValueError(f"bounds of {name} in {units!r} are not known; give them, such as bounds=(0, 100)")
    low, high = known
    return Variable(name, low, high - low, units, long_name, low, high)


class Normalised:
    """A field in a model's unit, read and computed as it is sliced."""

    def __init__(self, field: Any, variable: Variable) -> None:
        self.field, self.variable, self.shape = field, variable, field.shape

    def __len__(self) -> int:
        return len(self.field)

    def __getitem__(self, part: Any) -> Any:
        if isinstance(part, slice):
            return Normalised(self.field[part], self.variable)
        return self.variable.y(np.asarray(self.field[part])).astype(np.float32)


def _in_memory(field: xr.DataArray) -> xr.DataArray:
    return field.load() if field.nbytes <= IN_MEMORY else field


def _from_field(
    field: xr.DataArray,
    make_variable: Callable[..., Variable],
    layers: Mapping[str, Layer],
    anomalies: bool,
    given: str | None,
    days: float | None,
) -> Data:
    """Patches of the field; a unit of x is `CELLS_PER_UNIT` cells."""
    if min(field.shape[1:]) < 4:
        raise ValueError(f"a field needs at least 4 × 4 points to learn from; got {field.shape[1]} × {field.shape[2]}")
    field = field.assign_coords(longitude=unwrap_longitudes(field.longitude.values)).sortby("longitude")
    latitude, longitude = field.latitude.values, field.longitude.values
    steps = [float(np.median(np.diff(values))) for values in (latitude, longitude)]
    covariates, known = _on_grid(field, layers)
    frame = _frame(
        latitude,
        longitude,
        steps,
        CELLS_PER_UNIT * max(steps),
        field.mean(),
        field.std(),
        field,
        make_variable,
        covariates,
    )
    axes = frame.axes["latitude"].x(latitude), frame.axes["longitude"].x(longitude)
    gaps = 0.5 if len(field) == 1 and bool(field.isnull().any()) else 0.0

    def patches(values: Any, known: ndarray | None) -> Patches:
        size, sizes = min(32, *field.shape[1:]), (0.01, 1 / 3)
        return Patches(values, axes, size, sizes, equal_sizes=True, num_targets=256, gaps=gaps, covariates=known)

    values: Any = Normalised(field.data, frame.variables[0])
    if anomalies:
        places = np.meshgrid(latitude, longitude, indexing="ij")
        every = field.values.reshape(len(field), -1)
        times = field["time"].values if "time" in field.coords else np.arange(len(field))
        frame, flat = _anomalies(frame, times, places[0].ravel(), places[1].ravel(), every)
        values = flat.reshape(field.shape)
    if given is not None:
        frame, values = _differences(frame, given, field.values, known)
    if days is not None:
        cells = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        every = (values if isinstance(values, ndarray) else values[:, :, :]).reshape(len(field), -1)
        flat_known = None if known is None else known.reshape(*known.shape[:-3], -1, known.shape[-1])
        windows = Windows(
            every, cells, WINDOW, max_points=MOST_POINTS, min_points=MIN_POINTS, num_targets=256, covariates=flat_known
        )
        return Data(**in_time(windows, windows, _dates(field), frame, days)._asdict())
    if len(field) == 1:
        return _single(patches, values[0], np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), frame, known)
    return _data(patches, values, frame, known)


def _on_grid(field: xr.DataArray, layers: Mapping[str, Layer]) -> tuple[list[Covariate], ndarray | None]:
    """The covariates, and their scaled values on the field's grid, at each time if one of them changes."""
    if not layers:
        return [], None
    times = field["time"].values if "time" in field.coords else None
    latitude, longitude = np.meshgrid(field.latitude.values, field.longitude.values, indexing="ij")
    each = [layer.on(latitude.ravel(), longitude.ravel(), times) for layer in layers.values()]
    values = np.stack(np.broadcast_arrays(*each), axis=-1).reshape(-1, *field.shape[1:], len(layers))
    missing = np.isnan(values) & field.notnull().values[..., None]
    if missing.any():
        time, i, j, number = (int(index[0]) for index in np.nonzero(missing))
        when = times[time] if times is not None else None
        raise lacking(list(layers)[number], "training", layers, latitude[i, j], longitude[i, j], when)
    covariates, scaled = _scaled({name: layer.units for name, layer in layers.items()}, values)
    return covariates, scaled if len(scaled) > 1 else scaled[0]


def _scaled(
    units: Mapping[str, str | None], values: Float[ndarray, "*points covariates"]
) -> tuple[list[Covariate], Float[ndarray, "*points covariates"]]:
    """The covariates with the means and standard deviations of their values, and the values scaled by these."""
    points = tuple(range(values.ndim - 1))
    means, stds = np.nanmean(values, axis=points), np.nanstd(values, axis=points)
    named = zip(units.items(), means.tolist(), stds.tolist(), strict=True)
    covariates = [Covariate(name, mean, std, known or "") for (name, known), mean, std in named]
    return covariates, ((values - means) / stds).astype(np.float32)


def _from_points(
    table: pd.DataFrame,
    make_variable: Callable[..., Variable],
    names: Sequence[str],
    anomalies: bool,
    given: str | None,
    days: float | None,
) -> Data:
    """Windows with about `POINTS_IN_WINDOW` stations; a unit of x is half their side."""
    name = table.attrs.get("name", "value")
    dated = table if "time" in table else table.assign(time=pd.Timestamp(0))

    def by_time(column: str) -> pd.DataFrame:
        return dated.pivot_table(index="time", columns=["latitude", "longitude"], values=column)

    wide = by_time("value")
    latitude, longitude = (wide.columns.get_level_values(name).to_numpy(float) for name in PLACE)
    longitude = unwrap_longitudes(longitude)
    together = wide.notna().sum(axis=1).median()
    if days is None and together < MIN_POINTS:
        raise ValueError(
            f"most times have fewer than {MIN_POINTS} observations, in the median {together:g}: too few to learn how "
            "places are related. If stations report at different times, give `time`, the length of a window such as "
            "'6 hours', or round their times, for example by table.time.dt.floor('h')"
        )
    area = max(np.ptp(latitude) * np.ptp(longitude), 1e-6)
    degrees = math.sqrt(area * min(1.0, POINTS_IN_WINDOW / len(latitude))) / 2
    covariates: list[Covariate] = []
    known = None
    if names:
        units = {each: table.attrs["units_of"].get(each) for each in names}
        covariates, known = _scaled(units, np.stack([by_time(each).to_numpy() for each in names], axis=-1))
    all_values = table["value"]
    moments = all_values.mean(), all_values.std()
    frame = _frame(latitude, longitude, (0.0, 0.0), degrees, *moments, table, make_variable, covariates, name)
    places = frame.x({"latitude": latitude, "longitude": longitude})
    spacing = WINDOW / math.sqrt(min(len(places), POINTS_IN_WINDOW))
    values = wide.to_numpy(copy=True)
    unseen = _unseen(wide, places, spacing, days)
    values[: _first_held_out(values), unseen] = np.nan
    scaled = frame.variables[0].y(values).astype(np.float32)
    if anomalies:
        frame, scaled = _anomalies(frame, wide.index.to_numpy(), latitude, longitude, values)
    if given is not None:
        frame, scaled = _differences(frame, given, values, known)
    extent = WINDOW, float(np.clip(np.ptp(places, axis=0).max(), WINDOW, WIDE))
    make = partial(Windows, places=places, extent=extent, max_points=MOST_POINTS, min_points=MIN_POINTS)

    def windows(values: ndarray, known: ndarray | None) -> Windows:
        return make(values, num_targets=TARGETS, covariates=known)

    def windows_with_new_places(values: ndarray, known: ndarray | None) -> Windows:
        return make(values, covariates=known, unseen=unseen)

    held_out = windows_with_new_places if unseen.any() else windows
    if days is not None:
        parts = windows(scaled, known), held_out(scaled, known)
        data = Data(**in_time(*parts, _dates(table), frame, days)._asdict())
    elif len(scaled) == 1:
        data = _single(windows, scaled[0], places, frame, None if known is None else known[0])
    else:
        data = _data(windows, scaled, frame, known, held_out)
    return replace(data, new_places=bool(unseen.any()), spacing=spacing)


def _unseen(
    table: pd.DataFrame, places: Float[ndarray, "stations 2"], spacing: float, days: float | None
) -> Bool[ndarray, " stations"]:
    """Which stations are held out: neighbours together, and only stations with values at the dates held out too.

    None are if there are too few dates, or too few observations at a time, or in a window of `days`, would be left.
    """
    known = table[_first_held_out(table) :].notna().any().to_numpy()
    share = np.clip(FEW / len(places), SHARE, LARGEST_SHARE)
    unseen = in_blocks(places, spacing, share) & known
    left = table.loc[:, ~unseen].notna().sum(axis=1)
    if days is not None:
        left = left.rolling(pd.Timedelta(days=days), closed="both").sum()
    return unseen if unseen.sum() > 1 and left.median() >= 2 * MIN_POINTS else np.zeros_like(unseen)


def _first_held_out(values: Any) -> int:
    """The number of the first date for validation."""
    return len(values) - len(values) // 10


def _anomalies(
    frame: Frame,
    times: ndarray,
    latitude: Float[ndarray, " places"],
    longitude: Float[ndarray, " places"],
    values: Float[ndarray, "times places"],
) -> tuple[Frame, Float[ndarray, "times places"]]:
    """The frame with a climatology of the dates for training, and the values as deviations from it."""
    if len(values) < 2 or not np.issubdtype(times.dtype, np.datetime64):
        raise ValueError(
            f"anomalies need the climatology of each place, from several dates; got {len(values)}. Give more, or leave "
            "`anomalies` out"
        )
    training = slice(_first_held_out(values))
    known = ~np.isnan(values[training]).all(axis=0)
    climatology = Climatology.of(times[training], latitude[known], longitude[known], values[training][:, known])
    mean, std = climatology.on(times)
    deviations = np.full(values.shape, np.nan, np.float32)
    deviations[:, known] = (values[:, known] - mean) / std
    time, place = np.nonzero(~np.isnan(values) & ~known)
    if len(time):
        mean, std = climatology.at({"latitude": latitude[place], "longitude": longitude[place], "time": times[time]})
        deviations[time, place] = (values[time, place] - mean) / std
    return frame.relative_to(climatology), deviations


def _differences(
    frame: Frame,
    name: str,
    values: Float[ndarray, "times *places"],
    known: Float[ndarray, "*times_and_places covariates"] | None,
) -> tuple[Frame, Float[ndarray, "times *places"]]:
    """The frame with a covariate as the first guess, and the values as differences to it."""
    names, variable = [each.name for each in frame.covariates], frame.variables[0]
    if known is None or name not in names:
        raise ValueError(
            f"given must be the name of one of the covariates, {', '.join(names) or 'of which there are none'}; got "
            f"{name}. Add it to `covariates`"
        )
    covariate = frame.covariates[names.index(name)]
    both = f"the given {name} and {variable.name}"
    zero, one = converted(np.array([0.0, 1.0]), covariate.units, variable.units, both)
    guess = (one - zero) * (covariate.mean + covariate.std * known[..., names.index(name)].astype(float)) + zero
    differences = values - guess
    mean, std = float(np.nanmean(differences)), float(np.nanstd(differences))
    if not std > SAME * variable.std:
        raise ValueError(f"{both} differ by a constant, so that nothing is left to learn; leave `given` out")
    given = Given(name, float(one - zero), float(zero) + mean, std)
    return frame.relative_to(given), ((differences - mean) / std).astype(np.float32)


def unwrap_longitudes(longitude: Float[ndarray, " points"]) -> Float[ndarray, " points"]:
    """The longitudes, those west of the widest gap moved once round the globe, to join regions across the date line."""
    order = np.sort(longitude)
    gaps = np.diff(order, append=order[0] + 360)
    west = order[np.argmax(gaps)]
    return np.where(longitude <= west, longitude + 360, longitude) if west < order[-1] else longitude


def _frame(
    latitude: ndarray,
    longitude: ndarray,
    steps: Sequence[float],
    degrees: float,
    mean: Any,
    std: Any,
    data: xr.DataArray | pd.DataFrame,
    make_variable: Callable[..., Variable],
    covariates: Sequence[Covariate],
    name: str | None = None,
) -> Frame:
    """The frame of data at these places, each of which stands for the cell around it."""
    mean, std = float(mean), float(std)
    if not std > 0:
        raise ValueError(f"the values are all the same or missing: mean {mean:g}, standard deviation {std:g}")
    axes = []
    for kind, values, step in zip(PLACE, (latitude, longitude), steps, strict=True):
        low, high = float(values.min()) - step / 2, float(values.max()) + step / 2
        axes.append(Axis(kind, degrees, (low + high) / 2, low, high))
    units, long_name = (str(data.attrs.get(key, "")) for key in ("units", "long_name"))
    variable = make_variable(name or str(data.name), mean, std, units, long_name)
    return Frame(axes, [variable], _period(data), covariates)


def _period(data: xr.DataArray | pd.DataFrame) -> tuple[str, str] | None:
    """First and last date of the data, if they have dates."""
    known = data.coords if isinstance(data, xr.DataArray) else data.columns
    times = np.asarray(data["time"] if "time" in known else ())
    if not np.issubdtype(times.dtype, np.datetime64):
        return None
    return str(times.min().astype("datetime64[D]")), str(times.max().astype("datetime64[D]"))


def _dates(data: xr.DataArray | pd.DataFrame) -> ndarray:
    """The times of the data, each once and in order; an error if there are none."""
    if _period(data) is None:
        raise ValueError("the data have no dates, so `time`, the length of a window, cannot be used; leave it out")
    return np.unique(data["time"])


def _single(
    make: Callable[[Any, ndarray | None], TaskSource],
    values: ndarray,
    places: ndarray,
    frame: Frame,
    covariates: ndarray | None,
) -> Data:
    """The values of one date, of which some blocks are for validation."""
    kept, validation = hold_out_blocks(values, places, BLOCK, WINDOW, covariates)
    return Data(make(kept[None], covariates), validation, frame)


def _data(
    make: Callable[[Any, ndarray | None], TaskSource],
    values: Any,
    frame: Frame,
    covariates: ndarray | None,
    make_validation: Callable[[Any, ndarray | None], TaskSource] | None = None,
) -> Data:
    """The values of several dates, the last of which are for validation."""
    first, change = _first_held_out(values), covariates is not None and covariates.ndim > len(values.shape)

    def part(make: Callable[[Any, ndarray | None], TaskSource], dates: slice) -> TaskSource:
        return make(values[dates], covariates[dates] if covariates is not None and change else covariates)

    last = slice(first, None)
    held_out = part(make_validation or make, last) if first < len(values) else None
    validation = [] if held_out is None else [held_out.batch(16, index, seed=0) for index in range(BATCHES)]
    return Data(part(make, slice(first)), validation, frame)
