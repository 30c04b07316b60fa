"""Maps of predictions, with coastlines."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from numpy import ndarray

from aenp.earth.gridded import FieldLike, open_gridded
from aenp.earth.places import CF, PlacesLike, open_places
from aenp.earth.sources import common_dates, find
from aenp.evaluation.plots import save_figure

EFFECT = "RdBu_r"
"The colours of effects, white at zero."
PANELS = {
    "mean": ("prediction", "viridis"),
    "std": ("standard deviation", "magma"),
    "equivariant_mean": ("equivariant part", "viridis"),
    "local_effect": ("local effect", EFFECT),
}

VALUES = ("mean", "equivariant_mean")
"The panels in the unit of the observations, which are drawn in the same colours."
OUTLINE = {"facecolors": "none", "edgecolors": "grey"}
"Observations in the other panels."


def map_prediction(
    prediction: xr.Dataset,
    observed: pd.DataFrame,
    file: Path,
    coast: str | os.PathLike[str] | xr.DataArray | None = None,
) -> Path:
    """Prediction, standard deviation, equivariant part and local effect side by side, with the observations as dots.

    Several variables have a row each. Without any local effect, as of an exact model, the last two are left out.

    Args:
        prediction: what `FieldModel.predict` returns; only the first of several times is drawn.
        observed: the observations, as `FieldModel.observed` returns them.
        file: the picture to write.
        coast: a topography or land–sea mask, whose shore is drawn as coastline.
    """
    time = find(prediction.coords.variables, "time")
    if time is not None:
        dates = common_dates(prediction[time])
        when = pd.Timestamp(dates.values.min())
        if dates.ndim:
            first, along = np.flatnonzero(dates == when), dates.dims[0]
            alone = all(along not in prediction[find(prediction.coords.variables, kind)].dims for kind in CF)
            prediction = prediction.isel({along: first[0] if alone else first})
        observed = observed[observed["time"] == when] if "time" in observed else observed
    prefixes = [str(name).removesuffix("std") for name in prediction if str(name).endswith("std")]
    panels = [name for name in PANELS if f"{prefixes[0]}{name}" in prediction]
    if not any((abs(prediction[f"{prefix}local_effect"]) > 0).any() for prefix in prefixes if "local_effect" in panels):
        panels = [name for name in panels if name not in ("equivariant_mean", "local_effect")]
    size = len(prefixes), len(panels)
    figure, axes = pyplot.subplots(
        *size, figsize=(4 * size[1], 4 * size[0]), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for row, prefix in zip(axes, prefixes, strict=True):
        own = xr.Dataset({name: prediction[f"{prefix}{name}"] for name in panels})
        column = prefix.removesuffix("_") or "value"
        _draw_row(row, own, observed.rename(columns={column: "value"}).dropna(subset="value"))
        row[0].set_ylabel(f"{column}, latitude [°]" if prefix else "latitude [°]")
    for axis in axes[-1]:
        axis.set_xlabel("longitude [°]")
    if coast is not None:
        shore = open_gridded(coast)
        for axis in axes.flat:
            draw_coast(axis, shore)
    date = "" if time is None else f", {when:%Y-%m-%d %H:%M}"
    titles = (prediction[f"{prefix}mean"].attrs["long_name"] for prefix in prefixes)
    figure.suptitle(f"{'; '.join(titles)}{date}")
    return save_figure(figure, file)


def _draw_row(axes: Iterable[Axes], prediction: xr.Dataset, observed: pd.DataFrame) -> None:
    """The panels of one variable, each with its colour bar."""
    limits = _limits(prediction, VALUES)
    for axis, (key, values) in zip(axes, prediction.items(), strict=True):
        name = str(key)
        title, colours = PANELS[name]
        low, high = limits if name in VALUES else _limits(prediction, [name])
        image = _draw(axis, values, colours, low, high)
        units = values.attrs.get("units")
        axis.figure.colorbar(image, ax=axis, label=f"{title} [{units}]" if units else title, shrink=0.8)
        limits_of = axis.get_xlim(), axis.get_ylim()
        longitude = _near(observed["longitude"].to_numpy(), sum(limits_of[0]) / 2)
        filled = {"c": observed["value"], "cmap": colours, "vmin": low, "vmax": high}
        style: dict[str, Any] = {"edgecolors": "black", **filled} if name in VALUES else OUTLINE
        axis.scatter(longitude, observed["latitude"], s=6, linewidths=0.3, **style)
        axis.set(xlim=limits_of[0], ylim=limits_of[1], title=title)


def read_coast(coast: FieldLike, target: PlacesLike, observed: pd.DataFrame) -> xr.DataArray:
    """What a map of the target needs of a topography or land–sea mask, in memory."""
    places = open_places(target, observed, any_time=True).coordinates
    (south, north), (west, east) = (_around(places[kind]) for kind in ("latitude", "longitude"))
    return open_gridded(coast, region=(south, north, west, east)).load()


def _around(values: xr.DataArray) -> tuple[float, float]:
    """The values' range with more than half a step on each side, however few they are."""
    low, high = float(values.min()), float(values.max())
    return low - (high - low) / 2 - 1, high + (high - low) / 2 + 1


@dataclass(frozen=True)
class Panel:
    """One map: its title, a field on a grid or at points, the label of its colour bar, and its colours."""

    title: str
    values: xr.DataArray
    label: str
    colours: str = "viridis"


