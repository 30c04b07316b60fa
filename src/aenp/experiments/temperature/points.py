"""Surface air temperature at points (section 5.3 and appendix E.3)."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from aenp.data.windows import Windows
from aenp.evaluation.scores import Stratum
from aenp.experiments.experiment import PAPER, STRATA, FamilySetup, Number, key, per_stratum
from aenp.experiments.plane import (
    PAPER_FIXED,
    PAPER_PTTNP,
    PAPER_PTTNP_FIXED,
    PAPER_UNET,
    SMALL_PTTNP,
    SMALL_UNET,
)
from aenp.experiments.temperature.effects import (
    EUROPE,
    EUROPE_BOX,
    EUROPE_CONTEXT,
    LAND,
    SMALL_FIXED,
    TOPOGRAPHY,
    US,
    US_CONTEXT,
    FieldExperiment,
    Grid,
    approximate,
    compare_with_elevation,
    map_effects,
)
from aenp.process import NeuralProcess, Symmetry
from aenp.task import Task
from aenp.training.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from aenp.earth.frame import Axis

FILE = "era5_gsod_points_europe_daily_2006-2010.nc"
TRAIN, VALIDATION, TEST = ("2006-01-01", "2009-11-30"), ("2009-12-01", "2009-12-31"), ("2010-01-01", "2010-12-31")
DEGREES = 6.0
"The unit of x."
WINDOW = 12.0
"Side of a task's window in degrees."
ALPS = Grid(np.linspace(41, 53, 49), np.linspace(10, 22, 49))
"Where the maps are."
OFF_GRID = {"on_grid": False}

TRANSFORMERS: tuple[tuple[str, Symmetry], ...] = (("pttnp", "none"), ("pttnp", "exact"), ("pttnp", "approx"))
RECIPE = Recipe(steps=10_000, batch_size=8, learning_rate=2e-3, exact_first=0.25, elsewhere=0.5)
SMALL_TRANSFORMER = FamilySetup(
    RECIPE,
    SMALL_PTTNP | {"values": "centred"},
    SMALL_FIXED | {"num": 64, "fourier": 16, "dropout": 0.25},
    approx={"fixed_at_targets": True},
    none={"optimiser": "muon"},
    fourier=16,
)
MODELS: tuple[tuple[str, Symmetry], ...] = (*TRANSFORMERS, ("convcnp", "exact"), ("convcnp", "approx"))
ALL_TARGETS = {"num_targets": None}
PAPER_TRANSFORMER = FamilySetup(PAPER, PAPER_PTTNP, PAPER_PTTNP_FIXED, tasks=ALL_TARGETS)


def _of_models(numbers: Mapping[str, Number]) -> dict[str, Number]:
    return {name: number for name, number in numbers.items() if name in itertools.starmap(key, MODELS)}


@dataclass(frozen=True)
class Points:
    """Temperatures in kelvin, `(time, points)`, their dates, and where the points are, in degrees and metres."""

    values: Float[ndarray, "time points"]
    dates: ndarray
    latitude: Float[ndarray, " points"]
    longitude: Float[ndarray, " points"]
    elevation: Float[ndarray, " points"]

    def where(self, times: Bool[ndarray, " time"], points: Bool[ndarray, " points"]) -> "Points":
        places = (place[points] for place in (self.latitude, self.longitude, self.elevation))
        return Points(self.values[np.ix_(times, points)], self.dates[times], *places)

    def only(self, times: Bool[ndarray, " time"]) -> "Points":
        """All days, with values only on some of them."""
        return replace(self, values=np.where(times[:, None], self.values, np.float32(np.nan)))

    def within(self, south: float, north: float, west: float, east: float) -> Bool[ndarray, " points"]:
        """Which points are in a box, edges included."""
        latitude, longitude = self.latitude, self.longitude
        return (latitude >= south) & (latitude <= north) & (longitude >= west) & (longitude <= east)

    def table(self, day: int, seen: Bool[ndarray, "days points"]) -> "pd.DataFrame":
        """The observations of a day, of the day before, … that are seen."""
        import pandas as pd

        ago, point = np.nonzero(seen)
        places = {name: getattr(self, name)[point] for name in ("latitude", "longitude", "elevation")}
        return pd.DataFrame({"time": self.dates[day - ago], **places, "t2m": self.values[day - ago, point]})


class PointTemperature(FieldExperiment):
    """Windows of 12° around points; x in units of 6°, y in standard deviations of the training data."""

    name = "era5-points-2d"
    title = "Surface temperature, at points"
    dim_x = 2
    norm = 2
    block = "week"
    models = MODELS
    setups = {  # noqa: RUF012
        "cpu": {
            "pttnp": SMALL_TRANSFORMER,
            "convcnp": FamilySetup(
                replace(RECIPE, batch_size=4, optimiser="muon"),
                SMALL_UNET | OFF_GRID | {"values": "centred", "margin": 0},
                SMALL_FIXED | {"fourier": 16, "dropout": 0.5},
            ),
        },
        "paper": {
            "pttnp": PAPER_TRANSFORMER,
            "convcnp": FamilySetup(PAPER, PAPER_UNET | OFF_GRID, PAPER_FIXED, tasks=ALL_TARGETS),
        },
    }
    paper = {  # noqa: RUF012
        "Europe": _of_models(EUROPE),
        "elsewhere": _of_models(US),
        "context, Europe": _of_models(EUROPE_CONTEXT),
        "context, elsewhere": _of_models(US_CONTEXT),
    }
    paper_tests = {"elsewhere": "US", "Europe, 2010": "Europe"}  # noqa: RUF012
    outside: ClassVar[Sequence[str]] = ("elsewhere",)
    remark = """\
