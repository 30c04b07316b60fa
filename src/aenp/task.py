"""Task: a context set and a target set, batched, with masks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import SupportsIndex

import torch
from torch import Tensor

from aenp.checks import LIMIT, check_floating, vector


@dataclass(frozen=True, eq=False)
class Task:
    """A batch of tasks ξ = ((x_c, y_c), (x_t, y_t)).

    Args:
        xc: context inputs, `(batch, context points, dim_x)`; may hold no points. Inputs may be float64 while
            outputs and model are float32.
        yc: context outputs, `(batch, context points, dim_y)`. A point with a NaN output is masked.
        xt: target inputs, `(batch, target points, dim_x)`; at least one point.
        yt: target outputs, `(batch, target points, dim_y)`, or None if they are to be predicted.
        context_mask: `(batch, context points)`, True where a context point counts; None if all do.
        target_mask: `(batch, target points)`, True where a target point counts; None if all do.
        context_covariates: what is known at both context and target points, such as elevation or the kind of an
            observation: `(batch, context points, dim_covariates)`. A point with a NaN covariate is masked.
        target_covariates: the same at the targets, `(batch, target points, dim_covariates)`; both or neither.

    Numbers that count must be finite and less than 1e15. Masked points are set to zero, except target inputs and
    covariates: a target without an outcome keeps its place. What moves the inputs leaves the covariates.

    Example:
        >>> import torch
        >>> import aenp
        >>> task = aenp.Task(xc=torch.rand(4, 10, 2), yc=torch.randn(4, 10, 1), xt=torch.rand(4, 50, 2))
        >>> len(task), task.dim_x, task.dim_y, task[0].xt.shape
        (4, 2, 1, torch.Size([1, 50, 2]))
        >>> smaller = aenp.Task(torch.rand(1, 3, 2), torch.randn(1, 3, 1), torch.rand(1, 50, 2))
        >>> aenp.Task.stack([task, smaller]).context_mask.sum(dim=1)
        tensor([10, 10, 10, 10,  3])
    """

    # Not annotated with shapes: these are checked at run time, with errors of our own.
    xc: Tensor
    yc: Tensor
    xt: Tensor
    yt: Tensor | None = None
    context_mask: Tensor | None = None
    target_mask: Tensor | None = None
    context_covariates: Tensor | None = None
    target_covariates: Tensor | None = None

    def __post_init__(self) -> None:
        _check_shapes(self)
        context = _observed(self.context_mask, self.yc, self.context_covariates)
        target = self.target_mask if self.yt is None else _observed(self.target_mask, self.yt)
        update = object.__setattr__
        update(self, "context_mask", context)
        update(self, "target_mask", target)
        update(self, "xc", _clean("xc", self.xc, context))
        update(self, "yc", _clean("yc", self.yc, context))
        update(self, "xt", _clean("xt", self.xt, target, keep_finite=True))
        if self.yt is not None:
            update(self, "yt", _clean("yt", self.yt, target))
        if self.context_covariates is not None and self.target_covariates is not None:
            at_targets = _clean("target_covariates", self.target_covariates, target, keep_finite=True)
            update(self, "context_covariates", _clean("context_covariates", self.context_covariates, context))
            update(self, "target_covariates", at_targets)

    @property
    def batch_size(self) -> int:
        return self.xc.shape[0]

    @property
    def dim_x(self) -> int:
        return self.xc.shape[-1]

    @property
    def dim_y(self) -> int:
        return self.yc.shape[-1]

    @property
    def dim_covariates(self) -> int:
        return 0 if self.context_covariates is None else self.context_covariates.shape[-1]

    def __len__(self) -> int:
        return self.batch_size

    def __getitem__(self, index: SupportsIndex | slice) -> "Task":
        """One task, or some of them, as a batch."""
        if isinstance(index, slice):
            rows = index
        else:
            row = range(len(self))[index]
            rows = slice(row, row + 1)
        return Task(*(None if value is None else value[rows] for value in self._values()))  # type: ignore[arg-type]

    def to(self, *args: object, **kwargs: object) -> "Task":
        """Moves every tensor as `torch.Tensor.to` does; a dtype changes everything but masks."""
        device = torch.empty(0, device=self.xc.device).to(*args, **kwargs).device  # type: ignore[call-overload]
        moved = (
            value if value is None else value.to(device) if value.dtype == torch.bool else value.to(*args, **kwargs)  # type: ignore[call-overload]
            for value in self._values()
        )
        return Task(*moved)  # type: ignore[arg-type]

    def unchecked(self, **values: Tensor | None) -> "Task":
        """The same with other values, unchecked: masked points may then hold any finite number."""
        task = object.__new__(Task)
        vars(task).update(vars(self) | values)
        return task

    def shift(self, g: float | Sequence[float] | Tensor) -> "Task":
        """The task g·ξ, with every input moved by `g`: one number, or one for each input dimension."""
        offset = vector("a shift", g, self.dim_x).to(self.xc)
        return self.map_inputs(lambda x: x + offset)

    def map_inputs(self, function: Callable[[Tensor], Tensor]) -> "Task":
        """The task whose inputs are those of this one, each mapped by `function`."""
        return replace(self, xc=function(self.xc), xt=function(self.xt))

    def with_targets(
        self,
        xt: Tensor,
        yt: Tensor | None = None,
        target_mask: Tensor | None = None,
        target_covariates: Tensor | None = None,
    ) -> "Task":
        """The same context with other targets."""
        return replace(self, xt=xt, yt=yt, target_mask=target_mask, target_covariates=target_covariates)

    def some_targets(self, index: Tensor) -> "Task":
        """The same context with only the targets of these numbers, `(batch, targets)`."""
        values = {name: getattr(self, name) for name in ("xt", "yt", "target_covariates")}
        chosen = {
            name: value.take_along_dim(index.unsqueeze(-1), 1) for name, value in values.items() if value is not None
        }
        mask = None if self.target_mask is None else self.target_mask.take_along_dim(index, 1)
        return replace(self, **chosen, target_mask=mask)

    def at_targets(self, part: slice = slice(None)) -> tuple[Tensor, ...]:
        """What a model's `decode` sees of some of the targets: their places and, if there are any, covariates."""
        places = self.xt[:, part]
        return (places,) if self.target_covariates is None else (places, self.target_covariates[:, part])

    @classmethod
    def stack(cls, tasks: Iterable["Task"]) -> "Task":
        """One batch of tasks of unequal sizes: shorter sets are padded, and the padding is masked."""
        tasks = list(each_task(tasks))
        if not tasks:
            raise ValueError("Task.stack needs at least one task; got none")
        kinds = {(task.dim_y, task.dim_covariates, task.yt is None) for task in tasks}
        if len(kinds) > 1:
            raise ValueError(
                "Task.stack needs tasks with the same dim_y, all with or all without yt, and the same dim_covariates; "
                f"got (dim_y, dim_covariates, yt is None) = {sorted(kinds)}"
            )
        xc, context_mask = _pad([task.xc for task in tasks], [task.context_mask for task in tasks])
        xt, target_mask = _pad([task.xt for task in tasks], [task.target_mask for task in tasks])
        yc, yt, at_context, at_targets = (
            None if getattr(tasks[0], name) is None else _pad([getattr(task, name) for task in tasks])[0]
            for name in ("yc", "yt", "context_covariates", "target_covariates")
        )
        return cls(xc, yc, xt, yt, context_mask, target_mask, at_context, at_targets)  # type: ignore[arg-type]

    def _values(self) -> list[Tensor | None]:
        return [getattr(self, field.name) for field in fields(self)]


