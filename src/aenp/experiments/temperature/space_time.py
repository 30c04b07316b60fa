"""Surface air temperature in space, time and elevation (section 5.3 and appendix E.3)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from aenp.experiments.temperature.effects import EUROPE_BOX
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


class SpaceTimeTemperature(PointTemperature):
    """Windows of 12° and four days, with latitude, longitude, time and elevation as inputs."""

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
    paper = {  # noqa: RUF012
        "Europe, 2010": {"pttnp-none": (0.94, 0.01), "pttnp-exact": (1.14, 0.01), "pttnp-approx": (1.21, 0.01)},
        "elsewhere": {"pttnp-exact": (0.73, 0.01), "pttnp-approx": (0.76, 0.01)},
    }
    remark = f"""\
*Europe* means the days after the 24th of each month of 2006 to 2009, not used in training. The fixed inputs depend on
latitude, longitude, elevation and the day of the year, so that they also hold in *Europe, 2010*, a year that no model
has seen; *elsewhere* they are zero at every target. The model without symmetry sees time scaled to the years of
training, beyond which 2010 lies.

{PointTemperature.remark}"""

    @property
    def axes(self) -> "list[Axis]":
        from aenp.earth.frame import Axis
        from aenp.earth.sources import EPOCH

        first, last = ((np.datetime64(day) - EPOCH) / np.timedelta64(1, "D") for day in (TRAIN[0], VALIDATION[1]))
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


def _late(dates: ndarray) -> Bool[ndarray, " time"]:
    """Which are days after the 24th of a month."""
    return (dates.astype("datetime64[D]") - dates.astype("datetime64[M]")) >= np.timedelta64(24, "D")
