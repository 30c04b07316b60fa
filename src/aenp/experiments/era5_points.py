"""Surface air temperature at points (section 5.3 and appendix E.3): in the plane, and with time and elevation too."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from aenp.data.windows import Windows
from aenp.experiments.era5 import (
    EUROPE,
    EUROPE_BOX,
    LAND,
    SMALL_FIXED,
    TOPOGRAPHY,
    US,
    Grid,
    Means,
    approximate,
    compare_with_elevation,
    map_effects,
    mean_effect,
    scale,
)
from aenp.experiments.experiment import PAPER, STRATA, Experiment, Number, Setting, Stratum, key, per_stratum
from aenp.experiments.plane import (
    PAPER_FIXED,
    PAPER_PTTNP,
    PAPER_PTTNP_FIXED,
    PAPER_UNET,
    SMALL_PTTNP,
    SMALL_UNET,
)
from aenp.process import NeuralProcess, Symmetry
from aenp.recipe import Recipe
from aenp.task import Task

FILE = "era5_gsod_points_europe_daily_2006-2010.nc"
TRAIN, VALIDATION, TEST = ("2006-01-01", "2009-11-30"), ("2009-12-01", "2009-12-31"), ("2010-01-01", "2010-12-31")
PERIOD = (np.datetime64(VALIDATION[1]) - np.datetime64(TRAIN[0])) / np.timedelta64(1, "D")
"Days from the first day of training to the last of the validation."
DEGREES, DAYS, METRES = 6.0, 4.0, 1000.0
"The units of x."
WINDOW = 12.0
"Side of a task's window in degrees."
ALPS = Grid(np.linspace(41, 53, 49), np.linspace(10, 22, 49))
"Where the maps are."
OFF_GRID = {"on_grid": False}

TRANSFORMERS: tuple[tuple[str, Symmetry], ...] = (("pttnp", "none"), ("pttnp", "exact"), ("pttnp", "approx"))
SMALL_TRANSFORMER = Setting(
    Recipe(steps=1_500, learning_rate=2e-3), SMALL_PTTNP, SMALL_FIXED | {"num": 64}, approx={"fixed_at_targets": True}
)
MODELS: tuple[tuple[str, Symmetry], ...] = (*TRANSFORMERS, ("convcnp", "exact"), ("convcnp", "approx"))
PAPER_TRANSFORMER = Setting(PAPER, PAPER_PTTNP, PAPER_PTTNP_FIXED)


def _of_models(numbers: Mapping[str, Number]) -> dict[str, Number]:
    return {name: number for name, number in numbers.items() if name in itertools.starmap(key, MODELS)}


@dataclass(frozen=True)
class Points:
    """Temperatures in kelvin, `(time, points)`; dates; and where the points are, in the units of x."""

    values: Float[ndarray, "time points"]
    dates: ndarray
    places: Float[ndarray, "points 3"]
    "Latitude, longitude, elevation."

    @property
    def times(self) -> Float[ndarray, " time"]:
        """The dates in the units of x."""
        return (self.dates - np.datetime64(TRAIN[0])) / np.timedelta64(1, "D") / DAYS

    def where(self, times: Bool[ndarray, " time"], points: Bool[ndarray, " points"]) -> "Points":
        return Points(self.values[np.ix_(times, points)], self.dates[times], self.places[points])

    def only(self, times: Bool[ndarray, " time"]) -> "Points":
        """All days, with values at some of them."""
        return Points(np.where(times[:, None], self.values, np.float32(np.nan)), self.dates, self.places)


class PointTemperature(Experiment):
    """Windows of 12° around points; x in units of 6°, y in standard deviations of the training data."""

    name = "era5-points-2d"
    title = "Surface temperature, at points"
    dim_x = 2
    norm = 2
    models = MODELS
    domain = tuple((low / DEGREES, high / DEGREES) for low, high in (EUROPE_BOX[:2], EUROPE_BOX[2:]))
    settings = {  # noqa: RUF012
        "cpu": {
            "pttnp": SMALL_TRANSFORMER,
            "convcnp": Setting(Recipe(steps=800), SMALL_UNET | OFF_GRID, SMALL_FIXED),
        },
        "paper": {"pttnp": PAPER_TRANSFORMER, "convcnp": Setting(PAPER, PAPER_UNET | OFF_GRID, PAPER_FIXED)},
    }
    paper = {"Europe": _of_models(EUROPE), "elsewhere": _of_models(US)}  # noqa: RUF012
    paper_tests = {"elsewhere": "US", "Europe, 2010": "Europe"}  # noqa: RUF012
    remark = """\