def each_task(tasks: Task | Iterable[Task]) -> Iterator[Task]:
    """The tasks one by one; raises an error if one is not a Task or they differ in dim_x."""
    dim_x = None
    for task in [tasks] if isinstance(tasks, Task) else tasks:
        if not isinstance(task, Task):
            raise ValueError(f"tasks must be an aenp.Task or several; got {type(task).__name__}")
        if task.dim_x != (dim_x or task.dim_x):
            raise ValueError(f"tasks must have the same dim_x; got {dim_x} and {task.dim_x}")
        dim_x = task.dim_x
        yield task


def _check_shapes(task: Task) -> None:
    optional = ("yt", "context_covariates", "target_covariates")
    for name in ("xc", "yc", "xt", *optional):
        value = getattr(task, name)
        if value is None and name in optional:
            continue
        check_floating(**{name: value})
        if value.ndim != 3:
            raise ValueError(f"{name} must have shape (batch, points, dim); got {tuple(value.shape)}")
    for name in ("xc", "xt"):
        if getattr(task, name).dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{name} must be float32 or float64, to tell places apart; got {getattr(task, name).dtype}"
            )
    if task.xc.dtype != task.xt.dtype:
        raise ValueError(f"xc and xt must have the same dtype; got {task.xc.dtype} and {task.xt.dtype}")
    _equal("the batch size", xc=task.xc.shape[0], yc=task.yc.shape[0], xt=task.xt.shape[0])
    _equal("the number of context points", xc=task.xc.shape[1], yc=task.yc.shape[1])
    _equal("dim_x, the last dimension,", xc=task.xc.shape[2], xt=task.xt.shape[2])
    if task.yt is not None:
        _equal("the batch size and the number of target points", xt=task.xt.shape[:2], yt=task.yt.shape[:2])
        _equal("dim_y, the last dimension,", yc=task.yc.shape[2], yt=task.yt.shape[2])
    _check_covariates(task.xc, task.xt, task.context_covariates, task.target_covariates)
    for name, mask, x in (
        ("context_mask", task.context_mask, task.xc),
        ("target_mask", task.target_mask, task.xt),
    ):
        if mask is not None and not isinstance(mask, Tensor):
            raise ValueError(f"{name} must be a torch.Tensor; got {type(mask).__name__}")
        if mask is not None and (mask.dtype != torch.bool or mask.shape != x.shape[:2]):
            raise ValueError(
                f"{name} must be a bool tensor of shape {tuple(x.shape[:2])}, True where a point counts; "
                f"got {mask.dtype} of shape {tuple(mask.shape)}"
            )
    for name, size in (("batch", task.xc.shape[0]), ("dim_x", task.xc.shape[2]), ("dim_y", task.yc.shape[2])):
        if size == 0:
            raise ValueError(f"a task needs {name} of at least 1; got 0")
    if task.xt.shape[1] == 0:
        raise ValueError(f"a task needs at least one target point; xt has shape {tuple(task.xt.shape)}")


