"""Figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Patch
from numpy import ndarray
from torch import Tensor
from torch.distributions import Distribution

from aenp.inference import predict
from aenp.process import NeuralProcess
from aenp.saving import written_whole
from aenp.task import Task


def curves(
    models: Mapping[str, NeuralProcess], task: Task, grid: Float[Tensor, "1 grid 1"], truth: Distribution, file: Path
) -> Path:
    """What each model predicts for one 1-D task, in blue, and what its equivariant part does, in red.

    Lines are means, bands central 95 % intervals of the noisy y; the grey area is where targets are.
    """
    assert task.yt is not None
    columns = min(4, len(models))
    rows = -(-len(models) // columns)
    size = (4 * columns, 2.6 * rows + 0.8)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, sharex=True, sharey=True, squeeze=False)
    for axis, model in zip(axes.flat, models.values(), strict=False):
        axis.axvspan(task.xt.min().item(), task.xt.max().item(), color="0.94", label="target range")
        _band(axis, grid, predict(model, task.with_targets(grid)), "tab:blue", "prediction")
        if model.symmetry == "approx":
            with model.equivariant():
                _band(axis, grid, predict(model, task.with_targets(grid)), "tab:red", "its equivariant part")
        mean, spread = truth.mean.flatten(), 1.96 * truth.stddev.flatten()
        axis.plot(grid.flatten(), mean, color="black", linestyle="--", linewidth=0.9, label="true GP")
        for edge in (mean - spread, mean + spread):
            axis.plot(grid.flatten(), edge, color="black", linestyle=":", linewidth=0.7)
        axis.scatter(task.xt.flatten(), task.yt.flatten(), s=3, color="0.45", label="targets")
        axis.scatter(task.xc.flatten(), task.yc.flatten(), s=14, color="black", zorder=3, label="context")
        axis.set_title(model.label)
    for axis in axes.flat[len(models) :]:
        axis.set_visible(False)
    y = torch.cat([task.yc, task.yt], dim=1)
    axes[0, 0].set(ylim=(y.min().item() - 1, y.max().item() + 1), xlim=(grid.min().item(), grid.max().item()))
    for axis in axes[-1]:
        axis.set_xlabel("x")
    for axis in axes[:, 0]:
        axis.set_ylabel("y")
    legend = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    ncols = min(len(legend), 2 * columns)
    figure.legend(legend.values(), legend.keys(), loc="upper center", ncols=ncols, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.1 + 0.25 * -(-len(legend) // ncols)) / size[1]))
    return save_figure(figure, file)


def images(
    fields: Float[ndarray, "fields x y"],
    titles: Sequence[str],
    x: str,
    y: str,
    unit: str,
    file: Path,
    columns: int,
    outlines: Callable[[int], Sequence[Patch]],
) -> Path:
    """Fields side by side on one colour scale, first index to the right, second upwards, each with its outlines."""
    rows = -(-len(fields) // columns)
    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(1.9 * columns + 0.8, 2.1 * rows),
        squeeze=False,
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for number, (axis, field, title) in enumerate(zip(axes.flat, fields, titles, strict=True)):
        picture = axis.imshow(
            field.T,
            origin="lower",
            vmin=0,
            vmax=fields.max(),
            cmap="inferno",
            extent=(0, field.shape[0], 0, field.shape[1]),
        )
        axis.set_title(title, fontsize=9)
        for outline in outlines(number):
            axis.add_patch(outline)
    for axis in axes[-1]:
        axis.set_xlabel(x)
    for axis in axes[:, 0]:
        axis.set_ylabel(y)
    figure.colorbar(picture, ax=axes, label=unit, shrink=0.6)
    return save_figure(figure, file)


def model_maps(models: Mapping[str, NeuralProcess], task: Task, across: str, up: str, unit: str, file: Path) -> Path:
    """One 2-D task on a grid: truth and context, and each model's mean and absolute error."""
    assert task.yt is not None
    every = task.with_targets(torch.cat([task.xc, task.xt], dim=1))
    truth, seen = torch.cat([task.yc, task.yt], dim=1), torch.cat([task.yc, torch.full_like(task.yt, torch.nan)], dim=1)
    means = [predict(model, every).mean for model in models.values()]
    errors = [(mean - truth).abs() for mean in means]
    worst = max(error.max().item() for error in errors)
    size = (1.9 * (len(means) + 1) + 0.8, 4)
    figure, axes = pyplot.subplots(2, len(means) + 1, figsize=size, sharex=True, sharey=True, layout="constrained")

    def draw(axis: Axes, values: Tensor, title: str, upper: float, colours: str) -> AxesImage:
        axis.set_title(title, fontsize=9)
        x, y = every.xt[0].T.numpy()
        columns, rows = np.unique(x, return_inverse=True)[1], np.unique(y, return_inverse=True)[1]
        field = np.full((rows.max() + 1, columns.max() + 1), np.nan)
        field[rows, columns] = values.flatten()
        extent = (x.min(), x.max(), y.min(), y.max())
        return axis.imshow(field, origin="lower", vmin=0, vmax=upper, cmap=colours, extent=extent)

    top = truth.max().item()
    value = draw(axes[0, 0], truth, "truth", top, "inferno")
    draw(axes[1, 0], seen, "context", top, "inferno")
    for column, model in enumerate(models.values(), start=1):
        draw(axes[0, column], means[column - 1], model.label, top, "inferno")
        error = draw(axes[1, column], errors[column - 1], "absolute error", worst, "viridis")
    figure.colorbar(value, ax=axes[0], label=unit)
    figure.colorbar(error, ax=axes[1], label=f"error of {unit}")
    for axis in axes[1]:
        axis.set_xlabel(across)
    for axis in axes[:, 0]:
        axis.set_ylabel(up)
    return save_figure(figure, file)


def save_figure(figure: Figure, file: Path) -> Path:
    """Writes the figure, which appears under its name only once it is complete, closes it, and returns the file."""
    try:
        kind = picture_format(file)
        with written_whole(file) as temporary:
            figure.savefig(temporary, dpi=110, format=kind)
    finally:
        pyplot.close(figure)
    return file


def picture_format(file: Path) -> str:
    """The format that the file's name asks for; an error if there is no such format for pictures."""
    kind, known = file.suffix[1:].lower() or "png", FigureCanvasBase.get_supported_filetypes()
    if kind not in known:
        raise ValueError(f"{file} cannot be drawn; choose a name that ends in .{', .'.join(known)}")
    return kind


def _band(axis: Axes, grid: Tensor, prediction: Distribution, colour: str, label: str) -> None:
    x, mean, spread = grid.flatten(), prediction.mean.flatten(), 1.96 * prediction.stddev.flatten()
    axis.plot(x, mean, color=colour, linewidth=1.2, label=label)
    axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