These are daily means of ERA5 at the nodes nearest to stations: trained on 2006 to 2009, tested on 2010. *Elsewhere*
lies west of 10° E or north of 60° N. The paper has hourly WFDE5 on the grid, and the US in place of *elsewhere*: its
columns show what it found there and are no target for these. Tasks of one year are much alike, so that the standard
errors, which are over tasks, are too small for other years."""
    days: ClassVar[int] = 1
    "How many are in a task."
    drawn: ClassVar[str] = "2010-07-31"
    "The last day of the context on the maps."

    def source(self) -> Windows:
        return replace(self._windows(self._train), num_targets=256)

    def validation(self) -> tuple[list[Task], None]:
        held_out = self._windows(self._points(VALIDATION))
        return [held_out.batch(16, index, seed=0) for index in range(4)], None

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        each = per_stratum(tasks)
        sets = {name: self._windows(points) for name, points in self._test_points().items()}
        return {
            name: [Stratum(windows.batch(each, number, seed)) for number in range(STRATA)]
            for name, windows in sets.items()
        }

    def _test_points(self) -> dict[str, Points]:
        return {"Europe": self._points(TEST), "elsewhere": self._points(TEST, inside=False)}

    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        import xarray as xr

        points = self._drawn()
        day = int(np.searchsorted(points.dates, np.datetime64(self.drawn)))
        latitude, longitude, _ = points.places.T * DEGREES

        def at_points(some: Bool[ndarray, " points"]) -> xr.DataArray:
            where = {"latitude": ("point", latitude[some]), "longitude": ("point", longitude[some])}
            return xr.DataArray(points.values[day, some], dims="point", coords=where)

        panels = [
            ("context", at_points(_seen(points, day, 1, seed)[0])),
            ("truth", at_points(np.isfinite(points.values[day]))),
            ("elevation", ALPS.on_map(self._elevation)),
        ]
        means = [
            (model.label, map(ALPS.on_map, self._means(model, points, day, seed)))
            for model in approximate(models) or models.values()
        ]
        return [map_effects(panels, means, out / "local_effects.png", self.file(LAND))]

    def findings(self, models: Mapping[str, NeuralProcess], seed: int) -> str:
        points = self._drawn()
        effects = {}
        for model in approximate(models):
            days = np.linspace(0, len(points.dates) - 1, 16).astype(int).tolist()
            means = [self._means(model, points, day, seed + number) for number, day in enumerate(days)]
            effects[model.label] = mean_effect(means)
        return compare_with_elevation(
            effects, self._elevation, ALPS.land(self.file(LAND)), "16 days of the year, a third of the points observed"
        )

    def _drawn(self) -> Points:
        """Points of the test within the map."""
        points = next(iter(self._test_points().values()))
        latitude, longitude, _ = points.places.T * DEGREES
        south, north, west, east = *ALPS.latitude[[0, -1]], *ALPS.longitude[[0, -1]]
        inside = (latitude >= south) & (latitude <= north) & (longitude >= west) & (longitude <= east)
        days = np.isfinite(points.values).any(axis=1)
        return points.where(days, inside)

    def _means(self, model: NeuralProcess, points: Points, day: int, seed: int) -> Means:
        """The equivariant and the approximate mean in kelvin on the map, given some points of it until that day."""
        mean, std = self._scale
        seen = _seen(points, day, self.days, seed)
        ago, station = np.nonzero(seen)
        values = points.values[day - ago, station]
        xc = self._inputs(points.places[station], points.times[day - ago])
        grid = np.stack(np.meshgrid(ALPS.latitude / DEGREES, ALPS.longitude / DEGREES, indexing="ij"), axis=-1)
        places = np.concatenate([grid, self._elevation[..., None] / METRES], axis=-1).reshape(-1, 3)
        xt = self._inputs(places, np.full(len(places), points.times[day]))
        yc = torch.from_numpy((values[None, :, None] - mean) / std)
        with torch.no_grad():
            both = model.symmetry_breaking(Task(torch.from_numpy(xc)[None], yc, torch.from_numpy(xt)[None]))
        parts = both.equivariant, both.approximate
        equivariant, whole = (mean + std * part.mean.view(grid.shape[:-1]).numpy() for part in parts)
        return equivariant, whole

    def _inputs(
        self, places: Float[ndarray, "points 3"], times: Float[ndarray, " points"]
    ) -> Float[ndarray, "points x"]:
        return places[:, :2]

    def _windows(self, points: Points) -> Windows:
        mean, std = self._scale
        return Windows((points.values - mean) / std, points.places[:, :2], WINDOW / DEGREES)

    @cached_property
    def _elevation(self) -> Float[ndarray, "x y"]:
        return ALPS.elevation(self.file(TOPOGRAPHY))

    @cached_property
    def _scale(self) -> tuple[float, float]:
        return scale(self._train.values)

    @property
    def _train(self) -> Points:
        return self._points(TRAIN)

    def _points(self, period: tuple[str, str], inside: bool = True) -> Points:
        """The points in the paper's box, or west or north of it, in a period."""
        every = self._every
        south, north, west, east = EUROPE_BOX
        latitude, longitude, _ = every.places.T * DEGREES
        box = (latitude >= south) & (latitude <= north) & (longitude >= west) & (longitude <= east)
        times = (every.dates >= np.datetime64(period[0])) & (every.dates <= np.datetime64(period[1]))
        return every.where(times, box if inside else (longitude < west) | (latitude > north))

    @cached_property
    def _every(self) -> Points:
        """All points, one for each node of ERA5: stations that share one have the same values, with other gaps."""
        from aenp.data.gridded import elevation_at
        from aenp.data.sources import open_dataset

        data = open_dataset(self.file(FILE))
        missing = {"t2m_era5", "era_lat", "era_lon", "time"} - set(data.variables)
        if missing:
            raise ValueError(
                f"{self.file(FILE)} lacks {', '.join(sorted(missing))}; docs/era5.md tells what it must have"
            )
        nodes, node = np.unique(np.stack([data["era_lat"], data["era_lon"]]), axis=1, return_inverse=True)
        order = np.argsort(node)
        series = data["t2m_era5"].transpose("time", "point").values[:, order].astype(np.float32)
        values = np.fmax.reduceat(series, np.searchsorted(node[order], np.arange(nodes.shape[1])), axis=1)
        metres = np.maximum(elevation_at(self.file(TOPOGRAPHY), *nodes), 0.0)
        places = np.stack([nodes[0] / DEGREES, nodes[1] / DEGREES, metres / METRES], axis=-1)
        return Points(values, data["time"].values, places)


