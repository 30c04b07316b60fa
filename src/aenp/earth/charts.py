"""Charts of a validation."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from aenp.evaluation.plots import save_figure

if TYPE_CHECKING:
    from aenp.earth.validation import Validation

COLOURS = {"model": "tab:blue", "equivariant part": "tab:cyan"}
"The colours of a model's own predictions; baselines are grey, and the best of them orange."
LEVELS = np.linspace(0.05, 0.95, 19)


def draw_validation(validation: "Validation", file: Path) -> Path:
    """RMSE and CRPS with standard errors of every method; PIT and coverage of the model and the best baseline."""
    table = validation.table
    best = str(table["crps"].drop(index=list(COLOURS), errors="ignore").idxmin())
    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.8), layout="constrained", width_ratios=(1, 1, 1.1, 1.1))
    colours = [COLOURS.get(name, "tab:orange" if name == best else "0.45") for name in table.index]
    for axis, name in zip(axes, ("rmse", "crps"), strict=False):
        rows = np.arange(len(table))
        error = 2 * table[f"{name}_se"].fillna(0)
        axis.hlines(rows, table[name] - error, table[name] + error, colors=colours)
        axis.scatter(table[name], rows, c=colours, zorder=3)
        axis.set_yticks(rows, table.index if name == "rmse" else [])
        axis.invert_yaxis()
        units = validation.units and f" [{validation.units}]"
        axis.set(title=name.upper(), xlabel=f"{name.upper()}{units}, ± 2 standard errors")
        axis.grid(axis="x", color="0.9")
        axis.set_axisbelow(True)
    shown = {name: colour for name, colour in zip(table.index, colours, strict=True) if colour != "0.45"}
    _draw_pit(axes[2], validation, shown)
    _draw_coverage(axes[3], validation, shown)
    times = validation.predictions["time"]
    span = f"{times.min():%Y-%m-%d} to {times.max():%Y-%m-%d}"
    figure.suptitle(f"{validation.variable}, {times.nunique()} times from {span}")
    return save_figure(figure, file)


def _draw_pit(axis: Axes, validation: "Validation", shown: dict[str, str]) -> None:
    edges = np.linspace(0, 1, validation.pit.shape[1] + 1)
    for name, colour in shown.items():
        axis.stairs(10 * validation.pit.loc[name], edges, color=colour, linewidth=1.6, label=name)
    axis.axhline(1, color="black", linestyle="--", linewidth=0.8, label="calibrated")
    axis.set(title="where observations fall", xlabel="predicted probability below the observation (PIT)")
    axis.set(xlim=(0, 1), ylim=(0, None), ylabel="density")
    axis.legend(frameon=False, fontsize=8)


def _draw_coverage(axis: Axes, validation: "Validation", shown: dict[str, str]) -> None:
    coverage = validation.coverage(LEVELS)
    for name, colour in shown.items():
        axis.plot(100 * LEVELS, 100 * coverage.loc[name], color=colour, marker=".", label=name)
    axis.plot([0, 100], [0, 100], color="black", linestyle="--", linewidth=0.8)
    axis.set(title="coverage of intervals", xlabel="central interval [%]", ylabel="observations inside [%]")
    axis.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
