"""Surface air temperature on the grid (section 5.3 and appendix E.3)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch.distributions import Distribution

from aenp.data.patches import Patches
from aenp.experiments.experiment import PAPER, Experiment, Number, Setting, Stratum, eight, middles, per_stratum
from aenp.experiments.plane import (
    CELLS_PER_UNIT,
    PAPER_FIXED,
    PAPER_GROUP,
    PAPER_PTTNP,
    PAPER_PTTNP_FIXED,
    PAPER_RELAXED,
    PAPER_UNET,
    SMALL_GROUP,
    SMALL_PTTNP,
    SMALL_UNET,
)
from aenp.process import NeuralProcess
from aenp.recipe import Recipe
from aenp.report import markdown_table
from aenp.task import Task

if TYPE_CHECKING:
    import xarray as xr

SHARES = (0.01, 1 / 3)
TOPOGRAPHY, LAND = "itu1511v2_topo_1_12deg.nc", "era5_lsm_0p25.nc"

Means = tuple[Float[ndarray, "x y"], Float[ndarray, "x y"]]
"A model's equivariant and its approximate mean."

SMALL_FIXED = {"num": 32, "width": 64, "fourier": 4, "dropout": 0.1}

EUROPE: dict[str, Number] = {
    "pttnp-none": (1.14, 0.01),
    "pttnp-exact": (1.06, 0.01),
    "pttnp-approx": (1.22, 0.01),
    "convcnp-exact": (1.11, 0.01),
    "convcnp-approx": (1.18, 0.01),
    "relaxedconvcnp-approx": (1.20, 0.01),
    "equivcnp-exact": (1.27, 0.01),
    "equivcnp-approx": (1.36, 0.01),
}
US: dict[str, Number] = {
    "pttnp-exact": (0.55, 0.01),
    "pttnp-approx": (0.55, 0.01),
    "convcnp-exact": (0.12, 0.02),
    "convcnp-approx": (0.15, 0.02),
    "relaxedconvcnp-approx": (0.22, 0.02),
    "equivcnp-exact": (0.64, 0.02),
    "equivcnp-approx": (0.69, 0.01),
}


@dataclass(frozen=True)
class Part:
    """A part of a file: a period and a region, south, north, west, east."""

    file: str
    period: tuple[str, str]
    region: tuple[float, float, float, float]


@dataclass(frozen=True)
class Split:
    """What is trained and tested on; `step` are the degrees between points of the grid."""

    train: Part
    validation: Part
    tests: Mapping[str, Part]
    step: float


ITALY = "era5_italy_0p25_3hourly_2022-05_06.nc", (36.4, 46.9, 6.57, 18.32)
EUROPE_BOX, US_BOX = (35.0, 60.0, 10.0, 45.0), (30.0, 50.0, -120.0, -80.0)
SPLITS = {
    "italy": Split(
        Part(ITALY[0], ("2022-05-01", "2022-06-12"), ITALY[1]),
        Part(ITALY[0], ("2022-06-13", "2022-06-15"), ITALY[1]),
        {
            "Italy": Part(ITALY[0], ("2022-06-16", "2022-06-30"), ITALY[1]),
            "UK": Part("era5_uk_0p25_hourly_2019-03.nc", ("2019-03-01", "2019-03-31"), (50.0, 58.0, -10.0, 2.0)),
        },
        step=0.25,
    ),
    "paper": Split(
        Part("wfde5_2018.nc", ("2018-01-01", "2018-12-24"), EUROPE_BOX),
        Part("wfde5_2018.nc", ("2018-12-25", "2018-12-31"), EUROPE_BOX),
        {
            "Europe": Part("wfde5_2019.nc", ("2019-01-01", "2019-12-31"), EUROPE_BOX),
            "US": Part("wfde5_2019.nc", ("2019-01-01", "2019-12-31"), US_BOX),
        },
        step=0.5,
    ),
}


@dataclass(frozen=True)
class Grid:
    """Where a field is, in degrees."""

    latitude: Float[ndarray, " x"]
    longitude: Float[ndarray, " y"]

    def on_map(self, values: Float[ndarray, "x y"]) -> "xr.DataArray":
        import xarray as xr

        return xr.DataArray(values, coords=[("latitude", self.latitude), ("longitude", self.longitude)])

    def elevation(self, topography: Path) -> Float[ndarray, "x y"]:
        """Metres, zero at sea."""
        from aenp.data.gridded import elevation_at

        return np.maximum(elevation_at(topography, self.latitude[:, None], self.longitude), 0.0)

    def land(self, mask: Path) -> Bool[ndarray, "x y"]:
        """Where more than half of the mask's nearest cell is land."""
        from aenp.data.gridded import open_gridded

        share = open_gridded(mask)[0]
        return share.sel(latitude=self.latitude, longitude=self.longitude, method="nearest").values > 0.5