These are daily means of ERA5 at the nodes nearest to stations: trained on 2006 to 2009, tested on 2010. *Elsewhere*
lies west of 10° E or north of 60° N. The paper has hourly WFDE5 on the grid, and the US in place of *elsewhere*: its
columns show what it found there and are not a target for ours."""
    days: ClassVar[int] = 1
    "Number of days in a task."
    drawn: ClassVar[str] = "2010-07-31"
    "The last day of the context on the maps."

    @property
    def axes(self) -> "list[Axis]":
        from aenp.earth.frame import Axis

        south, north, west, east = EUROPE_BOX
        sides = (("latitude", south, north), ("longitude", west, east))
        return [Axis(name, DEGREES, 0.0, low, high) for name, low, high in sides]

    @property
    def period(self) -> tuple[str, str]:
        return TRAIN

    def training_values(self) -> Float[ndarray, "time points"]:
        return self._train.values

    def source(self) -> Windows:
        return replace(self._windows(self._train), num_targets=256)

    def validation(self) -> tuple[list[Task], None]:
        held_out = self._windows(self._validation)
        return [held_out.batch(16, index, seed=0) for index in range(4)], None

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        each = per_stratum(tasks)
        tests = {}
        for name, points in self._test_points().items():
            windows, weeks = self._windows(points), points.dates.astype("datetime64[W]").astype(int)
            strata = [windows.batch_with_starts(each, number, seed) for number in range(STRATA)]
            tests[name] = [Stratum(task, blocks=weeks[starts].tolist()) for task, starts in strata]
        return tests

    def _test_points(self) -> dict[str, Points]:
        return {"Europe": self._points(TEST), "elsewhere": self._points(TEST, inside=False)}

    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        points = self._drawn()
        day = int(np.searchsorted(points.dates, np.datetime64(self.drawn)))
        panels = [
            ("context", _at_points(points.table(day, _seen(points, day, 1, seed)))),
            (f"truth, {self.drawn}", _at_points(points.table(day, np.isfinite(points.values[[day]])))),
            ("elevation", ALPS.on_map(self._elevation)),
        ]
        predictions = [
            (model.label, self._predict(model, points, day, seed)) for model in approximate(models) or models.values()
        ]
        return [map_effects(panels, predictions, out / "local_effects.png", self.file(LAND))]

    def findings(self, models: Mapping[str, NeuralProcess], seed: int) -> str:
        points = self._drawn()
        effects = {}
        for model in approximate(models):
            days = np.linspace(0, len(points.dates) - 1, 16).astype(int).tolist()
            every = [self._predict(model, points, day, seed + n)["local_effect"].values for n, day in enumerate(days)]
            effects[model.label] = np.mean(every, axis=0)
        return compare_with_elevation(
            effects, self._elevation, ALPS.land(self.file(LAND)), "16 days of the year, a third of the points observed"
        )

    def _drawn(self) -> Points:
        """Points of the test within the map."""
        points = next(iter(self._test_points().values()))
        days = np.isfinite(points.values).any(axis=1)
        return points.where(days, points.within(*ALPS.latitude[[0, -1]], *ALPS.longitude[[0, -1]]))

    def _predict(self, model: NeuralProcess, points: Points, day: int, seed: int) -> "xr.Dataset":
        """The prediction on the map, given some points of it until that day."""
        import xarray as xr

        context = points.table(day, _seen(points, day, self.days, seed))
        target = ALPS.on_map(self._elevation).to_dataset(name="elevation").set_coords("elevation")
        target = target.assign_coords(time=xr.DataArray(points.dates[day]))
        return self.wrap(model).predict(context, target)

    def _windows(self, points: Points) -> Windows:
        """Tasks; of latitude, longitude and perhaps time and elevation, time comes after the first two."""
        places = [axis.x(getattr(points, name)) for name, axis in self.frame.axes.items() if name != "time"]
        times = self.frame.axes["time"].x(points.dates) if "time" in self.frame.axes else None
        values = self.frame.variables[0].y(points.values)
        return Windows(values, np.stack(places, axis=-1), WINDOW / DEGREES, times, self.days)

    @cached_property
    def _elevation(self) -> Float[ndarray, "x y"]:
        return ALPS.elevation(self.file(TOPOGRAPHY))

    @property
    def _train(self) -> Points:
        return self._points(TRAIN)

    @property
    def _validation(self) -> Points:
        return self._points(VALIDATION)

    def _points(self, period: tuple[str, str], inside: bool = True) -> Points:
        """The points in the paper's box, or west or north of it, in a period."""
        every = self._every
        times = (every.dates >= np.datetime64(period[0])) & (every.dates <= np.datetime64(period[1]))
        beyond = (every.longitude < EUROPE_BOX[2]) | (every.latitude > EUROPE_BOX[1])
        return every.where(times, every.within(*EUROPE_BOX) if inside else beyond)

    @cached_property
    def _every(self) -> Points:
        """All points, one for each node of ERA5: stations that share one have the same values, with different gaps."""
        from aenp.earth.gridded import elevation_at
        from aenp.earth.sources import open_dataset

        data = open_dataset(self.file(FILE))
        missing = {"t2m_era5", "era_lat", "era_lon", "time"} - set(data.variables)
        if missing:
            raise ValueError(f"{self.file(FILE)} lacks {', '.join(sorted(missing))}; docs/era5.md describes it")
        nodes, node = np.unique(np.stack([data["era_lat"], data["era_lon"]]), axis=1, return_inverse=True)
        order = np.argsort(node)
        series = data["t2m_era5"].transpose("time", "point").values[:, order].astype(np.float32)
        values = np.fmax.reduceat(series, np.searchsorted(node[order], np.arange(nodes.shape[1])), axis=1)
        metres = np.maximum(elevation_at(self.file(TOPOGRAPHY), *nodes), 0.0)
        latitude, longitude = nodes.astype(float)
        return Points(values, data["time"].values, latitude, longitude, metres)


def _seen(points: Points, day: int, days: int, seed: int) -> Bool[ndarray, "days points"]:
    """Which observations of the day, the day before, … are the context: a third of them."""
    values = points.values[[day - ago for ago in range(days)]]
    return np.isfinite(values) & (np.random.default_rng(seed).uniform(size=values.shape) < 1 / 3)


def _at_points(table: "pd.DataFrame") -> "xr.DataArray":
    """The temperatures of a table as an xarray object, to be drawn as dots."""
    import xarray as xr

    where = {name: ("point", table[name]) for name in ("latitude", "longitude")}
    return xr.DataArray(table["t2m"], dims="point", coords=where)