class SpaceTimeTemperature(PointTemperature):
    """Windows of 12° and four days, with latitude, longitude, time and elevation as inputs."""

    name = "era5-4d"
    title = "Surface temperature in space, time and elevation"
    dim_x = 4
    models = TRANSFORMERS
    days = 4
    drawn = "2009-07-31"
    domain = (*PointTemperature.domain, (0.0, float(PERIOD) / DAYS), None)
    settings = {  # noqa: RUF012
        "cpu": {
            "pttnp": replace(SMALL_TRANSFORMER, fixed_inputs={**SMALL_TRANSFORMER.fixed_inputs, "fourier": 8}),
        },
        "paper": {"pttnp": PAPER_TRANSFORMER},
    }
    paper = {  # noqa: RUF012
        "Europe, 2010": {"pttnp-none": (0.94, 0.01), "pttnp-exact": (1.14, 0.01), "pttnp-approx": (1.21, 0.01)},
        "elsewhere": {"pttnp-exact": (0.73, 0.01), "pttnp-approx": (0.76, 0.01)},
    }
    remark = f"""\
*Europe* are the days after the 24th of each month of 2006 to 2009, which were not trained on, in the period in which
fixed inputs may differ from zero. In *Europe, 2010* and *elsewhere* they are zero at every target. The model without
symmetry gets time as it is, hundreds of units from the first day to the last, which does not help it.

{PointTemperature.remark}"""

    @property
    def _train(self) -> Points:
        points = self._points(TRAIN)
        return points.only(~_late(points.dates))

    def _test_points(self) -> dict[str, Points]:
        points = self._points(TRAIN)
        europe, elsewhere = super()._test_points().values()
        return {"Europe": points.only(_late(points.dates)), "Europe, 2010": europe, "elsewhere": elsewhere}

    def findings(self, models: Mapping[str, NeuralProcess], seed: int) -> str:
        """Nothing of elevation, which these models are shown."""
        return ""

    def _windows(self, points: Points) -> Windows:
        mean, std = self._scale
        return Windows((points.values - mean) / std, points.places, WINDOW / DEGREES, points.times, self.days)

    def _inputs(
        self, places: Float[ndarray, "points 3"], times: Float[ndarray, " points"]
    ) -> Float[ndarray, "points 4"]:
        return np.concatenate([places[:, :2], times[:, None], places[:, 2:]], axis=1)


def _late(dates: ndarray) -> Bool[ndarray, " time"]:
    """Which are days after the 24th of a month."""
    return (dates.astype("datetime64[D]") - dates.astype("datetime64[M]")) >= np.timedelta64(24, "D")


def _seen(points: Points, day: int, days: int, seed: int) -> Bool[ndarray, "days points"]:
    """Which observations of the day, the day before, … are the context: a third of them."""
    values = points.values[[day - ago for ago in range(days)]]
    return np.isfinite(values) & (np.random.default_rng(seed).uniform(size=values.shape) < 1 / 3)
