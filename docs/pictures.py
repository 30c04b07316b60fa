"""Draws the pictures of README.md: python docs/pictures.py --data DIR, with DIR as docs/era5.md describes it."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import torch
import tyro
import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator
from torch import Tensor
from torch.distributions import Distribution

import aenp
from aenp.data import GibbsTasks
from aenp.earth.gridded import elevation_at, open_gridded
from aenp.earth.maps import EFFECT, draw_coast
from aenp.experiments.gp import oracles
from aenp.experiments.temperature.effects import LAND, TOPOGRAPHY
from aenp.experiments.temperature.grid import SPLITS, some

PICTURES = Path(__file__).parent / "pictures"
STYLE = {"font.size": 10, "axes.titlesize": 10, "figure.dpi": 160, "savefig.dpi": 160}
SEED = 1


def main(data: Path, out: Path = PICTURES) -> None:
    """Draws both pictures.

    Args:
        data: directory with the files of the experiment era5-2d.
        out: where the pictures go.
    """
    out.mkdir(exist_ok=True, parents=True)
    with matplotlib.rc_context(STYLE):
        draw_italy(data, out / "italy.png")
        draw_line(out / "line.png")


def draw_italy(data: Path, file: Path) -> None:
    """Observations, the two predictions, their difference, and the elevation that the model has never seen."""
    part = SPLITS["italy"].tests["Italy"]
    fields = open_gridded(data / part.file, "t2m", part.region, part.period)
    truth = fields[len(fields) // 2].load()
    seen = some(truth, SEED)
    prediction = aenp.pretrained("era5-2d/pttnp-approx").predict(context=seen, target=truth.drop_vars("time"))
    height = elevation_at(data / TOPOGRAPHY, truth.latitude.values[:, None], truth.longitude.values)
    elevation = truth.copy(data=height / 1000).clip(min=0)

    means = prediction[["equivariant_mean", "mean"]].to_dataarray()
    low, high = float(means.min()), float(means.max())
    largest = float(abs(prediction["local_effect"]).max())
    figure, axes = pyplot.subplots(1, 5, figsize=(10, 3.45), sharex=True, sharey=True, layout="constrained")
    kelvin = {"vmin": low, "vmax": high, "cmap": "viridis"}
    titles = ("100 observations", "equivariant part", "full prediction", "local effect", "elevation (never seen)")
    draw_cells(axes[1], means[0], **kelvin)
    shared = draw_cells(axes[2], means[1], **kelvin)
    effect = draw_cells(axes[3], prediction["local_effect"], vmin=-largest, vmax=largest, cmap=EFFECT)
    relief = draw_cells(axes[4], elevation, vmin=0, cmap="YlOrBr")
    points = seen.to_series().dropna().reset_index()
    axes[0].scatter(points["longitude"], points["latitude"], c=points[seen.name], s=9, **kelvin)
    for axis, title in zip(axes, titles, strict=True):
        axis.set(title=title, xlabel="longitude [°E]", aspect=1.34)
        axis.xaxis.set_major_locator(MultipleLocator(4))
        draw_coast(axis, data / LAND)
    axes[0].set_ylabel("latitude [°N]")
    bar = {"location": "bottom", "aspect": 12, "pad": 0.03}
    figure.colorbar(shared, ax=list(axes[:3]), label="2 m temperature [K]", **bar | {"aspect": 40})
    figure.colorbar(effect, ax=axes[3], label="difference [K]", **bar)
    figure.colorbar(relief, ax=axes[4], label="height [km]", **bar)
    figure.savefig(file)
    pyplot.close(figure)


def draw_cells(axis: Axes, values: xr.DataArray, **style: object) -> matplotlib.cm.ScalarMappable:
    return axis.pcolormesh(
        values.longitude, values.latitude, values.values, shading="nearest", rasterized=True, **style
    )


def draw_line(file: Path) -> None:
    """One model near the place where the lengthscale changes, and far away, where it does not."""
    model = aenp.pretrained("gp/tnp-approx")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
    figure.get_layout_engine().set(wspace=0.04)
    for axis, centre in zip(axes, (0.0, 20.0), strict=True):
        source = GibbsTasks(centre=(centre, centre), num_context=(24, 24))
        task = source.batch(1, 0, SEED)
        x = torch.linspace(centre - 3, centre + 3, 601)[None, :, None]
        queries = task.with_targets(x)
        with model.equivariant():
            draw_band(axis, x, aenp.predict(model, queries), "tab:red", "equivariant part")
        draw_band(axis, x, aenp.predict(model, queries), "tab:blue", "full prediction")
        best = oracles.bayes(GibbsTasks(), queries)
        mean, spread = best.mean.flatten(), 1.96 * best.stddev.flatten()
        axis.plot(x.flatten(), mean, color="black", linestyle="--", linewidth=1, label="Bayes-optimal (oracle)")
        for edge in (mean - spread, mean + spread):
            axis.plot(x.flatten(), edge, color="black", linestyle=":", linewidth=0.8)
        axis.scatter(task.xc.flatten(), task.yc.flatten(), s=14, color="black", zorder=3, label="observations")
        axis.set(xlabel="x [no unit]", xlim=(centre - 3, centre + 3))
    axes[0].set(ylabel="y [no unit]", title="Near x = 0, where the lengthscale changes")
    axes[1].set_title("Far away: the two predictions agree")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(file)
    pyplot.close(figure)


def draw_band(axis: Axes, x: Tensor, prediction: Distribution, colour: str, label: str) -> None:
    """The mean and the central 95 % interval."""
    mean, spread = prediction.mean.flatten(), 1.96 * prediction.stddev.flatten()
    axis.plot(x.flatten(), mean, color=colour, linewidth=1.4, label=label)
    axis.fill_between(x.flatten(), mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0.8)


if __name__ == "__main__":
    tyro.cli(main)
