"""Tiles: overlapping windows over a context far wider than those a model was trained with."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

WIDER = 1.25
"Times as wide as a window of training, up to which a context is seen as a whole."
FEWEST, FARTHEST = 8, 2.0
"""Observations that a tile sees at least, the nearest where its own are fewer, and how many times farther than these;
the nearest of all it sees at any distance."""


@dataclass(frozen=True)
class Tiles:
    """Windows of the sizes met in training, half a window or less apart, between which predictions are blended.

    They lie over the context alone, so that a prediction does not depend on other targets, and move with it.

    Args:
        centres: of the tiles along each axis; a single one sees everything along it.
        windows: their sides.
    """

    centres: Sequence[Float[ndarray, " _"]]
    windows: Sequence[float]

    @staticmethod
    def over(x: Float[ndarray, "points dim_x"], windows: Sequence[float]) -> "Tiles":
        """The tiles of a context, whose windows along each axis may be infinite."""
        ends = zip(x.min(axis=0), x.max(axis=0), windows, strict=True)
        return Tiles([_centres(low, high, window) for low, high, window in ends], windows)

    def shares(
        self, x: Float[ndarray, "points dim_x"]
    ) -> Iterator[tuple[tuple[int, ...], Int[ndarray, " rows"], Float[ndarray, " rows"]]]:
        """The tiles that count at some of the places: their numbers along the axes, the places' rows, and how much.

        A tile counts linearly less towards the centres beside it, and all together count one.
        """
        parts: list[tuple[tuple[int, ...], ndarray, ndarray]] = [((), np.arange(len(x)), np.ones(len(x)))]
        for centres, values in zip(self.centres, x.T, strict=True):
            finer = []
            for tile, rows, weights in parts:
                for number, hat in enumerate(np.eye(len(centres))):
                    share = weights * np.interp(values[rows], centres, hat)
                    if share.any():
                        finer.append(((*tile, number), rows[share > 0], share[share > 0]))
            parts = finer
        yield from parts

    def nearest(self, x: Float[ndarray, "points dim_x"]) -> Iterator[tuple[tuple[int, ...], Int[ndarray, " rows"]]]:
        """The tiles that count most at some of the places, and these places' rows."""
        number = [
            np.searchsorted((each[1:] + each[:-1]) / 2, values) for each, values in zip(self.centres, x.T, strict=True)
        ]
        tiles, which = np.unique(np.stack(number, axis=-1), axis=0, return_inverse=True)
        for row, tile in enumerate(tiles.tolist()):
            yield tuple(tile), np.flatnonzero(which.ravel() == row)

    def seen(self, tile: tuple[int, ...], x: Float[ndarray, "points dim_x"]) -> Bool[ndarray, " points"]:
        """Which observations a tile sees."""
        distance = np.zeros(len(x))
        for number, centres, side, values in zip(tile, self.centres, self.windows, x.T, strict=True):
            if len(centres) > 1:
                distance = np.maximum(distance, np.abs(values - centres[number]) / (side / 2))
        farthest = max(FARTHEST, distance.min())  # without any observation a model would not know the level
        return distance <= np.clip(np.sort(distance)[min(FEWEST, len(x)) - 1], 1.0, farthest)

    def corners(self, tile: tuple[int, ...], corners: Float[ndarray, "2 dim_x"]) -> Float[ndarray, "2 dim_x"]:
        """The corners of that part of the targets' box where a tile counts."""
        low, high = corners.copy()
        for axis, (number, centres) in enumerate(zip(tile, self.centres, strict=True)):
            if number > 0:
                low[axis] = max(low[axis], centres[number - 1])
            if number < len(centres) - 1:
                high[axis] = min(high[axis], centres[number + 1])
        return np.stack([low, high])


def _centres(low: float, high: float, window: float) -> Float[ndarray, " tiles"]:
    """The centres of tiles that cover an interval, from end to end."""
    if not high - low > WIDER * window:
        return np.array([(low + high) / 2])
    return np.linspace(low + window / 2, high - window / 2, math.ceil((high - low - window) / (window / 2)) + 1)
