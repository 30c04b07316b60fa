"""FieldModel: a neural process together with the coordinates and units of the data it was trained on."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Bool, Float
from numpy import ndarray
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn

from aenp._version import __version__
from aenp.configured import Configured
from aenp.data.places import KINDS, Target, open_places
from aenp.data.points import Source, open_points
from aenp.data.sources import TOLERANCE, check_degrees, describe, find, same_units
from aenp.process import NeuralProcess
from aenp.saving import load_as, save, written_whole
from aenp.task import Task

CHUNK = 4096
"Targets that are decoded at a time."
FAR = 20
"Standard deviations between the middle of a context and the mean in training, beyond which it is something else."
DESCRIPTIONS = {
    "mean": "{} predicted",
    "std": "standard deviation of {} predicted",
    "equivariant_mean": "{} predicted by the equivariant part of the model",
    "local_effect": "effect of the place on {} predicted, mean minus equivariant_mean",
}
CF = {
    kind: {"standard_name": kind, "units": f"degrees_{side}"}
    for kind, side in (("latitude", "north"), ("longitude", "east"))
}


class Frame(Configured):
    """x = (place − origin) / degrees, y = (value − mean) / std: between a user's units and a model's.

    Args:
        box: south, north, west and east of the training data, in degrees.
        degrees: the length of one unit of x.
        mean: of the training values.
        std: their standard deviation.
        name: what the values are.
        units: their units.
        long_name: their name in words.
    """

    def __init__(
        self,
        box: Sequence[float],
        degrees: float,
        mean: float,
        std: float,
        name: str = "value",
        units: str = "",
        long_name: str = "",
    ) -> None:
        if len(box) != 4 or not (box[0] <= box[1] and box[2] <= box[3]):
            raise ValueError(f"box is south, north, west, east; got {box}")
        if not degrees > 0 or not std > 0:
            raise ValueError(f"degrees and std must be positive; got {degrees} and {std}")
        self.box, self.degrees, self.mean, self.std = [float(bound) for bound in box], degrees, mean, std
        self.name, self.units, self.long_name = name, units, long_name

    @property
    def domain(self) -> list[tuple[float, float]]:
        """The box in the model's units."""
        lower, upper = self.x(self.box[:2], self.box[2:]).tolist()
        return list(zip(lower, upper, strict=True))

    def x(self, latitude: ArrayLike, longitude: ArrayLike) -> Float[ndarray, "*points 2"]:
        """Places in the model's units; longitudes are counted from the box's middle, either way round the globe."""
        south, north, west, east = self.box
        offsets = np.asarray(latitude, float) - (south + north) / 2, np.asarray(longitude, float) - (west + east) / 2
        return np.stack(np.broadcast_arrays(offsets[0], (offsets[1] + 180) % 360 - 180), axis=-1) / self.degrees

    def inside(self, latitude: ArrayLike, longitude: ArrayLike) -> Bool[ndarray, "*points"]:
        """Whether each place is in the box, edges included."""
        lower, upper = np.array(self.domain).T
        x = self.x(latitude, longitude)
        slack = TOLERANCE / self.degrees
        return ((x >= lower - slack) & (x <= upper + slack)).all(axis=-1)


