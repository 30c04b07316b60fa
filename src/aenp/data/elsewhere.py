"""Tasks as they might be elsewhere: mirrored, and far from where the source's own are."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from aenp.data.stream import TaskSource
from aenp.nn.coordinates import Box
from aenp.task import Task

FAR = 64.0
"How far away, in units of x; float32 still resolves a grid there."


def reaches(domain: Box) -> bool:
    """Whether a task in this domain, mirrored and moved away, may still lie in it."""
    lower, upper = domain[0]
    return not (lower + FAR > upper and (FAR - upper > upper or FAR - lower < lower))


@dataclass(frozen=True)
class Elsewhere:
    """Tasks of a source, some of them mirrored in space at random and moved out of the domain of the fixed inputs.

    They have the physics of the others but not their places: an approximate model learns from them what is the same
    everywhere, and an exact one cannot learn the places by heart. Space is the first two dimensions of x: time and
    elevation have a direction.

    Args:
        source: draws the tasks.
        share: how many of them are moved.
    """

    source: TaskSource
    share: float = 0.5

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream that belongs to `seed`."""
        task = self.source.batch(batch_size, index, seed)
        rng = np.random.default_rng((seed, index, 1))
        moved = rng.random(batch_size) < self.share
        signs, offset = np.ones((batch_size, task.dim_x)), np.zeros((batch_size, task.dim_x))
        signs[moved, :2] = rng.choice([-1.0, 1.0], size=signs[moved, :2].shape)
        offset[moved, 0] = FAR

        def place(x: Tensor) -> Tensor:
            return x * _like(signs, x) + _like(offset, x)

        return task.map_inputs(place)


def _like(values: ndarray, x: Tensor) -> Tensor:
    return torch.from_numpy(values).to(x).unsqueeze(1)
