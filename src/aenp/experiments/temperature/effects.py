"""What the experiments with temperatures share: their frame, their maps, and local effects beside elevation."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from aenp.evaluation.tables import markdown_table
from aenp.experiments.experiment import Experiment, Number
from aenp.process import NeuralProcess

if TYPE_CHECKING:
    import xarray as xr

    from aenp.earth.field_model import FieldModel
    from aenp.earth.frame import Axis, Frame

TOPOGRAPHY, LAND = "itu1511v2_topo_1_12deg.nc", "era5_lsm_0p25.nc"
EUROPE_BOX, US_BOX = (35.0, 60.0, 10.0, 45.0), (30.0, 50.0, -120.0, -80.0)
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
    "pttnp-none": (-1e6, math.nan),
    "pttnp-exact": (0.55, 0.01),
    "pttnp-approx": (0.55, 0.01),
    "convcnp-exact": (0.12, 0.02),
    "convcnp-approx": (0.15, 0.02),
    "relaxedconvcnp-approx": (0.22, 0.02),
    "equivcnp-exact": (0.64, 0.02),
    "equivcnp-approx": (0.69, 0.01),
}
EUROPE_CONTEXT: dict[str, Number] = {
    "pttnp-none": (1.74, 0.01),
    "pttnp-exact": (1.66, 0.01),
    "pttnp-approx": (1.76, 0.01),
    "convcnp-exact": (1.20, 0.02),
    "convcnp-approx": (1.50, 0.01),
    "relaxedconvcnp-approx": (1.29, 0.01),
    "equivcnp-exact": (2.03, 0.01),
    "equivcnp-approx": (2.05, 0.01),
}
US_CONTEXT: dict[str, Number] = {
    "pttnp-exact": (1.28, 0.01),
    "pttnp-approx": (1.47, 0.01),
    "convcnp-exact": (0.34, 0.02),
    "convcnp-approx": (0.97, 0.01),
    "relaxedconvcnp-approx": (0.86, 0.01),
    "equivcnp-exact": (1.76, 0.01),
    "equivcnp-approx": (1.69, 0.01),
}


class FieldExperiment(Experiment):
    """An experiment whose models are `FieldModel`s: x is in the units of its axes, y in standard deviations."""

    needs_data = True

    @property
    @abstractmethod
    def axes(self) -> "list[Axis]":
        """The coordinates that a model sees."""

    @abstractmethod
    def training_values(self) -> Float[ndarray, "..."]:
        """All temperatures to train on, in kelvin."""

    @property
    def domain(self) -> list[tuple[float, float] | None]:  # type: ignore[override]
        return [axis.interval for axis in self.axes]

    @property
    @abstractmethod
    def period(self) -> tuple[str, str]:
        """First and last date of the training data."""

    @cached_property
    def frame(self) -> "Frame":
        from aenp.earth.frame import Frame, Variable

        values = self.training_values()
        mean, std = float(np.nanmean(values, dtype=float)), float(np.nanstd(values, dtype=float))
        return Frame(self.axes, [Variable("t2m", mean, std, "K", "2 metre temperature")], self.period)

    def wrap(self, process: NeuralProcess) -> "FieldModel":
        from aenp.earth.field_model import FieldModel

        return FieldModel(process, self.frame)


@dataclass(frozen=True)
class Grid:
    """Where a map is, in degrees."""

    latitude: Float[ndarray, " x"]
    longitude: Float[ndarray, " y"]

    def on_map(self, values: Float[ndarray, "x y"]) -> "xr.DataArray":
        import xarray as xr

        return xr.DataArray(values, coords=[("latitude", self.latitude), ("longitude", self.longitude)])

    def elevation(self, topography: Path) -> Float[ndarray, "x y"]:
        """Metres, zero at sea."""
        from aenp.earth.gridded import elevation_at

        return np.maximum(elevation_at(topography, self.latitude[:, None], self.longitude), 0.0)

    def land(self, mask: Path) -> Bool[ndarray, "x y"]:
        """Where more than half of the mask's nearest cell is land."""
        from aenp.earth.gridded import open_gridded

        share = open_gridded(mask)[0]
        return share.sel(latitude=self.latitude, longitude=self.longitude, method="nearest").values > 0.5


def approximate(models: Mapping[str, NeuralProcess]) -> list[NeuralProcess]:
    return [model for model in models.values() if model.symmetry == "approx"]


def map_effects(
    panels: Sequence[tuple[str, "xr.DataArray"]],
    predictions: Sequence[tuple[str, "xr.Dataset"]],
    file: Path,
    coast: Path,
) -> Path:
    """The paper's figure: context, truth and elevation, then for each model its two means and their difference."""
    from aenp.earth.maps import EFFECT, Panel, map_panels

    styles = (("temperature [K]",), ("temperature [K]",), ("elevation [m]", "terrain"))
    every = [Panel(*panel, *style) for panel, style in zip(panels, styles, strict=True)]
    for label, prediction in predictions:
        every.append(Panel(label, prediction["mean"], "temperature [K]"))
        if "local_effect" in prediction:
            every[-1:] = [
                Panel(f"{label}, equivariant part", prediction["equivariant_mean"], "temperature [K]"),
                every[-1],
                Panel(f"{label}, local effect", prediction["local_effect"], "difference [K]", EFFECT),
            ]
    return map_panels(every, file, coast)


def compare_with_elevation(
    effects: Mapping[str, Float[ndarray, "x y"]],
    elevation: Float[ndarray, "x y"],
    land: Bool[ndarray, "x y"],
    tasks: str,
) -> str:
    """How the local effects that models have learned relate to elevation, which they have never seen."""
    rows = []
    for label, effect in effects.items():
        slope = np.polyfit(elevation[land] / 1000, effect[land], 1)[0]
        rows.append([label, f"{np.corrcoef(elevation[land], effect[land])[0, 1]:.2f}", f"{slope:.1f}"])
    table = markdown_table(["model", "correlation with elevation", "K per km"], rows)
    return f"## Local effects and elevation\n\nOn land, the mean over {tasks}:\n\n{table}\n"
