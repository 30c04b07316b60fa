"""Figures."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from aenp.functions import predict
from aenp.process import NeuralProcess
from aenp.task import Task

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes


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
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
    return file


def _band(axis: Axes, grid: Tensor, prediction: Distribution, colour: str, label: str) -> None:
    x, mean, spread = grid.flatten(), prediction.mean.flatten(), 1.96 * prediction.stddev.flatten()
    axis.plot(x, mean, color=colour, linewidth=1.2, label=label)
    axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