def map_panels(panels: Sequence[Panel], file: Path, coast: Path, columns: int = 3) -> Path:
    """The panels in rows, with coastlines; those with the same label share a scale, and effects are white at zero."""
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4 * columns, 3.2 * rows), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    limits = {}
    for label in {panel.label for panel in panels}:
        values = np.concatenate([panel.values.values.ravel() for panel in panels if panel.label == label])
        limits[label] = float(np.nanmin(values)), float(np.nanmax(values))
    for axis, panel in zip(axes.flat, panels, strict=False):
        image = _draw(axis, panel.values, panel.colours, *limits[panel.label])
        figure.colorbar(image, ax=axis, label=panel.label, shrink=0.9)
        axis.set_title(panel.title, fontsize=10)
    for axis in axes.flat[: len(panels)]:
        draw_coast(axis, coast)
    for axis in axes[-1]:
        axis.set_xlabel("longitude [°]")
    for axis in axes[:, 0]:
        axis.set_ylabel("latitude [°]")
    return save_figure(figure, file)


def draw_coast(axis: Axes, coast: str | os.PathLike[str] | xr.DataArray) -> None:
    """The shore within the axis' limits: where a topography is 0, or a land–sea mask one half."""
    (west, east), (south, north) = axis.get_xlim(), axis.get_ylim()
    field = open_gridded(coast, region=(south, north, west, east))[0]
    level = 0.5 if float(field.max()) <= 1 else 0.0
    axis.contour(field.longitude, field.latitude, field.values, levels=[level], colors="black", linewidths=0.7)
    axis.set(xlim=(west, east), ylim=(south, north))


def _near(longitude: ndarray, middle: float) -> ndarray:
    """The longitudes within half a turn of the middle."""
    return (longitude - middle + 180) % 360 - 180 + middle


def _limits(prediction: xr.Dataset, names: Sequence[str]) -> tuple[float, float]:
    values = np.concatenate([prediction[name].values.ravel() for name in names if name in prediction])
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    # With equal ends, dots and cells of one value would have different colours.
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _draw(axis: Axes, values: xr.DataArray, colours: str, low: float, high: float) -> ScalarMappable:
    """The values in colour at their places, as cells of a grid or, if this is not complete, as dots."""
    latitude, angle = (values[find(values.coords.variables, kind)] for kind in ("latitude", "longitude"))
    turned = np.exp(1j * np.deg2rad(angle.values))
    longitude = _near(angle.values, float(np.rad2deg(np.angle(np.nanmean(turned)))))
    if colours == EFFECT:
        low, high = -max(abs(low), abs(high)), max(abs(low), abs(high))
    style: dict[str, Any] = {"cmap": colours, "vmin": low, "vmax": high}
    if values.ndim < 2 or 1 in values.shape or not (np.isfinite(longitude).all() and latitude.notnull().all()):
        places = xr.broadcast(xr.DataArray(longitude, dims=angle.dims), latitude, values)
        x, y, c = (each.values.ravel() for each in places)
        for limit, each in ((axis.set_xlim, x), (axis.set_ylim, y)):
            if np.nanmin(each) == np.nanmax(each):
                limit(np.nanmin(each) - 1, np.nanmax(each) + 1)
        return axis.scatter(x, y, c=c, s=16, **style)
    order = np.argsort(longitude) if longitude.ndim == 1 else slice(None)
    values = values.transpose(*latitude.dims, ...)
    return axis.pcolormesh(longitude[order], latitude, values.values[..., order], shading="nearest", **style)


def map_suggestion(
    chosen: pd.DataFrame,
    candidates: pd.DataFrame,
    observed: pd.DataFrame,
    file: Path,
    coast: xr.DataArray | None = None,
) -> Path:
    """Candidates in the colour of their reduction, the suggested stations with their numbers, and the observations.

    Args:
        chosen: what `FieldModel.suggest` returns.
        candidates: latitude, longitude, and the reduction by a first station there, in percent.
        observed: the observations, as `open_points` returns them.
        file: the picture to write.
        coast: a topography or land–sea mask, as `read_coast` returns it, whose shore is drawn as coastline.
    """
    figure, axis = pyplot.subplots(figsize=(6, 5), layout="constrained")
    middle = float(candidates["longitude"].mean())
    tables = {"candidates": candidates, "observed": observed.drop_duplicates(["latitude", "longitude"]), "new": chosen}
    (x, y), stations, new = ((_near(t["longitude"].to_numpy(), middle), t["latitude"]) for t in tables.values())
    image = axis.scatter(x, y, c=candidates["reduction"], s=24, cmap="viridis", marker="s")
    axis.scatter(*stations, s=12, color="black", label="observations")
    axis.scatter(*new, s=130, color="white", edgecolors="tab:red", linewidths=1.5, label="suggested", zorder=3)
    for number, x, y in zip(chosen.index, *new, strict=True):
        axis.text(x, y, str(number), ha="center", va="center", fontsize=8, zorder=4)
    if coast is not None:
        draw_coast(axis, coast)
    figure.colorbar(image, ax=axis, label="variance removed by a first station there [%]")
    axis.set(xlabel="longitude [°]", ylabel="latitude [°]", title="suggested stations")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return save_figure(figure, file)
