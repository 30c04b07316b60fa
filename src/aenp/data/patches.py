"""Tasks from gridded fields: a patch, of which some points are observed and the others predicted."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray

from aenp.data.kinds import context_first, with_kind
from aenp.task import Task

CELLS_PER_UNIT = 16
"Cells of a grid in a unit of x, by which models see fields of any resolution alike."


@dataclass(frozen=True, eq=False)
class Patches:
    """Square patches from fields on one lattice, at random places; a random part of each is the context.

    Args:
        fields: an array `(fields, x, y)`, which may be read lazily when sliced; NaN where there is no value. Of several
            variables it is `(fields, x, y, kinds)`: each value is a point, whose last covariates say of which it is.
        axes: the coordinates of the lattice along each side.
        size: points along each side of a patch.
        num_context: smallest and largest number of context points; fractions are shares of a patch's values. The
            other values are targets.
        equal_sizes: draw one number of context points for a batch; otherwise each task has its own.
        num_targets: score at most this many of the others, to train faster; by default all.
        min_points: smallest number of values in a patch, where some are missing.
        gaps: share of the tasks whose context is what the gaps of another patch of the field, moved, leave of a patch.
        covariates: what else is known of each point of the lattice, `(x, y, covariates)`, or of each value,
            `(fields, x, y, covariates)`; by default nothing.

    Example:
        >>> import numpy as np
        >>> from aenp.data import Patches
        >>> fields, axis = np.random.default_rng(0).standard_normal((10, 20, 20)), np.arange(20) / 16
        >>> task = Patches(fields, (axis, axis), size=8, num_context=(10, 10)).batch(batch_size=2, index=0, seed=0)
        >>> task.xc.shape, task.xt.shape
        (torch.Size([2, 10, 2]), torch.Size([2, 54, 2]))
    """

    fields: Any
    axes: tuple[Float[ndarray, " x"], Float[ndarray, " y"]]
    size: int = 32
    num_context: tuple[float, float] = (10, 250)
    equal_sizes: bool = False
    num_targets: int | None = None
    min_points: int = 2
    gaps: float = 0.0
    covariates: Float[ndarray, "*lattice covariates"] | None = None

    def __post_init__(self) -> None:
        check_covariates(self.covariates, self.fields.shape[:3])
        if self.context_sizes(self.size**2)[1] >= self.size**2:
            raise ValueError(f"a patch of {self.size**2} points has no target left; got num_context={self.num_context}")
        if min(self.fields.shape[1:3]) < self.size:
            raise ValueError(
                f"fields of {self.fields.shape[1:3]} points are too small for a patch of {self.size} × {self.size}"
            )

    @property
    def kinds(self) -> int:
        """The number of variables."""
        return int(self.fields.shape[3]) if len(self.fields.shape) > 3 else 1

    def context_sizes(self, values: int) -> tuple[int, int]:
        """Smallest and largest number of context points in a patch of this many values."""
        smallest, largest = (int(number * values if 0 < number < 1 else number) for number in self.num_context)
        return max(smallest, 1), max(largest, 1)

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream that belongs to `seed`."""
        return self.batch_with_fields(batch_size, index, seed)[0]

    def batch_with_fields(self, batch_size: int, index: int, seed: int) -> tuple[Task, list[int]]:
        """The same batch, and for each task the number of the field that it is from."""
        rng = np.random.default_rng((seed, index))
        shares = np.broadcast_to(rng.random(1 if self.equal_sizes else batch_size), batch_size)
        fields = rng.choice(len(self.fields), size=batch_size, replace=batch_size > len(self.fields))
        tasks, sources = zip(
            *(self._draw(rng, *one) for one in zip(fields.tolist(), shares.tolist(), strict=True)), strict=True
        )
        return Task.stack(tasks), list(sources)

    def _draw(self, rng: np.random.Generator, field: int, share: float) -> tuple[Task, int]:
        """One task, from a field if it has a patch with enough values, or else from another; and which field."""
        for _ in range(1000):
            i, j = rng.integers(0, np.array(self.fields.shape[1:3]) - self.size + 1)
            patch = np.asarray(self.fields[field, i : i + self.size, j : j + self.size]).ravel()
            there = np.flatnonzero(~np.isnan(patch))
            if len(there) >= self.min_points:
                break
            field = int(rng.integers(len(self.fields)))
        else:
            raise ValueError(
                f"no patch of {self.size} × {self.size} points has {self.min_points} values; give data with fewer gaps"
            )
        smallest, largest = self.context_sizes(len(there))
        seen = min(smallest + int(share * (largest - smallest + 1)), len(there) - 1)
        if self.kinds == 1:
            order = rng.permutation(there)
        else:
            order = there[context_first(rng, there % self.kinds, self.kinds, seen)]
        if self.gaps and rng.random() < self.gaps:
            left = self._left(rng, field)[order]
            if 0 < left.sum() < len(order):
                order, seen = np.concatenate([order[left], order[~left]]), int(left.sum())
        cell, kind = np.divmod(order, self.kinds)
        row, column = i + cell // self.size, j + cell % self.size
        x = np.stack([self.axes[0][row], self.axes[1][column]], axis=-1)
        known = self.covariates
        if known is not None:
            known = (known[field] if known.ndim == 4 else known)[row, column]
        known = with_kind(known, kind, self.kinds)
        return split(x, patch[order, None], seen, self.num_targets, known), field

    def _left(self, rng: np.random.Generator, field: int) -> Bool[ndarray, " points"]:
        """Which points of a patch are left by the gaps of another patch of the field, moved with its edges joined."""
        i, j = rng.integers(0, np.array(self.fields.shape[1:3]) - self.size + 1)
        other = np.asarray(self.fields[field, i : i + self.size, j : j + self.size])
        return np.roll(~np.isnan(other), rng.integers(self.size, size=2), axis=(0, 1)).ravel()


def split(
    x: Float[ndarray, "points dim_x"],
    y: Float[ndarray, "points dim_y"],
    seen: int,
    num_targets: int | None = None,
    covariates: Float[ndarray, "points dim_covariates"] | None = None,
) -> Task:
    """The task whose context is the first `seen` points, and whose targets are the others, up to `num_targets`."""
    xs, ys = torch.from_numpy(x).unsqueeze(0), torch.from_numpy(y).unsqueeze(0)
    last = None if num_targets is None else seen + num_targets
    known = None if covariates is None else torch.from_numpy(covariates).unsqueeze(0)
    return Task(
        xs[:, :seen],
        ys[:, :seen],
        xs[:, seen:last],
        ys[:, seen:last],
        context_covariates=None if known is None else known[:, :seen],
        target_covariates=None if known is None else known[:, seen:last],
    )


def check_covariates(covariates: ndarray | None, shape: tuple[int, ...]) -> None:
    """Raises an error unless the covariates have the shape of the values, with or without the first dimension."""
    if covariates is not None and covariates.shape[:-1] not in (shape, shape[1:]):
        raise ValueError(
            f"values of shape {shape} need covariates of shape {shape[1:]} or {shape}, and the number of covariates; "
            f"got {covariates.shape}"
        )