def _check_covariates(xc: Tensor, xt: Tensor, at_context: Tensor | None, at_targets: Tensor | None) -> None:
    if at_context is None and at_targets is None:
        return
    if at_context is None or at_targets is None:
        missing = "context_covariates" if at_context is None else "target_covariates"
        raise ValueError(
            f"a task needs covariates at its context and at its targets, or at neither; it has no {missing}"
        )
    where = "the batch size and the number of points"
    _equal(where, xc=xc.shape[:2], context_covariates=at_context.shape[:2])
    _equal(where, xt=xt.shape[:2], target_covariates=at_targets.shape[:2])
    _equal(
        "dim_covariates, the last dimension,",
        context_covariates=at_context.shape[2],
        target_covariates=at_targets.shape[2],
    )
    if at_context.shape[2] == 0:
        raise ValueError("covariates need dim_covariates of at least 1; got 0. Leave them out if there are none")


def _equal(what: str, **sizes: object) -> None:
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{size} in {name}" for name, size in sizes.items())
        raise ValueError(f"{what} must agree; got {found}")


def _observed(mask: Tensor | None, y: Tensor, covariates: Tensor | None = None) -> Tensor | None:
    """The mask of points that count and have all their outputs and covariates; None if every point does."""
    seen = ~y.isnan().any(dim=-1)
    if covariates is not None:
        seen = seen & ~covariates.isnan().any(dim=-1)
    seen = seen if mask is None else seen & mask
    return None if not torch.compiler.is_compiling() and bool(seen.all()) else seen


def _clean(name: str, value: Tensor, mask: Tensor | None, keep_finite: bool = False) -> Tensor:
    """Zeros where masked, or only where masked and out of bounds; raises an error for other values out of bounds."""
    if mask is not None:
        keep = mask.unsqueeze(-1) | (value.abs() < LIMIT) if keep_finite else mask.unsqueeze(-1)
        value = torch.where(keep, value, 0.0)
    if not torch.compiler.is_compiling() and not bool((value.abs() < LIMIT).all()):
        kind = {"x": "inputs", "y": "outputs"}.get(name[0], "covariates")
        if bool(value.isfinite().all()):
            largest = value.abs().max().item()
            raise ValueError(f"{name} has {kind} of {largest:.3g}, but the limit is {LIMIT:g}; shift or scale them")
        what = "infinite" if kind == "outputs" else "NaN or infinite"
        raise ValueError(f"{name} has {what} {kind}; mask such points or drop them")
    return value


def _pad(values: Sequence[Tensor], masks: Sequence[Tensor | None] = ()) -> tuple[Tensor, Tensor | None]:
    """Values of unequal lengths as one batch, and the mask of what is not padding."""
    longest = max(value.shape[1] for value in values)
    dtype = reduce(torch.promote_types, (value.dtype for value in values))
    batch = sum(value.shape[0] for value in values)
    stacked = values[0].new_zeros(batch, longest, values[0].shape[2], dtype=dtype)
    mask = torch.zeros(batch, longest, dtype=torch.bool, device=stacked.device)
    row = 0
    for i, value in enumerate(values):
        rows, points = slice(row, row + value.shape[0]), slice(value.shape[1])
        stacked[rows, points] = value
        own = masks[i] if masks else None
        mask[rows, points] = True if own is None else own
        row += value.shape[0]
    return stacked, None if bool(mask.all()) else mask
