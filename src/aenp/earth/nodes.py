"""Nodes: the grid that a model needs its places on, and observations moved to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.frame import Frame
from aenp.process import NeuralProcess

SLACK = 0.05
"Of a step, by which a point on a grid may lie beside its node: coordinates are often rounded."


@dataclass(frozen=True)
class Nodes:
    """A grid in a model's units, without end.

    Args:
        origin: where one of the nodes is.
        steps: the distance between nodes in each dimension.
    """

    origin: Float[ndarray, " dim_x"]
    steps: Float[ndarray, " dim_x"]

    def nearest(self, x: Float[ndarray, "points dim_x"]) -> Float[ndarray, "points dim_x"]:
        """The node nearest each point."""
        return self.origin + self.steps * np.round((x - self.origin) / self.steps)

    def averaged(
        self, x: Float[ndarray, "points dim_x"], y: Float[ndarray, "points dim_y"]
    ) -> tuple[Float[ndarray, "nodes dim_x"], Float[ndarray, "nodes dim_y"]]:
        """The nodes nearest the points, each once, and the means of what was observed near them."""
        means = pd.DataFrame(y).groupby(list(self.nearest(x).T)).mean()
        return np.array(means.index.to_frame()), np.array(means)


def nodes_for(
    process: NeuralProcess, frame: Frame, observed: pd.DataFrame, target: Mapping[str, ndarray]
) -> tuple[Nodes | None, dict[str, str]]:
    """The grid that places are to be moved to, with a note that says so; none if the model takes them as they are.

    Along each axis it goes through the target's points, if these lie on a grid of the model's spacing; else
    through the context's, if these do; else it is that of the training region.
    """
    if not getattr(process, "on_grid", False):
        return None, {}
    origins, off = [], []
    for (name, axis), step in zip(frame.axes.items(), process.spacing, strict=True):  # type: ignore[arg-type]
        both = target[name], axis.x(observed[name].to_numpy())
        origins.append(node_on(both, step, 0.0 if axis.interval is None else axis.interval[0] + step / 2))
        off.append(max(beside(points, origins[-1], step) for points in both))
    if max(off) <= SLACK:
        return None, {}
    nodes = Nodes(np.array(origins), np.array(process.spacing))
    step_size, distance = (frame.lengths(part * nodes.steps) for part in (1.0, np.array(off)))
    moved = f"locations were moved to its nodes, by at most {distance}"
    return nodes, {"comment": f"this model works on a {step_size} grid: {moved}"}


def node_on(sets: Sequence[ndarray], step: float, otherwise: float) -> float:
    """A node of a grid along one axis: a point of the first set whose points all lie on one grid, or `otherwise`."""
    for points in sets:
        first = float(points[np.isfinite(points)][0])
        if beside(points, first, step) <= SLACK:
            return first
    return otherwise


def beside(points: Float[ndarray, "*points"], node: float, step: float) -> float:
    """How far from a node the points are at most, in steps."""
    cells = (points - node) / step
    return float(np.nanmax(np.abs(cells - np.round(cells))))
