"""FieldModel: a neural process together with the coordinates and units of the data it was trained on."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

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
from aenp.data.sources import check_degrees, describe, find, same_units
from aenp.functions import evaluating
from aenp.process import NeuralProcess
from aenp.saving import load_as, save, written_whole
from aenp.task import Task

CHUNK = 16384
"Targets that are decoded at a time."
DESCRIPTIONS = {
    "mean": "{} predicted",
    "std": "standard deviation of {} predicted",
    "equivariant_mean": "{} predicted by the equivariant part of the model",
    "local_effect": "effect of the place on {} predicted, mean minus equivariant_mean",
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
        return ((x >= lower - 1e-9) & (x <= upper + 1e-9)).all(axis=-1)


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
        context has too, or all of the context's if the target has none. Where the target's data are Dask arrays, the
        result is a Dask graph with the same chunks.

        Args:
            context: a table with latitude, longitude, a value and perhaps a time; a gridded field with NaN where
                nothing was observed; or a file of either kind.
            target: a table, data set or field with latitude and longitude, or a file of one, or the two as a mapping.
            variable: the name of the values in `context`; by default the name in training, or the only one.
            progress: show a progress bar.
        """
        observed = self.observed(context, variable)
        latitude, longitude, time = _coordinates(target, observed)
        x = self.frame.x(latitude.values.ravel(), longitude.values.ravel())
        corners = torch.from_numpy(np.stack([x.min(axis=0), x.max(axis=0)])).unsqueeze(0)
        places = (latitude, longitude) if time is None else xr.broadcast(time, latitude, longitude)
        contexts = [self._context(rows, corners) for rows in _at_times(observed, time)]
        lazy = latitude.chunks is not None
        with Progress(console=Console(stderr=True), disable=lazy or not progress) as bar:
            line = bar.add_task("predicting", total=places[0].size)
            arrays = xr.apply_ufunc(
                self._predict,
                *places,
                kwargs={
                    "times": None if time is None else np.unique(time),
                    "contexts": contexts,
                    "advance": None if lazy else partial(bar.advance, line),
                },
                output_core_dims=[[] for _ in DESCRIPTIONS],
                dask="parallelized",
                output_dtypes=[np.float32] * len(DESCRIPTIONS),
            )
        result = xr.Dataset(dict(zip(DESCRIPTIONS, arrays, strict=True)))
        result["in_domain"] = xr.apply_ufunc(
            self.frame.inside, latitude, longitude, dask="parallelized", output_dtypes=[bool]
        )
        return self._described(result)

    def observed(self, context: Source, variable: str | None = None) -> pd.DataFrame:
        """The observations as a table, as `open_points` gives it; an error if their units are not the model's."""
        try:
            observed = open_points(context, variable or self.frame.name)
        except ValueError:
            if variable is not None:
                raise
            observed = open_points(context)
        same_units(observed.attrs.get("units"), self.frame.units, "the context and the model's training data")
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
        contexts: Sequence[Task],
        advance: Callable[[int], None] | None,
    ) -> tuple[ndarray, ...]:
        """Each of `DESCRIPTIONS` at the places: latitudes and longitudes, or times, latitudes and longitudes."""
        latitude, longitude = (values.ravel() for values in places[-2:])
        number = np.zeros(latitude.size, int) if times is None else np.searchsorted(times, places[0].ravel())
        out = np.empty((len(DESCRIPTIONS), latitude.size), np.float32)
        order = np.argsort(number, kind="stable")
        for index in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
            x = torch.from_numpy(self.frame.x(latitude[index], longitude[index])).unsqueeze(0)
            task = contexts[number[index[0]]]
            mean, std = self._moments(task, x, advance)
            with self.process.equivariant():
                equivariant = mean if self.process.fixed_inputs is None else self._moments(task, x, None)[0]
            moments = self.frame.std * torch.stack([mean, std, equivariant, mean - equivariant]).numpy()
            out[:, index] = moments + np.array([[self.frame.mean], [0.0], [self.frame.mean], [0.0]])
        return tuple(values.reshape(places[0].shape) for values in out)

    def _moments(
        self, task: Task, x: Float[Tensor, "1 points 2"], advance: Callable[[int], None] | None
    ) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
        """Mean and standard deviation at `x`."""
        moments = []
        with torch.no_grad(), evaluating(self.process):
            state = self.process.encode(task)
            for some in x.split(CHUNK, dim=1):
                prediction = self.process.likelihood(self.process.decode(state, some))
                moments.append(torch.stack([prediction.mean, prediction.stddev])[:, 0, :, 0])
                if advance is not None:
                    advance(some.shape[1])
        mean, std = torch.cat(moments, dim=1).unbind()
        return mean, std

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


def _coordinates(target: Target, observed: pd.DataFrame) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray | None]:
    """Latitude and longitude of the target's places and, if the observations have a time, the times to predict."""
    dataset = open_places(target)
    names = {kind: find(dataset.coords, kind) for kind in KINDS}
    if names["latitude"] is None or names["longitude"] is None:
        known = ", ".join(map(str, dataset.variables)) or "nothing"
        raise ValueError(f"{describe(target)} needs a latitude and a longitude to predict at; it has {known}")
    coordinates = {kind: dataset[name].reset_coords(drop=True) for kind, name in names.items() if name is not None}
    latitude, longitude = xr.broadcast(coordinates["latitude"], coordinates["longitude"])
    check_degrees(latitude.values, longitude.values, describe(target))
    chunks = {dimension: sizes for dimension, sizes in dataset.chunks.items() if dimension in latitude.dims}
    if chunks:
        latitude, longitude = latitude.chunk(chunks), longitude.chunk(chunks)
    if "time" not in observed:
        return latitude, longitude, None
    times = np.unique(observed["time"])
    if "time" not in coordinates:
        return latitude, longitude, xr.DataArray(times, dims="time", coords={"time": times})
    time = coordinates["time"]
    shared = np.isin(time.values, times)
    if not shared.any():
        spans = (f"{each.min()} to {each.max()}" for each in (times, time.values))
        raise ValueError("the context is of {}, the target of {}: they share no time".format(*spans))
    own = set(time.dims) & set(latitude.dims) or time.ndim == 0
    return latitude, longitude, time if own else time[shared]


def _at_times(observed: pd.DataFrame, time: xr.DataArray | None) -> list[pd.DataFrame]:
    """The observations of each time that is to be predicted, in order of time."""
    if time is None:
        return [observed]
    rows = observed.groupby("time").indices
    return [observed.iloc[rows.get(pd.Timestamp(each), [])] for each in np.unique(time)]


def write(prediction: xr.Dataset, file: Path) -> Path:
    """Writes the prediction as NetCDF, or as CSV or Zarr if the file's name says so, and gives the file."""
    if file.suffix == ".zarr":
        prediction.to_zarr(file, mode="w", consolidated=False)
        return file
    with written_whole(file) as temporary:
        if file.suffix == ".csv":
            prediction.to_dataframe().reset_index().to_csv(temporary, index=False)
        else:
            prediction.to_netcdf(temporary, engine="netcdf4")
    return file