class FieldModel(Configured, nn.Module):
    """A model of fields on the globe, which takes and gives tables and data sets in the user's units.

    Args:
        process: the neural process, of latitude and longitude.
        frame: the coordinates and units of its training data.
    """

    def __init__(self, process: NeuralProcess, frame: Frame) -> None:
        super().__init__()
        if (process.dim_x, process.dim_y) != (2, 1):
            raise ValueError(f"process must have dim_x=2 and dim_y=1; got {process.dim_x} and {process.dim_y}")
        self.process, self.frame = process, frame

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to one file, which appears under its name only when it is whole."""
        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], device: str = "cpu") -> "FieldModel":
        """The model that was saved at `path`, in evaluation mode."""
        return load_as(FieldModel, path, device)

    def predict(
        self, context: Source, target: Target, variable: str | None = None, progress: bool = False
    ) -> xr.Dataset:
        """What is to be expected at the target's places, given what was observed elsewhere at the same time.

        The result lies on the target's own coordinates. It has the `mean` and `std` of the predictive distribution, the
        `equivariant_mean`, their difference, the `local_effect`, and `in_domain`, whether a place is within the box of
        the training data. Each time is predicted from the observations of that time: the target's times that the
        context has too, or all of the context's if the target has none. Where a table gives each place its own time,
        places without observations of that time come out as NaN, as do those without coordinates. Where the target's
        data are Dask arrays, the result is a Dask graph with the same chunks.

        Args:
            context: a table with latitude, longitude, a value and perhaps a time; a gridded field with NaN where
                nothing was observed; or a file of either kind.
            target: a table, data set or field with latitude and longitude, or a file of one, or the two as a mapping.
            variable: the name of the values in `context`; by default the name in training, or the only one.
            progress: show a progress bar.
        """
        self.eval()
        observed = self.observed(context, variable)
        places = _places(target, observed)
        x = self.frame.x(places.latitude.values.ravel(), places.longitude.values.ravel())
        corners = torch.from_numpy(np.stack([np.nanmin(x, axis=0), np.nanmax(x, axis=0)])).unsqueeze(0)
        times, tables = _at_times(observed, places.time)
        contexts = [None if table is None else self._context(table, corners) for table in tables]
        arguments = [_chunked(each, places.chunks) for each in xr.broadcast(*places.arguments())]
        lazy = any(argument.chunks is not None for argument in arguments)
        with Progress(console=Console(stderr=True), disable=lazy or not progress) as bar:
            line = bar.add_task("predicting", total=arguments[0].size)
            arrays = xr.apply_ufunc(
                self._predict,
                *arguments,
                kwargs={
                    "times": times,
                    "contexts": contexts,
                    "encoded": {},
                    "advance": None if lazy else partial(bar.advance, line),
                },
                output_core_dims=[[] for _ in DESCRIPTIONS],
                dask="parallelized",
                output_dtypes=[np.float32] * len(DESCRIPTIONS),
            )
        result = xr.Dataset(dict(zip(DESCRIPTIONS, arrays, strict=True)))
        where = [_chunked(each, places.chunks) for each in (places.latitude, places.longitude)]
        result["in_domain"] = xr.apply_ufunc(self.frame.inside, *where, dask="parallelized", output_dtypes=[bool])
        return self._described(result.assign_coords(places.coordinates))

    def observed(self, context: Source, variable: str | None = None) -> pd.DataFrame:
        """The observations as a table, as `open_points` gives it; an error if their units are not the model's."""
        try:
            observed = open_points(context, variable or self.frame.name)
        except ValueError:
            if variable is not None:
                raise
            observed = open_points(context)
        same_units(observed.attrs.get("units"), self.frame.units, "the context and the model's training data")
        middle = float(observed["value"].median())
        if abs(middle - self.frame.mean) > FAR * self.frame.std:
            raise ValueError(
                f"{describe(context)}: values are about {middle:.4g}; the model was trained on {self.frame.name} of "
                f"{self.frame.mean:.4g} ± {self.frame.std:.2g} {self.frame.units}. Check variable and units"
            )
        return observed

    def _context(self, observed: pd.DataFrame, corners: Float[Tensor, "1 2 2"]) -> Task:
        """The observations of one time as a task whose targets are the corners of the whole target."""
        x = self.frame.x(observed["latitude"].to_numpy(), observed["longitude"].to_numpy())
        y = (observed["value"].to_numpy() - self.frame.mean) / self.frame.std
        y = torch.from_numpy(y).to(self.process.dtype)
        return Task(torch.from_numpy(x).unsqueeze(0), y.view(1, -1, 1), corners)

    def _predict(
        self,
        *places: ndarray,
        times: ndarray | None,
        contexts: Sequence[Task | None],
        encoded: dict[int, tuple[Any, Any]],
        advance: Callable[[int], None] | None,
    ) -> tuple[ndarray, ...]:
        """Each of `DESCRIPTIONS` at the places: latitudes and longitudes, or times, latitudes and longitudes."""
        latitude, longitude = (values.ravel() for values in places[-2:])
        number = np.zeros(latitude.size, int) if times is None else np.searchsorted(times, places[0].ravel())
        out = np.full((len(DESCRIPTIONS), latitude.size), np.nan, np.float32)
        # Neighbours come together: a chunk of them sees a small part of a wide grid.
        band = np.floor(latitude / self.frame.degrees)
        order = np.lexsort((longitude, band, number))
        order = order[np.isfinite(latitude[order] + longitude[order])]
        with torch.no_grad():
            for index in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
                which = int(number[index[0]]) if len(index) else 0
                context = contexts[which]
                if context is None or not len(index):
                    continue
                states = encoded.get(which)
                if states is None:
                    states = self._encode(context)
                    encoded.clear()  # one at a time is kept; a thread that still needs another has it
                    encoded[which] = states
                for some in np.array_split(index, -(-len(index) // CHUNK)):
                    out[:, some] = self._moments(states, self.frame.x(latitude[some], longitude[some]))
                    if advance is not None:
                        advance(len(some))
        return tuple(values.reshape(places[0].shape) for values in out)

    def _encode(self, context: Task) -> tuple[Any, Any]:
        """The context as the model represents it, with its fixed inputs and without."""
        state = self.process.encode(context)
        if self.process.fixed_inputs is None:
            return state, state
        with self.process.equivariant():
            return state, self.process.encode(context)

    def _moments(self, states: tuple[Any, Any], x: Float[ndarray, "points 2"]) -> Float[ndarray, "4 points"]:
        """Each of `DESCRIPTIONS` at `x`."""
        xt = torch.from_numpy(x).unsqueeze(0)
        approximate = self.process.likelihood(self.process.decode(states[0], xt))
        mean = equivariant = approximate.mean.flatten()
        if states[1] is not states[0]:
            with self.process.equivariant():
                equivariant = self.process.likelihood(self.process.decode(states[1], xt)).mean.flatten()
        moments = torch.stack([mean, approximate.stddev.flatten(), equivariant, mean - equivariant]).numpy()
        return self.frame.std * moments + self.frame.mean * np.array([[1.0], [0.0], [1.0], [0.0]])

    def _described(self, result: xr.Dataset) -> xr.Dataset:
        """The result with CF metadata; a model without symmetry has no equivariant part."""
        name = self.frame.long_name or self.frame.name
        for key, description in DESCRIPTIONS.items():
            result[key].attrs = {"long_name": description.format(name), "units": self.frame.units}
        result["in_domain"].attrs = {"long_name": "within the box of the training data"}
        if self.process.symmetry == "none":
            result = result.drop_vars(["equivariant_mean", "local_effect"])
        result.attrs = {"Conventions": "CF-1.11", "source": f"aenp {__version__}, {self.process.label}"}
        return result


@dataclass(frozen=True)
class Places:
    """Where and when to predict, and under which names the result is to say so.

    Args:
        latitude: degrees, with the dimensions of the places.
        longitude: likewise.
        time: of each place if it has the places' dimension, else of a dimension of its own; None to predict once.
        coordinates: the target's own coordinates.
        chunks: the sizes of the target's chunks along its dimensions, where its data are Dask arrays.
    """

    latitude: xr.DataArray
    longitude: xr.DataArray
    time: xr.DataArray | None
    coordinates: Mapping[str, xr.DataArray]
    chunks: Mapping[Any, tuple[int, ...]]

    def arguments(self) -> list[xr.DataArray]:
        place = [self.latitude, self.longitude]
        return place if self.time is None else [self.time, *place]


def _places(target: Target, observed: pd.DataFrame) -> Places:
    """The target's places and, if the observations have a time, the times to predict."""
    dataset, where = open_places(target), describe(target)
    names = {kind: name for kind in KINDS if (name := find(dataset.coords, kind)) is not None}
    if not {"latitude", "longitude"} <= set(names):
        known = ", ".join(map(str, dataset.variables)) or "nothing"
        raise ValueError(f"{where} needs a latitude and a longitude to predict at; it has {known}")
    own = {kind: dataset[name].reset_coords(drop=True).compute() for kind, name in names.items()}
    latitude, longitude = xr.broadcast(own["latitude"], own["longitude"])
    if not np.isfinite(latitude.values + longitude.values).any():
        raise ValueError(f"{where} has no place to predict at: its latitude and longitude are empty")
    check_degrees(latitude.values, longitude.values, where)
    time = _times(own.get("time"), latitude, observed, where)
    coordinates = {names[kind]: own[kind].assign_attrs(cf | own[kind].attrs) for kind, cf in CF.items()}
    if time is not None and set(time.dims) <= set(latitude.dims) and "time" in names:
        coordinates[names["time"]] = time
    return Places(latitude, longitude, time, coordinates, dataset.chunks)


def _times(own: xr.DataArray | None, latitude: xr.DataArray, observed: pd.DataFrame, where: str) -> xr.DataArray | None:
    """The times to predict: of each place, or the target's that are observed too, or those of the observations."""
    if "time" not in observed:
        return None
    times = np.unique(observed["time"])
    if own is None:
        return xr.DataArray(times, dims="time", coords={"time": times})
    shared = np.isin(own.values, times)
    if not shared.any():
        spans = (f"{each.min()} to {each.max()}" for each in (times, own.values))
        raise ValueError(
            "the context is of {}, the target {} of {}: they share no time".format(next(spans), where, *spans)
        )
    return own if own.ndim == 0 or set(own.dims) & set(latitude.dims) else own[shared]


def _chunked(values: xr.DataArray, chunks: Mapping[Any, tuple[int, ...]]) -> xr.DataArray:
    """The values with the target's chunks, where their dimension is as long."""
    own = {d: sizes for d, sizes in chunks.items() if d in values.dims and sum(sizes) == values.sizes[d]}
    return values.chunk(own) if own else values


def _at_times(
    observed: pd.DataFrame, time: xr.DataArray | None
) -> tuple[ndarray | None, Sequence[pd.DataFrame | None]]:
    """The times to predict, in order, and the observations of each; None where there are none."""
    if time is None:
        return None, [observed]
    times, rows = np.unique(time), observed.groupby("time").indices
    found = (rows.get(pd.Timestamp(each)) for each in times)
    return times, [None if index is None else observed.iloc[index] for index in found]


def write(prediction: xr.Dataset, file: Path) -> Path:
    """Writes the prediction as NetCDF, or as CSV or Zarr if the file's name says so, and gives the file.

    It appears under its name only when it is whole; what was there stays until then.
    """
    if file.suffix == ".zarr":
        with _store_written_whole(file) as temporary:
            prediction.to_zarr(temporary, mode="w", consolidated=False)
        return file
    with written_whole(file) as temporary:
        if file.suffix == ".csv":
            prediction.to_dataframe().reset_index().to_csv(temporary, index=False)
        else:
            prediction.to_netcdf(temporary, engine="netcdf4")
    return file


def check_replaceable(store: Path) -> None:
    """An error if there is something other than a Zarr store, which must not be lost."""
    if store.exists() and not (store / "zarr.json").exists():
        raise FileExistsError(f"{store} exists and is no Zarr store, so it is not replaced; choose another place")


@contextmanager
def _store_written_whole(store: Path) -> Iterator[Path]:
    """A directory to write in place of `store`, which it replaces at the end; if anything fails, that is as it was."""
    check_replaceable(store)
    store.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{store.name}.", suffix=".part", dir=store.parent) as beside:
        new, old = Path(beside, "new"), Path(beside, "old")
        yield new
        try:
            if store.exists():
                store.rename(old)
            new.rename(store)
        except BaseException:
            if old.exists() and not store.exists():
                old.rename(store)
            raise
