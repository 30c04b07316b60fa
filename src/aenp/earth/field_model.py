"""FieldModel: a neural process together with the coordinates and units of the data it was trained on."""

import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import Progress
from torch import nn
from torch.distributions import Distribution

from aenp._version import __version__
from aenp.configured import Configured
from aenp.earth.covariates import open_layers, places_with_covariates
from aenp.earth.frame import Frame
from aenp.earth.gridded import FieldLike
from aenp.earth.nodes import Nodes, nodes_for
from aenp.earth.observations import columns_of, observations_in
from aenp.earth.places import Places, PlacesLike, broadcast, chunked, open_places
from aenp.earth.points import PointsLike
from aenp.earth.prediction import Outputs, Predictor, outputs_of
from aenp.earth.reference import Misses
from aenp.earth.regions import Period
from aenp.earth.sampling import sampled
from aenp.earth.sources import describe
from aenp.process import NeuralProcess
from aenp.saving import load_as, save

if TYPE_CHECKING:
    from aenp.earth.validation import Validation


class FieldModel(Configured, nn.Module):
    """A model of fields on the globe, which takes and returns tables and data sets in the user's units.

    Args:
        process: the neural process; its inputs are the frame's axes, its output the frame's variable. Of several
            variables each value is a point of its own, and as many further covariates are one or zero, to say which.
        frame: the coordinates and units of its training data.
        spread: the factor of its standard deviations that `fit` or `calibrate` has found.
        local_gain: what its local effects add to the log-likelihood of a target at places left out of training, and
            the standard error of that; None if it was not measured.
        centred: of several variables, whether the values of each count from the mean of those observed.
        start: the name of the base model at whose weights its training started; None if it started from nothing.

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
        self,
        process: NeuralProcess,
        frame: Frame,
        spread: float = 1.0,
        local_gain: Sequence[float] | None = None,
        centred: bool = False,
        start: str | None = None,
    ) -> None:
        super().__init__()
        sizes = len(frame.axes), 1, len(frame.covariates) + frame.kinds
        own = process.dim_x, process.dim_y, process.dim_covariates
        if own != sizes:
            raise ValueError(f"the frame needs (dim_x, dim_y, dim_covariates)={sizes}; got {own}")
        if not 0 < spread < math.inf:
            raise ValueError(f"spread, the factor of standard deviations, must be positive and finite; got {spread}")
        if frame.kinds and getattr(process, "on_grid", False):
            raise ValueError("a process with on_grid=True takes one value at a node; of several variables it gets more")
        if centred and not frame.kinds:
            raise ValueError("centred is for several variables; give the process values='centred' instead")
        self.process, self.frame, self.spread, self.centred = process, frame, spread, centred
        self.start = start
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
        variable: str | Sequence[str] | None = None,
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
        the training data. If the variable may be exactly zero, there is a `probability_of_zero`. A model of several
        variables has these for each, as `t2m_mean`; any of its variables may be missing at any place of the context, or
        altogether, which the result's attribute `comment` then tells.

        With `quantiles` there is a variable of that name with a dimension `quantile`. With `samples` there is one with
        a dimension `sample`, each a plausible field: values are drawn one after another at 128 places spread over the
        target, or at all if there are fewer, and the sample is the median prediction given these. So it is as smooth
        as the model's predictions, and lacks noise and what is finer than the distance between those places.

        A model that does not see time predicts each time from the observations of that time: the target's times that
        the context has too, or all of the context's if the target has none. Where a table gives each place its own
        time, places without observations of that time come out as NaN, as do those without coordinates. A model that
        sees time predicts any time, from all observations or, if `fit` was given a window of `time`, from those up to
        half of it before and after. A context that is wider than those in training is seen in overlapping tiles as wide
        as these, between which predictions are blended. Where the target's data are Dask arrays, the result is a
        Dask graph with the same chunks. The model is in evaluation mode afterwards.

        A model with `on_grid=True` moves observations to the nearest nodes of a grid, takes the mean of those at one
        node, and gives each place the prediction of the nearest node. If any place is moved, the result's attribute
        `comment` tells how far.

        Args:
            context: a table with latitude, longitude, a value and perhaps time and elevation; a gridded field with NaN
                where nothing was observed; or a file of either kind.
            target: a table, data set or field with latitude and longitude, or a file of one, or the two as a mapping.
            variable: the name of the values in `context`, or of several variables the names in the model's order; by
                default those in training or, of a model of one variable, the only one.
            elevation: a topography in metres, from which a model that sees elevation takes what context and target do
                not have; the sea counts as zero.
            progress: show a progress bar.
            quantiles: probabilities, such as (0.05, 0.5, 0.95).
            samples: number of samples.
            seed: of the samples.
            covariates: fields or files of the model's covariates, from which it takes those that context or target do
                not have as a column or coordinate of the same name.
        """
        outputs = outputs_of(self.process, quantiles, samples)
        observed, where = self.observed(context, variable, elevation, covariates), describe(context)
        return self.predict_observed(observed, where, target, outputs, elevation, progress, seed, covariates)

    def predict_observed(
        self,
        observed: pd.DataFrame,
        where: str,
        target: PlacesLike,
        outputs: Outputs,
        elevation: FieldLike | None = None,
        progress: bool = False,
        seed: int = 0,
        covariates: Sequence[FieldLike] = (),
    ) -> xr.Dataset:
        """The prediction of these outputs, given the observations as `observed` returns them, read from `where`."""
        places = self.places(target, observed, elevation, covariates)
        x = {name: axis.x(places.coordinates[name].values) for name, axis in self.frame.axes.items()}
        for name, values in x.items():
            if not np.isfinite(values).any():
                raise ValueError(f"{describe(target)} has no known {name}; the model needs it at each place")
        corners = np.array([[f(values) for values in x.values()] for f in (np.nanmin, np.nanmax)])
        nodes, note = nodes_for(self.process, self.frame, observed, x)
        times, tables = places.times_apart(observed, self.frame.reach)
        if all(table is None for table in tables):
            raise ValueError(
                f"{where} has no observations near the times of {describe(target)}, which a model with a "
                "window of time needs; give some, or predict other times"
            )
        samples = 0 if (labels := outputs.get("samples")) is None else len(labels)
        misses = self.frame.misses(samples, seed) if samples else None
        predictor = self._predictor(outputs, misses)
        predictor.check_names(places, describe(target))
        contexts = [
            None if table is None else predictor.context(table, self._at_time(corners, times, number), nodes)
            for number, table in enumerate(tables)
        ]
        if samples:
            contexts = sampled(predictor, contexts, times, places, nodes, samples, seed)
        arguments = [chunked(each, places.chunks) for each in broadcast(*places.coordinates.values())]
        lazy = any(argument.chunks is not None for argument in arguments)
        fixed_inputs = self.process.fixed_inputs
        with Progress(console=Console(stderr=True), disable=lazy or not progress) as bar:
            line = bar.add_task("predicting", total=arguments[0].size)
            # Of variables, because all lie on the same places, so that nothing needs to be aligned.
            arrays = xr.apply_ufunc(
                predictor,
                *(each.variable for each in arguments),
                kwargs={
                    "names": list(places.coordinates),
                    "times": times,
                    "contexts": contexts,
                    "local": fixed_inputs is not None and fixed_inputs.active,
                    "advance": None if lazy else partial(bar.advance, line),
                },
                output_core_dims=[[]] * predictor.count,
                dask="parallelized",
                output_dtypes=[float] * predictor.count,
            )
        axes = [chunked(places.coordinates[name], places.chunks).variable for name in self.frame.axes]
        inside = xr.apply_ufunc(self._inside, *axes, dask="parallelized", output_dtypes=[bool])
        known = {name: values for each in arguments for name, values in each.coords.items()}
        result = predictor.dataset(arrays, inside, known | dict(places.labels))
        return self._described(result).assign_attrs(note | self._unobserved(observed))

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
        coast: FieldLike | None = None,
        progress: bool = False,
    ) -> pd.DataFrame:
        """Where the next stations should be: one after another, each where it most reduces the targets' variance.

        How predictions elsewhere answer to a high and to a low value at a place tells their covariance. Stations are
        chosen by these covariances, as if all were Normal, before anything is observed there. If the context has
        several times, the covariances are the mean over all of them.

        The result has a row for each station, with `latitude`, `longitude`, `elevation` if known, and `reduction`: by
        about how many percent this station and those above it reduce the sum of the variances at the targets.

        Args:
            context: the observations, as for `predict`; those of a few typical times.
            candidates: where stations can be placed, as the target of `predict`.
            number: how many to place.
            target: where predictions matter; by default at the candidates. Of more than 256 places, so many stand for
                all.
            variable: the name of the values in `context`; by default the name in training, or the only one.
            elevation: a topography in metres, for a model that sees elevation.
            plot: a map to draw, such as map.png; by default none.
            covariates: fields of the model's covariates, as for `predict`.
            coast: a topography or land–sea mask, for coastlines on the map.
            progress: show a progress bar.
        """
        from aenp.earth.placement import suggest

        given = number, target, variable, elevation, plot, covariates, coast, progress
        return suggest(self, context, candidates, *given)

    def means(self, contexts: Sequence[pd.DataFrame], places: pd.DataFrame) -> Float[ndarray, "contexts places"]:
        """The predictive mean at the places given each of the contexts, as `predict` would have it, at once.

        Args:
            contexts: tables as `observed` returns them, each a case of its own.
            places: a table with the coordinates that the model sees.
        """
        corners, nodes = self._corners_and_nodes(pd.concat(contexts), places)
        predictor = self._predictor()
        means = predictor.means([predictor.context(each, corners, nodes) for each in contexts], places)
        shift, scale = self.frame.units(places)
        return shift + scale * means

    def distributions(
        self, context: pd.DataFrame, places: pd.DataFrame, number: int = 0
    ) -> Iterator[tuple[ndarray, Distribution]]:
        """The predictive distributions of one of the variables at places, in the model's unit, with their rows.

        Args:
            context: observations of what the model sees at once, as `observed` returns them.
            places: a table with the coordinates and covariates that the model sees.
            number: of the variable.
        """
        corners, nodes = self._corners_and_nodes(context, places)
        predictor = self._predictor()
        with torch.no_grad():
            yield from predictor.distributions(predictor.context(context, corners, nodes), places, number)

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
        return places_with_covariates(
            places, self.frame.covariates, open_layers(covariates, self.frame.covariates, elevation), describe(target)
        )

    def observed(
        self,
        context: PointsLike,
        variable: str | Sequence[str] | None = None,
        elevation: FieldLike | None = None,
        covariates: Sequence[FieldLike] = (),
    ) -> pd.DataFrame:
        """The observations as a table, as `open_points` returns it; in the model's units.

        Of several variables each has a column of its name, with NaN where it was not observed.
        """
        return observations_in(self.frame, context, variable, elevation, covariates)

    @property
    def columns(self) -> list[str]:
        """The columns of values in what `observed` returns."""
        return columns_of(self.frame)

    def _corners_and_nodes(
        self, observed: pd.DataFrame, places: pd.DataFrame
    ) -> tuple[Float[ndarray, "2 dim_x"], Nodes | None]:
        """The corners of the places, and the grid that they and the observations are to be moved to."""
        x = {name: axis.x(places[name].to_numpy()) for name, axis in self.frame.axes.items()}
        corners = np.array([[f(values) for values in x.values()] for f in (np.min, np.max)])
        return corners, nodes_for(self.process, self.frame, observed, x)[0]

    def _predictor(self, outputs: Outputs | None = None, misses: Misses | None = None) -> Predictor:
        """What predicts these outputs; the model is in evaluation mode afterwards."""
        return Predictor(self.eval().process, self.frame, self.spread, self.centred, outputs or {}, misses)

    def _unobserved(self, observed: pd.DataFrame) -> dict[str, str]:
        """A note on variables that were not observed at all."""
        missing = [name for name in self.columns if pd.isna(observed[name].to_numpy()).all()]
        return {"comment": f"nothing was observed of {', '.join(missing)}"} if missing else {}

    def _at_time(self, corners: ndarray, times: ndarray | None, number: int) -> Float[ndarray, "2 dim_x"]:
        """The corners of the target at one of its times."""
        if times is None or "time" not in self.frame.axes:
            return corners
        at = corners.copy()
        at[:, list(self.frame.axes).index("time")] = self.frame.axes["time"].x(times[number])
        return at

    def _inside(self, *places: ArrayLike) -> ndarray:
        return self.frame.inside(dict(zip(self.frame.axes, places, strict=True)))

    def _described(self, result: xr.Dataset) -> xr.Dataset:
        """The result with CF metadata of its own."""
        result["in_domain"].attrs = {"long_name": "within the box of the training data"}
        result.attrs = {"Conventions": "CF-1.11", "source": f"aenp {__version__}, {self.process.label}"}
        if self.frame.period is not None:
            result.attrs["training_period"] = " to ".join(self.frame.period)
        return result
