"""FieldModel: a neural process together with the coordinates and units of the data it was trained on."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import Progress
from scipy.spatial import KDTree
from torch import Tensor, nn

from aenp._version import __version__
from aenp.configured import Configured
from aenp.earth.covariates import open_layers, places_with_covariates, with_covariates
from aenp.earth.frame import Frame, Variable
from aenp.earth.gridded import FieldLike
from aenp.earth.nodes import SLACK, Nodes, beside, node_on
from aenp.earth.places import Places, PlacesLike, chunked, elevation_or_error, open_places
from aenp.earth.points import PointsLike, open_points
from aenp.earth.sources import NoSuchVariable, Period, converted, describe
from aenp.inference import ar_context, median, spread
from aenp.likelihoods import NonNegative, Unit, widened
from aenp.process import NeuralProcess
from aenp.saving import load_as, save
from aenp.task import Task

if TYPE_CHECKING:
    from aenp.earth.validation import Validation

CHUNK = 4096
"Number of targets that are decoded at a time."
FAR = 20
"Standard deviations from the mean in training beyond which a context's median suggests another variable or unit."
CHAIN = 128
"Number of places where a sample is drawn one after another; elsewhere it is what the model then expects."
CANDIDATES = 10_000
"The largest number of places among which those are chosen."
DESCRIPTIONS = {
    "mean": "predicted {}",
    "std": "standard deviation of the predicted {}",
    "equivariant_mean": "{} predicted by the equivariant part of the model",
    "local_effect": "effect of the place on the predicted {}, mean minus equivariant_mean",
    "probability_of_zero": "probability that {} is zero",
    "quantiles": "quantiles of the predicted {}",
    "samples": "coherent samples of the predicted {}",
}
Outputs: TypeAlias = dict[str, pd.Index | None]
"Which of `DESCRIPTIONS` are predicted, and the labels along the further dimension of those that have one."


class Encoded(NamedTuple):
    """A context as the model represents it: with its fixed inputs, without, and with the values of samples added."""

    state: Any
    equivariant: Any
    unit: Unit | None
    samples: Any
    sample_unit: Unit | None


class FieldModel(Configured, nn.Module):
    """A model of fields on the globe, which takes and returns tables and data sets in the user's units.

    Args:
        process: the neural process; its inputs are the frame's axes, its outputs the frame's variables.
        frame: the coordinates and units of its training data.
        spread: the factor of its standard deviations that `fit` or `calibrate` has found.
        local_gain: what its local effects add to the log-likelihood of a target at places left out of training, and
            the standard error of that; None if it was not measured.

    Example:
        >>> import pandas as pd
        >>> import aenp
        >>> model = aenp.pretrained("era5-2d/pttnp-approx")
        >>> stations = pd.DataFrame({"latitude": [45.5, 41.9], "longitude": [9.2, 12.5], "t2m": [300.0, 301.0]})
        >>> prediction = model.predict(stations, "45,46,9,11,0.5")
        >>> sorted(prediction), prediction["mean"].attrs["units"]
        (['equivariant_mean', 'in_domain', 'local_effect', 'mean', 'std'], 'K')
    """

    def __init__(
        self, process: NeuralProcess, frame: Frame, spread: float = 1.0, local_gain: Sequence[float] | None = None
    ) -> None:
        super().__init__()
        sizes = len(frame.axes), len(frame.variables), len(frame.covariates)
        own = process.dim_x, process.dim_y, process.dim_covariates
        if own != sizes:
            raise ValueError(f"the frame needs (dim_x, dim_y, dim_covariates)={sizes}; got {own}")
        if not 0 < spread < math.inf:
            raise ValueError(f"spread, the factor of standard deviations, must be positive and finite; got {spread}")
        self.process, self.frame, self.spread = process, frame, spread
        self.local_gain = None if local_gain is None else tuple(local_gain)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to one file, which appears under its name only once it is complete."""
        save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], device: str = "cpu") -> "FieldModel":
        """The model that was saved at `path`, in evaluation mode."""
        return load_as(FieldModel, path, device)

    def predict(
        self,
        context: PointsLike,
        target: PlacesLike,
        variable: str | None = None,
        elevation: FieldLike | None = None,
        progress: bool = False,
        quantiles: Sequence[float] = (),
        samples: int = 0,
        seed: int = 0,
        covariates: Sequence[FieldLike] = (),
    ) -> xr.Dataset:
        """The prediction at the target's places, given the observations.

        The result lies on the target's own coordinates. It has the `mean` and `std` of the predictive distribution, the
        `equivariant_mean`, their difference, the `local_effect`, and `in_domain`, whether a place is within the box of
        the training data; a model of several variables has the first four for each, as `t2m_mean`. If the variable may
        be exactly zero, there is a `probability_of_zero`.

        With `quantiles` there is a variable of that name with a dimension `quantile`. With `samples` there is one with
        a dimension `sample`, each a plausible field: values are drawn one after another at 128 places spread over the
        target, or at all if there are fewer, and the sample is the median prediction given these. So it is as smooth
        as the model's predictions, and lacks noise and what is finer than the distance between those places.

        A model that does not see time predicts each time from the observations of that time: the target's times that
        the context has too, or all of the context's if the target has none. Where a table gives each place its own
        time, places without observations of that time come out as NaN, as do those without coordinates. A model that
        sees time predicts any time, from all observations or, if `fit` was given a window of `time`, from those up to
        half of it before and after. Where the target's data are Dask arrays, the result is a
        Dask graph with the same chunks. The model is in evaluation mode afterwards.

        A model with `on_grid=True` moves observations to the nearest nodes of a grid, takes the mean of those at one
        node, and gives each place the prediction of the nearest node. If any place is moved, the result's attribute
        `comment` tells how far.

        Args:
            context: a table with latitude, longitude, a value and perhaps time and elevation; a gridded field with NaN
                where nothing was observed; or a file of either kind.
            target: a table, data set or field with latitude and longitude, or a file of one, or the two as a mapping.
            variable: the name of the values in `context`; by default the name in training, or the only one.
            elevation: a topography in metres, from which a model that sees elevation takes what context and target do
                not have; the sea counts as zero.
            progress: show a progress bar.
            quantiles: probabilities, such as (0.05, 0.5, 0.95).
            samples: number of samples.
            seed: of the samples.
            covariates: fields or files of the model's covariates, from which it takes those that context or target do
                not have as a column or coordinate of the same name.
        """
        if not all(0 < each < 1 for each in quantiles) or len(set(quantiles)) < len(quantiles):
            raise ValueError(f"quantiles must be different probabilities between 0 and 1; got {tuple(quantiles)}")
        if samples < 0:
            raise ValueError(f"samples must not be negative; got {samples}")
        self.eval()
        observed = self.observed(context, variable, elevation, covariates)
        places = self.places(target, observed, elevation, covariates)
        x = {name: axis.x(places.coordinates[name].values) for name, axis in self.frame.axes.items()}
        for name, values in x.items():
            if not np.isfinite(values).any():
                raise ValueError(f"{describe(target)} has no known {name}; the model needs it at each place")
        corners = np.array([[f(values) for values in x.values()] for f in (np.nanmin, np.nanmax)])
        nodes, note = self._nodes(observed, x)
        times, tables = places.times_apart(observed, self.frame.reach)
        if all(table is None for table in tables):
            raise ValueError(
                f"{describe(context)} has no observations near the times of {describe(target)}, which a model with a "
                "window of time needs; give some, or predict other times"
            )
        contexts = [
            None if table is None else self._context(table, self._at_time(corners, times, number), nodes)
            for number, table in enumerate(tables)
        ]
        arguments = [chunked(each, places.chunks) for each in xr.broadcast(*places.coordinates.values())]
        lazy = any(argument.chunks is not None for argument in arguments)
        outputs, fixed_inputs = self._outputs(quantiles, samples), self.process.fixed_inputs
        count = len(self.frame.variables) * sum(1 if labels is None else len(labels) for labels in outputs.values())
        with Progress(console=Console(stderr=True), disable=lazy or not progress) as bar:
            line = bar.add_task("predicting", total=arguments[0].size)
            arrays = xr.apply_ufunc(
                self._predict,
                *arguments,
                kwargs={
                    "names": list(places.coordinates),
                    "times": times,
                    "contexts": contexts,
                    "sampled": self._sampled(contexts, times, places, nodes, samples, seed),
                    "outputs": outputs,
                    "count": count,
                    "encoded": {},
                    "local": fixed_inputs is not None and fixed_inputs.active,
                    "advance": None if lazy else partial(bar.advance, line),
                },
                output_core_dims=[[]] * count,
                dask="parallelized",
                output_dtypes=[np.float32] * count,
            )
        result = self._dataset(outputs, arrays)
        where = [chunked(places.coordinates[name], places.chunks) for name in self.frame.axes]
        result["in_domain"] = xr.apply_ufunc(self._inside, *where, dask="parallelized", output_dtypes=[bool])
        return self._described(result.assign_coords(places.labels)).assign_attrs(note)

    def validate(
        self,
        data: PointsLike,
        stations: PlacesLike | None = None,
        days: Period | None = None,
        progress: bool = False,
        **options: Any,
    ) -> "Validation":
        """How well the model, its equivariant part, climatology, inverse distances and kriging predict the same places.

        At each of some times, part of the places is observed and the others are predicted. The result's `table` has
        errors, CRPS, log-likelihood and coverage, `plot(path)` draws them, and `print` shows a summary.

        Args:
            data: a field or stations, as for `fit`; it should hold the model's training period too, from which
                climatology and kriging learn.
            stations: places that the model has never seen, which are the targets at all times and hidden from the
                baselines too; by default each time has its own random targets.
            days: first and last date; by default those after the model's training period, or else others outside it.
            progress: show a progress bar.
            options: `region`, `fraction`, `tasks`, `variable`, `elevation`, `covariates` and `seed`, as in `Choice`.
        """
        from aenp.earth.holdout import Choice
        from aenp.earth.validation import validate

        return validate(self, data, Choice(stations, days, **options), progress)

    def calibrate(
        self,
        data: PointsLike,
        stations: PlacesLike | None = None,
        days: Period | None = None,
        progress: bool = False,
        **options: Any,
    ) -> "FieldModel":
        """The same model with standard deviations scaled so that its 90 % intervals hold 90 % of what is observed.

        The mean does not change. The factor is saved with the model. Choose days, and places if the model is meant for
        new ones, that were not used in training, and validate on others.

        Args:
            data: a field or stations, as for `validate`.
            stations: places that the model has never seen; by default each time has its own random targets.
            days: first and last date; by default those after the model's training period, or else others outside it.
            progress: show a progress bar.
            options: as for `validate`.
        """
        from aenp.earth.holdout import Choice
        from aenp.earth.validation import calibrate

        return calibrate(self, data, Choice(stations, days, **options), progress)

    def suggest(
        self,
        context: PointsLike,
        candidates: PlacesLike,
        number: int = 5,
        target: PlacesLike | None = None,
        variable: str | None = None,
        elevation: FieldLike | None = None,
        plot: str | os.PathLike[str] | None = None,
        covariates: Sequence[FieldLike] = (),
    ) -> pd.DataFrame:
        """Where the next stations should be: one after another, each where it most reduces the targets' variance.

        A new station is taken to observe what is predicted there. If the context has several times, each is a case of
        its own, and the reduction is that of the sum over all of them.

        The result has a row for each station, with `latitude`, `longitude`, `elevation` if known, and `reduction`: by
        how many percent this station and those above it reduce the sum of the variances at the targets.

        Args:
            context: the observations, as for `predict`; those of a few typical times.
            candidates: where stations can be placed, as the target of `predict`.
            number: how many to place.
            target: where predictions matter; by default at the candidates.
            variable: the name of the values in `context`; by default the name in training, or the only one.
            elevation: a topography in metres, for a model that sees elevation.
            plot: a map to draw, such as map.png; by default none.
            covariates: fields of the model's covariates, as for `predict`.
        """
        from aenp.earth.placement import suggest

        return suggest(self, context, candidates, number, target, variable, elevation, plot, covariates)

    def variances(self, contexts: Sequence[pd.DataFrame], places: pd.DataFrame) -> Float[ndarray, "contexts places"]:
        """The predictive variance at the places given each of the contexts, all in one pass.

        Args:
            contexts: tables as `observed` returns them, each a case of its own.
            places: a table with the coordinates that the model sees.
        """
        self.eval()
        x = {name: axis.x(places[name].to_numpy()) for name, axis in self.frame.axes.items()}
        corners = np.array([[f(values) for values in x.values()] for f in (np.min, np.max)])
        nodes, _ = self._nodes(pd.concat(contexts), x)
        task, unit = self.process.normalise(Task.stack([self._context(each, corners, nodes) for each in contexts]))
        at = _at(np.stack(list(x.values()), axis=-1), self.frame.c(places), len(contexts))
        with torch.no_grad():
            state = self.process.encode(task)
            chunks = zip(*(each.split(CHUNK, dim=1) for each in at), strict=True)
            parts = [self.process.likelihood(self.process.decode(state, *some), unit) for some in chunks]
        variance = torch.cat([widened(part, self.spread).variance for part in parts], dim=1).numpy()
        return (variance * self.frame.units(places)[1] ** 2).sum(-1)

    def places(
        self,
        target: PlacesLike,
        observed: pd.DataFrame,
        elevation: FieldLike | None = None,
        covariates: Sequence[FieldLike] = (),
    ) -> Places:
        """The target's places with all that the model sees of them."""
        names = [each.name for each in self.frame.covariates]
        places = open_places(target, observed, "time" in self.frame.axes, names)
        if "elevation" in self.frame.axes:
            places = places.with_elevation(elevation, describe(target))
        return places_with_covariates(places, self.frame.covariates, open_layers(covariates), describe(target))

    def observed(
        self,
        context: PointsLike,
        variable: str | None = None,
        elevation: FieldLike | None = None,
        covariates: Sequence[FieldLike] = (),
    ) -> pd.DataFrame:
        """The observations as a table, as `open_points` returns it; in the model's units."""
        if len(self.frame.variables) == 1:
            observed = self._observed(context, self.frame.variables[0], variable)
        else:
            tables = [
                self._observed(context, each, each.name).rename(columns={"value": each.name})
                for each in self.frame.variables
            ]
            observed = tables[0]
            for table in tables[1:]:
                observed = observed.merge(table, how="outer")
            if observed.dropna(subset=(names := [each.name for each in self.frame.variables])).empty:
                raise ValueError(f"{describe(context)} has no place where all of {', '.join(names)} were observed")
        if "time" in self.frame.axes and "time" not in observed:
            raise ValueError(f"{describe(context)} has no time, which the model sees; add a column `time`")
        if "elevation" in self.frame.axes:
            known = observed.get("elevation", pd.Series(np.nan, observed.index))
            where = observed["latitude"].to_numpy(), observed["longitude"].to_numpy()
            observed = observed.assign(
                elevation=elevation_or_error(known.to_numpy(float), *where, elevation, describe(context))
            )
            if observed["elevation"].isna().any():
                raise ValueError(
                    f"{describe(context)} has places that the topography does not cover; add their `elevation`"
                )
        return with_covariates(observed, self.frame.covariates, open_layers(covariates), describe(context))

    def _observed(self, context: PointsLike, expected: Variable, variable: str | None) -> pd.DataFrame:
        """The observations of one variable."""
        further = [each.name for each in self.frame.covariates]
        try:
            observed = open_points(context, variable or expected.name, further=further)
        except NoSuchVariable:
            if variable is not None:
                raise
            observed = open_points(context, further=further)
        both, values = "the context and the model's training data", observed["value"].to_numpy(float)
        observed = observed.assign(value=converted(values, observed.attrs.get("units"), expected.units, both))
        observed.attrs["units"] = expected.units
        middle = float(observed["value"].median())
        if abs(expected.y(middle)) > FAR:
            raise ValueError(
                f"{describe(context)}: values are about {middle:.4g}; the model was trained on {expected.name} of "
                f"{expected.mean:.4g} ± {expected.std:.2g} {expected.units}. Check variable and units"
            )
        return observed

    def _nodes(self, observed: pd.DataFrame, target: Mapping[str, ndarray]) -> tuple[Nodes | None, dict[str, str]]:
        """The grid that places are to be moved to, with a note that says so; none if the model takes them as they are.

        Along each axis it goes through the target's points, if these lie on a grid of the model's spacing; else
        through the context's, if these do; else it is that of the training region.
        """
        if not getattr(self.process, "on_grid", False):
            return None, {}
        origins, off = [], []
        for (name, axis), step in zip(self.frame.axes.items(), self.process.spacing, strict=True):  # type: ignore[arg-type]
            both = target[name], axis.x(observed[name].to_numpy())
            origins.append(node_on(both, step, 0.0 if axis.interval is None else axis.interval[0] + step / 2))
            off.append(max(beside(points, origins[-1], step) for points in both))
        if max(off) <= SLACK:
            return None, {}
        nodes = Nodes(np.array(origins), np.array(self.process.spacing))
        step_size, distance = (self.frame.lengths(part * nodes.steps) for part in (1.0, np.array(off)))
        moved = f"locations were moved to its nodes, by at most {distance}"
        return nodes, {"comment": f"this model works on a {step_size} grid: {moved}"}

    def _context(self, observed: pd.DataFrame, corners: Float[ndarray, "2 dim_x"], nodes: Nodes | None) -> Task:
        """The observations of one time, or of all, as a task whose targets are the corners of the whole target."""
        x = self.frame.x({name: observed[name].to_numpy() for name in self.frame.axes})
        names = ["value"] if len(self.frame.variables) == 1 else [each.name for each in self.frame.variables]
        y = self.frame.y(observed[names].to_numpy(float), observed)
        known = self.frame.c(observed)
        if nodes is not None:
            corners, (x, both) = nodes.nearest(corners), nodes.averaged(x, np.concatenate([y, known], axis=-1))
            y, known = np.split(both, [y.shape[-1]], axis=-1)
        xc, yc, xt, cc = (torch.from_numpy(each).unsqueeze(0) for each in (x, y, corners, known))
        dtype = self.process.dtype
        if not self.frame.covariates:
            return Task(xc, yc.to(dtype), xt)
        # Of the targets a model's `encode` sees the extent alone.
        nothing = torch.zeros(1, len(corners), cc.shape[-1], dtype=dtype)
        return Task(xc, yc.to(dtype), xt, context_covariates=cc.to(dtype), target_covariates=nothing)

    def _at_time(
        self, corners: Float[ndarray, "2 dim_x"], times: ndarray | None, number: int
    ) -> Float[ndarray, "2 dim_x"]:
        """The corners of the target at one of its times."""
        if times is None or "time" not in self.frame.axes:
            return corners
        at = corners.copy()
        at[:, list(self.frame.axes).index("time")] = self.frame.axes["time"].x(times[number])
        return at

    def _sampled(
        self,
        contexts: Sequence[Task | None],
        times: ndarray | None,
        places: Places,
        nodes: Nodes | None,
        samples: int,
        seed: int,
    ) -> list[Task | None]:
        """Each context with the values drawn for each sample as further observations; None where there are none.

        They are drawn at once, so that all chunks of a lazy target have the same ones.
        """
        sampled: list[Task | None] = [None] * len(contexts)
        if not samples:
            return sampled
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for number, context in enumerate(contexts):
                at = self._candidates(places if times is None else places.at_time(times[number]), nodes)
                if context is not None and at[0].shape[1]:
                    sampled[number] = self._with_samples(context, at, samples)
        return sampled

    def _candidates(self, places: Places, nodes: Nodes | None) -> tuple[Tensor, ...]:
        """Some of the target's places, evenly along each dimension, in the model's unit, with their covariates."""
        names = [*self.frame.axes, *(each.name for each in self.frame.covariates)]
        every = xr.broadcast(*(places.coordinates[name] for name in names))
        step = math.ceil((every[0].size / CANDIDATES) ** (1 / max(every[0].ndim, 1)))
        some = {d: slice(min(step, size) // 2, None, step) for d, size in every[0].sizes.items()}
        chosen = {name: each.isel(some).values.ravel() for name, each in zip(names, every, strict=True)}
        x, known = self.frame.x(chosen), self.frame.c(chosen)
        there = np.isfinite(x).all(axis=1)
        x, known = x[there], known[there]
        if nodes is not None:
            x, first = np.unique(nodes.nearest(x), axis=0, return_index=True)
            known = known[first]
        return _at(x, known)

    def _with_samples(self, context: Task, at: tuple[Tensor, ...], samples: int) -> Task:
        """The context `samples` times, each with values drawn at places spread among these."""
        x, *known = at
        free = None
        if getattr(self.process, "on_grid", False):  # where no node may have two values
            seen = context.xc[0] if context.context_mask is None else context.xc[context.context_mask]
            apart = KDTree(seen.numpy()).query(x[0].numpy())[0] > min(self.process.spacing) / 2  # type: ignore[arg-type]
            free = torch.from_numpy(apart).unsqueeze(0)
        task = context.with_targets(x, None, free, *known)
        grown = ar_context(self.process, task, samples, spread(task, min(CHAIN, x.shape[1])))
        xt, *nothing = (each.expand(samples, -1, -1) for each in context.at_targets())
        return grown.with_targets(xt, None, None, *nothing)

    def _predict(
        self,
        *places: ndarray,
        names: Sequence[str],
        times: ndarray | None,
        contexts: Sequence[Task | None],
        sampled: Sequence[Task | None],
        outputs: Outputs,
        count: int,
        encoded: dict[int, Encoded],
        local: bool,
        advance: Callable[[int], None] | None,
    ) -> tuple[ndarray, ...]:
        """Each of the outputs at the places, whose coordinates have these names; with fixed inputs if `local`."""
        coordinates = {name: values.ravel() for name, values in zip(names, places, strict=True)}
        x, known = self.frame.x(coordinates), self.frame.c(coordinates)
        number = np.zeros(len(x), int) if times is None else np.searchsorted(times, coordinates["time"])
        samples = outputs.get("samples")
        size = CHUNK if samples is None else max(1, CHUNK // len(samples))
        out = np.full((count, len(x)), np.nan, np.float32)
        # Neighbours are decoded together, because a chunk of them reads only a small part of a wide grid.
        order = np.lexsort((x[:, 1], np.floor(x[:, 0]), number))
        order = order[np.isfinite(np.concatenate([x, known], axis=1)[order]).all(axis=1)]
        fixed_inputs = self.process.fixed_inputs
        with torch.no_grad(), nullcontext() if fixed_inputs is None else fixed_inputs.switched(local):
            for index in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
                which = int(number[index[0]]) if len(index) else 0
                context = contexts[which]
                if context is None or not len(index):
                    continue
                state = encoded.get(which)
                if state is None:
                    state = self._encode(context, sampled[which])
                    encoded.clear()  # only one is kept; a thread that still needs another holds it
                    encoded[which] = state
                for some in np.array_split(index, -(-len(index) // size)):
                    units = self.frame.units({name: values[some] for name, values in coordinates.items()})
                    out[:, some] = self._values(outputs, state, _at(x[some], known[some]), units)
                    if advance is not None:
                        advance(len(some))
        return tuple(values.reshape(places[0].shape) for values in out)

    def _inside(self, *places: ArrayLike) -> ndarray:
        return self.frame.inside(dict(zip(self.frame.axes, places, strict=True)))

    def _encode(self, context: Task, sampled: Task | None) -> Encoded:
        context, unit = self.process.normalise(context)
        samples = sample_unit = None
        if sampled is not None:
            sampled, sample_unit = self.process.normalise(sampled)
            samples = self.process.encode(sampled)
        state = equivariant = self.process.encode(context)
        if self.process.fixed_inputs is not None:
            with self.process.equivariant():
                equivariant = self.process.encode(context)
        return Encoded(state, equivariant, unit, samples, sample_unit)

    def _values(
        self, outputs: Outputs, encoded: Encoded, at: tuple[Tensor, ...], units: tuple[ndarray, ndarray]
    ) -> Float[ndarray, "n points"]:
        """Each of the outputs at these places, in the user's units: for each label, or once, and for each variable."""
        decode, likelihood = self.process.decode, self.process.likelihood
        prediction = widened(likelihood(decode(encoded.state, *at), encoded.unit), self.spread)
        mean = equivariant = prediction.mean
        if encoded.equivariant is not encoded.state:
            with self.process.equivariant():
                equivariant = likelihood(decode(encoded.equivariant, *at), encoded.unit).mean
        values = {
            "mean": mean,
            "std": prediction.stddev,
            "equivariant_mean": equivariant,
            "local_effect": mean - equivariant,
        }
        if "probability_of_zero" in outputs:
            values["probability_of_zero"] = prediction.cdf(torch.zeros_like(mean))
        if (labels := outputs.get("quantiles")) is not None:
            values["quantiles"] = prediction.icdf(mean.new_tensor(labels.to_numpy()).view(-1, 1, 1))
        if (labels := outputs.get("samples")) is not None:
            raw = decode(encoded.samples, *(each.expand(len(labels), -1, -1) for each in at))
            drawn = median(likelihood(raw, encoded.sample_unit))
            values["samples"] = drawn if self.spread == 1 else mean + self.spread * (drawn - mean)
        every = torch.cat([_in_units(key, values[key], *map(torch.from_numpy, units)) for key in outputs])
        return every.mT.flatten(0, 1).numpy()

    def _outputs(self, quantiles: Sequence[float], samples: int) -> Outputs:
        """What is predicted; a model without symmetry has no equivariant part."""
        outputs: Outputs = {"mean": None, "std": None}
        if self.process.symmetry != "none":
            outputs |= {"equivariant_mean": None, "local_effect": None}
        if isinstance(self.process.likelihood, NonNegative):
            outputs["probability_of_zero"] = None
        if len(quantiles):
            outputs["quantiles"] = pd.Index(quantiles, name="quantile", dtype=float)
        if samples:
            outputs["samples"] = pd.RangeIndex(samples, name="sample")
        return outputs

    def _dataset(self, outputs: Outputs, arrays: Sequence[xr.DataArray]) -> xr.Dataset:
        """The arrays, in the order of `_values`, as variables with CF metadata."""
        variables, remaining, found = self.frame.variables, iter(arrays), {}
        for key, labels in outputs.items():
            parts = [[next(remaining) for _ in variables] for _ in range(1 if labels is None else len(labels))]
            for variable, several in zip(variables, zip(*parts, strict=True), strict=True):
                values = several[0] if labels is None else xr.concat(several, labels)
                name = f"{variable.name}_{key}" if len(variables) > 1 else key
                description = DESCRIPTIONS[key].format(variable.long_name or variable.name)
                units = "1" if key == "probability_of_zero" else variable.units
                found[variable.name, key] = values.rename(name).assign_attrs(long_name=description, units=units)
        return xr.Dataset({found[each.name, key].name: found[each.name, key] for each in variables for key in outputs})

    def _described(self, result: xr.Dataset) -> xr.Dataset:
        """The result with CF metadata of its own."""
        result["in_domain"].attrs = {"long_name": "within the box of the training data"}
        result.attrs = {"Conventions": "CF-1.11", "source": f"aenp {__version__}, {self.process.label}"}
        if self.frame.period is not None:
            result.attrs["training_period"] = " to ".join(self.frame.period)
        return result


def _at(
    x: Float[ndarray, "points dim_x"], known: Float[ndarray, "points covariates"], batch: int = 1
) -> tuple[Tensor, ...]:
    """What `decode` sees of places: their inputs and, if there are any, their covariates."""
    parts = (x, known.astype(np.float32))[: 2 if known.shape[1] else 1]
    return tuple(torch.from_numpy(part).expand(batch, -1, -1) for part in parts)


def _in_units(key: str, values: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Values of an output, which are in the model's unit, in the user's."""
    if key == "probability_of_zero":
        return values.double()
    return scale * values if key in ("std", "local_effect") else scale * values + shift
