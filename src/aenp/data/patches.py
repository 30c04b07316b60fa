"""Tasks from gridded fields: a patch, of which some points are seen and the others asked for."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from aenp.task import Task


@dataclass(frozen=True, eq=False)
class Patches:
    """Square patches from fields on one lattice, at random places; a random part of each is the context.

    Args:
        fields: `(fields, x, y)`; NaN where there is no value.
        axes: the coordinates of the lattice along each side.
        size: points along each side of a patch.
        num_context: smallest and largest number of context points; the others are targets.
        equal_sizes: draw one number of context points for a batch; else each task has its own.
        num_targets: at most so many of the others, for training in less time; by default all.
    """

    fields: Float[ndarray, "fields x y"]
    axes: tuple[Float[ndarray, " x"], Float[ndarray, " y"]]
    size: int = 32
    num_context: tuple[int, int] = (10, 250)
    equal_sizes: bool = False
    num_targets: int | None = None

    def __post_init__(self) -> None:
        if self.num_targets is not None and not self.equal_sizes:
            raise ValueError("num_targets needs equal_sizes=True")
        if self.num_context[1] >= self.size**2:
            raise ValueError(f"a patch of {self.size**2} points has no target left; got num_context={self.num_context}")
        if min(self.fields.shape[1:]) < self.size:
            raise ValueError(f"fields of {self.fields.shape[1:]} points hold no patch of {self.size} × {self.size}")

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream that belongs to `seed`."""
        rng = np.random.default_rng((seed, index))
        number = np.arange(self.size**2)
        draws = 1 if self.equal_sizes else batch_size
        count = np.broadcast_to(rng.integers(*self.num_context, size=(draws, 1), endpoint=True), (batch_size, 1))
        field = rng.choice(len(self.fields), size=(batch_size, 1), replace=batch_size > len(self.fields))
        corner = rng.integers(0, np.array(self.fields.shape[1:]) - self.size + 1, size=(batch_size, 2))
        order = rng.permuted(np.tile(number, (batch_size, 1)), axis=1)
        i, j = corner[:, :1] + order // self.size, corner[:, 1:] + order % self.size
        x = torch.from_numpy(np.stack([self.axes[0][i], self.axes[1][j]], axis=-1))
        y = torch.from_numpy(self.fields[field, i, j][..., None])
        least, most = int(count.min()), int(count.max())
        last = self.size**2 if self.num_targets is None else least + self.num_targets
        xc, yc, xt, yt = x[:, :most], y[:, :most], x[:, least:last], y[:, least:last]
        if least == most:
            return Task(xc, yc, xt, yt)
        seen = torch.from_numpy(number < count)
        return Task(xc, yc, xt, yt, seen[:, :most], ~seen[:, least:last])