@dataclass(frozen=True)
class Fields(Grid):
    """Temperatures in kelvin, `(time, latitude, longitude)`."""

    values: Float[ndarray, "time x y"]


class Temperature(Experiment):
    """Patches of 32 × 32 points of the grid; x in units of 16 points, y in standard deviations of the training data."""

    name = "era5-2d"
    title = "Surface temperature, on the grid"
    dim_x = 2
    norm = 2
    models = eight("pttnp")
    splits = tuple(SPLITS)
    settings = {  # noqa: RUF012
        "cpu": {
            "pttnp": Setting(
                Recipe(steps=3_000, learning_rate=2e-3),
                SMALL_PTTNP,
                SMALL_FIXED | {"num": 64},
                approx={"fixed_at_targets": True},
            ),
            "convcnp": Setting(Recipe(steps=1_800), SMALL_UNET, SMALL_FIXED),
            "relaxedconvcnp": Setting(Recipe(steps=1_600), SMALL_UNET, SMALL_FIXED),
            "equivcnp": Setting(Recipe(steps=1_500), SMALL_GROUP, SMALL_FIXED),
        },
        "paper": {
            "pttnp": Setting(PAPER, PAPER_PTTNP, PAPER_PTTNP_FIXED),
            "convcnp": Setting(PAPER, PAPER_UNET, PAPER_FIXED),
            "relaxedconvcnp": Setting(PAPER, PAPER_RELAXED, PAPER_FIXED),
            "equivcnp": Setting(PAPER, PAPER_GROUP, PAPER_FIXED),
        },
    }
    paper = {  # noqa: RUF012
        "Europe": EUROPE,
        "US": US,
        "Italy": EUROPE,
        "UK": US,
        "context": {
            "pttnp-none": (1.74, 0.01),
            "pttnp-exact": (1.66, 0.01),
            "pttnp-approx": (1.76, 0.01),
            "convcnp-exact": (1.20, 0.02),
            "convcnp-approx": (1.50, 0.01),
            "relaxedconvcnp-approx": (1.29, 0.01),
            "equivcnp-exact": (2.03, 0.01),
            "equivcnp-approx": (2.05, 0.01),
        },
        "deviation": {
            "pttnp-approx": (0.0406, 0.0005),
            "convcnp-approx": (0.00237, 0.0004),
            "relaxedconvcnp-approx": (0.0239, 0.0004),
            "equivcnp-approx": (0.0242, 0.0005),
        },
    }
    paper_tests = {"Italy": "Europe", "UK": "US"}  # noqa: RUF012
    remark = """\
The paper trains on other data: WFDE5, half a degree, all of Europe in 2018, with the US in 2019 to test on; its columns
show what it found there and are no target for these. Tasks of one region and two weeks are much alike, so that the
standard errors, which are over tasks, are too small for other weeks."""

    def __init__(self, data: Path | None = None, split: str | None = None) -> None:
        super().__init__(data, split)
        self.parts = SPLITS[self.split or self.splits[0]]
        self.degrees = CELLS_PER_UNIT * self.parts.step
        south, north, west, east = self.parts.train.region
        half = self.parts.step / 2  # a point of the grid stands for the cell around it
        box = ((south - half, north + half), (west - half, east + half))
        self.domain = tuple((low / self.degrees, high / self.degrees) for low, high in box)

    def source(self) -> Patches:
        return replace(self._patches(self._fields(self.parts.train)), equal_sizes=True, num_targets=256)

    def validation(self) -> tuple[list[Task], None]:
        held_out = self._patches(self._fields(self.parts.validation))
        return [held_out.batch(16, index, seed=0) for index in range(4)], None

    def tests(self, tasks: int, seed: int) -> dict[str, list[Stratum]]:
        each = per_stratum(tasks)
        tests = {}
        for test, part in self.parts.tests.items():
            patches = self._patches(self._fields(part))
            tests[test] = [
                Stratum(replace(patches, num_context=(share, share)).batch(each, number, seed))
                for number, share in enumerate(middles(*SHARES))
            ]
        return tests

    def figures(self, models: Mapping[str, NeuralProcess], out: Path, seed: int) -> list[Path]:
        fields = self._fields(next(iter(self.parts.tests.values())))
        truth = fields.values[len(fields.values) // 2]
        seen = _some(truth, seed)
        context = np.full(truth.size, np.nan)
        context[seen] = truth.ravel()[seen]
        panels = [
            ("context", fields.on_map(context.reshape(truth.shape))),
            ("truth", fields.on_map(truth)),
            ("elevation", fields.on_map(fields.elevation(self.file(TOPOGRAPHY)))),
        ]
        means = [
            (model.label, map(fields.on_map, self._means(model, fields, truth, seed)))
            for model in approximate(models) or models.values()
        ]
        return [map_effects(panels, means, out / "local_effects.png", self.file(LAND))]

    def findings(self, models: Mapping[str, NeuralProcess], seed: int) -> str:
        fields = self._fields(next(iter(self.parts.tests.values())))
        effects = {}
        for model in approximate(models):
            tasks = enumerate(np.linspace(0, len(fields.values) - 1, 16).astype(int))
            means = [self._means(model, fields, fields.values[time], seed + number) for number, time in tasks]
            effects[model.label] = mean_effect(means)
        land, elevation = fields.land(self.file(LAND)), fields.elevation(self.file(TOPOGRAPHY))
        return compare_with_elevation(effects, elevation, land, "16 tasks of 100 observations")

    def _fields(self, part: Part) -> Fields:
        from aenp.data.gridded import open_gridded

        field = open_gridded(self.file(part.file), "t2m", part.region, part.period)
        return Fields(field.latitude.values, field.longitude.values, field.values.astype(np.float32))

    @cached_property
    def _scale(self) -> tuple[float, float]:
        return scale(self._fields(self.parts.train).values)

    def _patches(self, fields: Fields) -> Patches:
        mean, std = self._scale
        return Patches((fields.values - mean) / std, self._axes(fields), 32, SHARES, least=64)

    def _axes(self, fields: Fields) -> tuple[Float[ndarray, " x"], Float[ndarray, " y"]]:
        return fields.latitude / self.degrees, fields.longitude / self.degrees

    def _means(self, model: NeuralProcess, fields: Fields, truth: Float[ndarray, "x y"], seed: int) -> Means:
        """The equivariant and the approximate mean in kelvin, all over the field, given some points of it."""
        mean, std = self._scale
        x = torch.from_numpy(np.stack(np.meshgrid(*self._axes(fields), indexing="ij"), axis=-1).reshape(1, -1, 2))
        y = torch.from_numpy((truth.reshape(1, -1, 1) - mean) / std)
        seen = _some(truth, seed)
        with torch.no_grad():
            both = model.symmetry_breaking(Task(x[:, seen], y[:, seen], x))
        return mean + std * _image(both.equivariant, truth), mean + std * _image(both.approximate, truth)


def _some(truth: Float[ndarray, "x y"], seed: int) -> Int[ndarray, " some"]:
    """Which points are seen, of those that have a value."""
    return np.random.default_rng(seed).permutation(np.flatnonzero(np.isfinite(truth)))[:100]


def _image(prediction: Distribution, like: Float[ndarray, "x y"]) -> Float[ndarray, "x y"]:
    return prediction.mean.view(like.shape).numpy()


def scale(values: Float[ndarray, "..."]) -> tuple[float, float]:
    """Mean and standard deviation of what is known."""
    return float(np.nanmean(values, dtype=float)), float(np.nanstd(values, dtype=float))


def mean_effect(means: Sequence[Means]) -> Float[ndarray, "x y"]:
    """The mean local effect over tasks."""
    return np.mean([whole - equivariant for equivariant, whole in means], axis=0)


def approximate(models: Mapping[str, NeuralProcess]) -> list[NeuralProcess]:
    return [model for model in models.values() if model.symmetry == "approx"]


def map_effects(
    panels: Sequence[tuple[str, "xr.DataArray"]],
    means: Sequence[tuple[str, Iterable["xr.DataArray"]]],
    file: Path,
    coast: Path,
) -> Path:
    """The paper's figure: context, truth and elevation, then for each model its two means and their difference."""
    from aenp.mapping import EFFECT, Panel, map_panels

    styles = (("K",), ("K",), ("m", "terrain"))
    every = [Panel(*panel, *style) for panel, style in zip(panels, styles, strict=True)]
    for label, (equivariant, whole) in means:
        every += [
            Panel(f"{label}, equivariant part", equivariant, "K"),
            Panel(label, whole, "K"),
            Panel(f"{label}, local effect", whole - equivariant, "K more", EFFECT),
        ]
    return map_panels(every, file, coast)


def compare_with_elevation(
    effects: Mapping[str, Float[ndarray, "x y"]],
    elevation: Float[ndarray, "x y"],
    land: Bool[ndarray, "x y"],
    tasks: str,
) -> str:
    """How the local effects that models have learned go with elevation, which they have never been shown."""
    rows = []
    for label, effect in effects.items():
        slope = np.polyfit(elevation[land] / 1000, effect[land], 1)[0]
        rows.append([label, f"{np.corrcoef(elevation[land], effect[land])[0, 1]:.2f}", f"{slope:.1f}"])
    table = markdown_table(["model", "correlation with elevation", "K per km"], rows)
    return f"## Local effects and elevation\n\nOn land, the mean over {tasks}:\n\n{table}\n"
