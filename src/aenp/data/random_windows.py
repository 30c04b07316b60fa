"""Random fields in the units in which `aenp.fit` poses its tasks: what its networks are trained on before any data."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from aenp.data.patches import CELLS_PER_UNIT, split
from aenp.data.random_fields import Field, RandomFields, clustered, log_uniform, scattered
from aenp.task import Task

PATCH, STATIONS, MOST_STATIONS = 32, 128, 512
"Cells along a side of a patch; stations in a window of side 2, and in the largest window."
LAWS = RandomFields(lengthscale=(0.1, 4.0))
COVARIATES = RandomFields(lengthscale=(0.03, 1.0), trend=0.3)
"Laws of the fields that covariates are made of."


class Effect(NamedTuple):
    """A covariate, a field of its own like a topography, and the values' slope in it."""

    law: Field
    skew: float
    "From 0, Normal, to 1, log-normal: heights have long tails."
    spread: float
    offset: float
    slope: float

    def draw(self, rng: np.random.Generator, places: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, " points"]:
        """The covariate at these places: of one such field, (e^{s z} − E) / D, with E and D for a z of variance one."""
        z, square = self.law.draw(rng, torch.from_numpy(places)).numpy(), self.skew**2
        scaled = (np.exp(self.skew * z - square / 2) - 1) / math.sqrt(math.expm1(square))
        return self.offset + self.spread * scaled


class Window(NamedTuple):
    """A window of observations, some of which are seen."""

    gridded: bool
    side: float
    seen: int

    def places(self, rng: np.random.Generator, targets: int) -> Float[np.ndarray, "points 2"]:
        """Places in [−1, 1]² of what is seen, then of targets."""
        count = self.seen + targets
        if not self.gridded:
            return (scattered if rng.random() < 0.5 else clustered)(rng, count)
        cells = rng.permutation(PATCH**2)[:count]
        return (2 * np.stack(np.divmod(cells, PATCH), axis=-1) + 1) / PATCH - 1


@dataclass(frozen=True)
class RandomWindows:
    """Random fields seen in patches of a grid, or at stations in windows of many sizes, as `aenp.fit` poses its tasks.

    A patch has 32 × 32 cells of 1/16, of which one in a hundred to one in three is context. A window of stations has up
    to 512 of them, 128 or fewer in a square of side 2, of which up to `share` is context. Values vary within a window
    less than in all of the data.

    Args:
        laws: of the fields, in a box of about [−1, 1]² that becomes the window.
        side: smallest and largest side of a window of stations, log-uniform.
        amplitude: smallest and largest factor of the values, log-uniform.
        num_targets: number of targets.
        share: largest share of the stations in a window that is context.
        covariate: whether points have a covariate, with which values change linearly; in one task of five, not at all.

    Example:
        >>> from aenp.data import RandomWindows
        >>> task = RandomWindows(num_targets=50).batch(batch_size=2, index=0, seed=0)
        >>> len(task), task.xt.shape
        (2, torch.Size([2, 50, 2]))
    """

    laws: RandomFields = LAWS
    side: tuple[float, float] = (2.0, 8.0)
    amplitude: tuple[float, float] = (0.1, 1.0)
    num_targets: int = 128
    share: float = 1 / 3
    covariate: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"share is a part of the stations, between 0 and 1; got {self.share}")

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream `seed`, a function of these arguments alone; its windows are alike."""
        rng = np.random.default_rng((seed, index))
        window = self.window(rng)
        laws = ((self.laws.field(rng), log_uniform(rng, *self.amplitude), self.effect(rng)) for _ in range(batch_size))
        return Task.stack(self.task(rng, *law, window) for law in laws)

    def effect(self, rng: np.random.Generator) -> Effect | None:
        """A random covariate's law and effect; None without a covariate."""
        if not self.covariate:
            return None
        return Effect(
            law=COVARIATES.field(rng),
            skew=rng.uniform(0.01, 1.0),
            spread=log_uniform(rng, 0.3, 1.5),
            offset=rng.normal(0, 0.5),
            slope=0.0 if rng.random() < 0.2 else rng.normal() * log_uniform(rng, 0.2, 4.0),
        )

    def task(
        self, rng: np.random.Generator, field: Field, amplitude: float, effect: Effect | None, window: Window
    ) -> Task:
        """One task with a field of this law, and perhaps a covariate's effect, multiplied by the amplitude."""
        places = window.places(rng, self.num_targets)
        y, covariates = field.draw(rng, torch.from_numpy(places)).float().numpy(), None
        if effect is not None:
            covariates = effect.draw(rng, places).astype(np.float32)[:, None]
            y = y + effect.slope * covariates[:, 0]
        return split(window.side / 2 * places, amplitude * y[:, None], window.seen, covariates=covariates)

    def window(self, rng: np.random.Generator) -> Window:
        """A patch or a window of stations."""
        if rng.random() < 0.5:
            side, points, share = PATCH / CELLS_PER_UNIT, PATCH**2, 1 / 3
        else:
            side, share = log_uniform(rng, *self.side), self.share
            points = int(min(STATIONS * (side / 2) ** 2, MOST_STATIONS) * log_uniform(rng, 0.1, 1.0))
        least = max(1, points // 100)
        seen = int(rng.integers(least, max(least, int(share * points)), endpoint=True))
        return Window(points == PATCH**2, side, seen)
