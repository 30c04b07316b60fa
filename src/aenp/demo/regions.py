"""The regions of the page's map with their coasts, and what a directory of data adds to them: days and elevation."""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from aenp.earth.field_model import FieldModel
from aenp.earth.gridded import open_gridded
from aenp.experiments.plane import CELLS_PER_UNIT
from aenp.experiments.temperature.effects import TOPOGRAPHY, Grid
from aenp.experiments.temperature.grid import SPLITS, Part, Temperature

DAYS = 4
CITIES = {
    "Italy": {
        "Milan": (45.46, 9.19),
        "Venice": (45.44, 12.33),
        "Rome": (41.89, 12.48),
        "Naples": (40.84, 14.25),
        "Palermo": (38.12, 13.36),
        "Cagliari": (39.22, 9.12),
    },
    "UK": {
        "London": (51.51, -0.13),
        "Cardiff": (51.48, -3.18),
        "Dublin": (53.35, -6.26),
        "Edinburgh": (55.95, -3.19),
        "Inverness": (57.48, -4.22),
    },
}


@dataclass(frozen=True)
class Region:
    """A grid of cells: the middle of the one in the south-west, their side in degrees, and how many there are."""

    name: str
    south: float
    west: float
    step: float
    rows: int
    columns: int

    @property
    def grid(self) -> Grid:
        return Grid(self.south + self.step * np.arange(self.rows), self.west + self.step * np.arange(self.columns))


def regions_of(model: FieldModel) -> list[Region]:
    """The region that the model was trained in, and one of the same size around that of the test elsewhere."""
    latitude, longitude = model.frame.axes.values()
    step = latitude.unit / CELLS_PER_UNIT
    rows, columns = (round((axis.high - axis.low) / step) for axis in (latitude, longitude))
    home, away = SPLITS["italy"].tests
    south, north, west, east = SPLITS["italy"].tests[away].region
    # On the nodes of the other file, which are whole multiples of a step.
    first, left = (
        step * round((middle - step * (count - 1) / 2) / step)
        for middle, count in (((south + north) / 2, rows), ((west + east) / 2, columns))
    )
    here = Region(home, latitude.low + step / 2, longitude.low + step / 2, step, rows, columns)
    return [here, Region(away, first, left, step, rows, columns)]


def map_facts(model: FieldModel, name: str, data: Path | None) -> dict[str, Any]:
    """What the page's map has to know: units, regions and, from a directory of data, what is in them."""
    (variable,) = model.frame.variables
    return {
        "model": name,
        "axes": [{"unit": axis.unit, "origin": axis.origin} for axis in model.frame.axes.values()],
        "mean": variable.mean,
        "std": variable.std,
        "spread": model.spread,
        "regions": [region_facts(region, data) for region in regions_of(model)],
    }


def region_facts(region: Region, data: Path | None) -> dict[str, Any]:
    known = {**vars(region), "cities": CITIES[region.name], "coasts": coasts()[region.name], "days": {}}
    if data is None:
        return known
    experiment = Temperature(data)
    part = SPLITS["italy"].tests[region.name]
    return known | {
        "elevation": whole(region.grid.elevation(experiment.file(TOPOGRAPHY))),
        "days": days_of(experiment.file(part.file), part, region.grid),
    }


def coasts() -> dict[str, list[list[int]]]:
    """The lines of each region's coasts: latitude, longitude, latitude, … in hundredths of a degree.

    Natural Earth at 1:50,000,000, which is in the public domain, without the vertices that change a line by less than
    0.02 degrees.
    """
    known: dict[str, list[list[int]]] = json.loads(files("aenp.demo").joinpath("coasts.json").read_text())
    return known


def days_of(file: Path, part: Part, grid: Grid) -> dict[str, list[int | None]]:
    """Some fields of the time of day nearest noon, in tenths of a kelvin; None where the file has no value."""
    fields = open_gridded(file, "t2m", period=part.period)
    away = abs(fields.time.dt.hour - 12)
    noons = fields.isel(time=(away == away.min()).values)
    chosen = noons.isel(time=np.unique(np.linspace(0, noons.sizes["time"] - 1, DAYS).round().astype(int)))
    nodes = {"latitude": grid.latitude, "longitude": grid.longitude}
    placed = chosen.reindex(nodes, method="nearest", tolerance=1e-3).load()
    return {np.datetime_as_string(each.time.values, "h").replace("T", " "): whole(10 * each.values) for each in placed}


def whole(values: ndarray) -> list[int | None]:
    """The values row by row as whole numbers, None for NaN."""
    return [None if np.isnan(value) else round(float(value)) for value in values.ravel()]
