"""Surface air temperature in space, time and elevation (section 5.3 and appendix E.3)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from aenp.data.windows import Windows
from aenp.experiments.experiment import Number
from aenp.experiments.temperature.effects import EUROPE_BOX, TOPOGRAPHY
from aenp.experiments.temperature.grid import SPLITS, Part
from aenp.experiments.temperature.points import (
    DEGREES,
    PAPER_TRANSFORMER,
    RECIPE,
    SMALL_TRANSFORMER,
    TRAIN,
    TRANSFORMERS,
    VALIDATION,
    Points,
    PointTemperature,
)
from aenp.process import NeuralProcess

if TYPE_CHECKING:
    from aenp.earth.frame import Axis

DAYS, METRES = 4.0, 1000.0
"The units of x."
SOUTH, NORTH, WEST, EAST = (bound / DEGREES for bound in EUROPE_BOX)
YEARLY = {
    "fourier": 8,
    "domain": ((SOUTH, NORTH), (WEST, EAST), None, None),
    "periods": (None, None, 365.25 / DAYS, None),
}
"Fixed inputs of Europe that repeat every year, and so hold in years that the model has not seen."
PATCH = 8.0
"Side of the paper's patches in degrees."
EUROPE: dict[str, Number] = {"pttnp-none": (0.94, 0.01), "pttnp-exact": (1.14, 0.01), "pttnp-approx": (1.21, 0.01)}
US: dict[str, Number] = {"pttnp-none": (-1e26, math.nan), "pttnp-exact": (0.73, 0.01), "pttnp-approx": (0.76, 0.01)}


class SpaceTimeTemperature(PointTemperature):
    """Windows of 12° and four days, with latitude, longitude, time and elevation as inputs.

    With the split `paper` it is a `GriddedSpaceTime`.
    """

    name = "era5-4d"
    title = "Surface temperature in space, time and elevation"
    dim_x = 4
    models = TRANSFORMERS
    days = 4
    drawn = "2009-07-31"
    setups = {  # noqa: RUF012
        "cpu": {
            "pttnp": replace(
                SMALL_TRANSFORMER,
                recipe=replace(RECIPE, steps=6_000),
                fixed_inputs={**SMALL_TRANSFORMER.fixed_inputs, **YEARLY},
            ),
        },
        "paper": {"pttnp": PAPER_TRANSFORMER},
    }
    paper = {"Europe, 2010": EUROPE, "Europe, 2019": EUROPE, "elsewhere": US, "US": US}  # noqa: RUF012
    outside = ("elsewhere", "US")
    splits = ("points", "paper")
    years: ClassVar[tuple[str, str]] = (TRAIN[0], VALIDATION[1])
    "First and last day of the fixed inputs."
    remark = f"""\
*Europe* means the days after the 24th of each month of 2006 to 2009, not used in training. The fixed inputs depend on
latitude, longitude, elevation and the day of the year, so that they also hold in *Europe, 2010*, a year that no model
has seen; *elsewhere* they are zero at every target. The model without symmetry sees time scaled to the years of
training, beyond which 2010 lies.

{PointTemperature.remark}"""

    def __new__(cls, data: Path | None = None, split: str | None = None) -> Any:
        return super().__new__(GriddedSpaceTime if split == "paper" else cls)

    @property
    def axes(self) -> "list[Axis]":
        from aenp.earth.frame import Axis
        from aenp.earth.sources import EPOCH

        first, last = ((np.datetime64(day) - EPOCH) / np.timedelta64(1, "D") for day in self.years)
        return [*super().axes, Axis("time", DAYS, first, first, last), Axis("elevation", METRES)]

    @property
    def _train(self) -> Points:
        points = self._points(TRAIN)
        return points.only(~_late(points.dates))

    def _test_points(self) -> dict[str, Points]:
        points = self._points(TRAIN)
        europe, elsewhere = super()._test_points().values()
        return {"Europe": points.only(_late(points.dates)), "Europe, 2010": europe, "elsewhere": elsewhere}

    def findings(self, models: Mapping[str, NeuralProcess], seed: int) -> str:
        """Nothing about elevation, which these models see."""
        return ""


class GriddedSpaceTime(SpaceTimeTemperature):
    """The paper's form: patches of 8°, 16 × 16 points of its grid, at the same hour of four days.

    Grids of any resolution will do; of more than 1024 points, as in the paper's patches, 1024 are taken at random.
    """

    years = ("2018-01-01", "2019-01-01")
    parts = SPLITS["paper"]
    drawn = "2019-07-31"

    @property
    def period(self) -> tuple[str, str]:
        return self.parts.train.period

    @property
    def _train(self) -> Points:
        return self._nodes(self.parts.train)

    @property
    def _validation(self) -> Points:
        return self._nodes(self.parts.validation)

    def _test_points(self) -> dict[str, Points]:
        return {"Europe, 2019": self._nodes(self.parts.tests["Europe"]), "US": self._nodes(self.parts.tests["US"])}

    def _drawn(self) -> Points:
        """Points of the test within the map, at one hour of each day."""
        points = super()._drawn()
        hours = points.dates - points.dates.astype("datetime64[D]")
        return points.where(hours == hours[0], np.ones_like(points.latitude, dtype=bool))

    def _windows(self, points: Points) -> Windows:
        windows = super()._windows(points)
        day = max(1, int(np.timedelta64(1, "D") / np.diff(points.dates).min()))
        box = _cells(windows.places[:, 0]), _cells(windows.places[:, 1])
        return replace(windows, extent=PATCH / DEGREES, stride=day, box=box)

    def _nodes(self, part: Part) -> Points:
        """The points of a grid that have values."""
        from aenp.earth.gridded import elevation_at, open_gridded

        field = open_gridded(self.file(part.file), "t2m", part.region, part.period).astype(np.float32)
        latitude, longitude = (
            side.ravel() for side in np.meshgrid(field.latitude.values, field.longitude.values, indexing="ij")
        )
        values = field.values.reshape(len(field), -1)
        metres = np.maximum(elevation_at(self.file(TOPOGRAPHY), latitude, longitude), 0.0)
        points = Points(values, field.time.values, latitude.astype(float), longitude.astype(float), metres)
        return points.where(np.ones(len(values), dtype=bool), np.isfinite(values).any(axis=0))


def _cells(side: Float[ndarray, " points"]) -> tuple[float, float]:
    """From the first to the last cell of a grid, given the coordinates of its points along a side."""
    nodes = np.unique(side)
    half = np.diff(nodes).min() / 2
    return float(nodes[0] - half), float(nodes[-1] + half)


def _late(dates: ndarray) -> Bool[ndarray, " time"]:
    """Which are days after the 24th of a month."""
    return (dates.astype("datetime64[D]") - dates.astype("datetime64[M]")) >= np.timedelta64(24, "D")
