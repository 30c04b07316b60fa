"""NeuralProcess: the base class of all models, a map from a context set to a distribution at any target."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution

from aenp.configured import Configured
from aenp.fixed_inputs import FixedInputs
from aenp.likelihoods import Likelihood, Normal, Unit
from aenp.task import Task

Symmetry = Literal["none", "exact", "approx"]
Values = Literal["raw", "centred", "standardised"]


class Predictions(NamedTuple):
    """Two predictions of one model: with its fixed inputs, and without."""

    approximate: Distribution
    equivariant: Distribution


class NeuralProcess(Configured, nn.Module, ABC):
    """p(y | x, D_c) = likelihood(decode(encode(D_c), x)), independently for each target x.

    A family defines `encode` and `decode`. `decode` sees each target by itself, so targets may be decoded in chunks.
    Where points have covariates, p(y | x, c, D_c) with D_c = {(x_n, y_n, c_n)}.

    Args:
        dim_x: input dimension.
        dim_y: output dimension.
        likelihood: from raw outputs to a distribution; a heteroscedastic Normal by default.
        fixed_inputs: t(x), which makes an equivariant model approximately equivariant.
        values: how the network sees outputs: `raw`; `centred`, as differences from the mean of the task's context, so
            that p(y + c | D_c + c) = p(y | D_c); or `standardised`, divided by the context's standard deviation too.
            An empty context has the mean 0, and one without spread the standard deviation 1.
        dim_covariates: number of covariates of each point, which tasks must then have; 0 for none. They stay as they
            are where the data are moved or `values` rescales the outputs, and are best scaled to about one.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.ConvCNP(dim_x=1, dim_y=1, fixed_inputs=aenp.FixedInputs(1, domain=[(0, 1)]))
        >>> isinstance(model, aenp.NeuralProcess), model.symmetry, model.label
        (True, 'approx', 'ConvCNP (T~)')
        >>> prediction = model(torch.rand(2, 10, 1), torch.randn(2, 10, 1), torch.rand(2, 5, 1))  # xc, yc, xt
        >>> prediction.mean.shape
        torch.Size([2, 5, 1])
        >>> with model.equivariant():
        ...     equivariant = model(torch.rand(2, 10, 1), torch.randn(2, 10, 1), torch.rand(2, 5, 1))
    """

    mutable = ("likelihood",)
    symmetry_group: str = "T"
    "The symmetry of an equivariant model: T, translations, SE, rotations too, or E, rotations and reflections too."

    max_dim_x: ClassVar[int | None] = None

    families: ClassVar[dict[str, type["NeuralProcess"]]] = {}
    "Every family by its name, including those defined outside this package."

    family: ClassVar[str]
    "The name of a family on the command line; a class that declares it is registered under it."

    symmetries: ClassVar[tuple[Symmetry, ...]]
    "The symmetries that a family supports."

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "family" in cls.__dict__:
            NeuralProcess.families[cls.family] = cls

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        likelihood: Likelihood | None = None,
        fixed_inputs: FixedInputs | None = None,
        values: Values = "raw",
        dim_covariates: int = 0,
    ) -> None:
        super().__init__()
        if dim_x < 1 or dim_y < 1:
            raise ValueError(f"dim_x and dim_y must be at least 1; got {dim_x} and {dim_y}")
        if self.max_dim_x is not None and dim_x > self.max_dim_x:
            raise ValueError(
                f"{type(self).__name__} works in up to {self.max_dim_x} dimensions; got dim_x={dim_x}. "
                "TNP, PTTNP and RCNP work in any"
            )
        if likelihood is not None and not isinstance(likelihood, Likelihood):
            raise ValueError(f"likelihood must be a Likelihood such as aenp.Normal(); got {likelihood!r}")
        if fixed_inputs is not None and not isinstance(fixed_inputs, FixedInputs):
            raise ValueError(f"fixed_inputs must be an aenp.FixedInputs; got {fixed_inputs!r}")
        if fixed_inputs is not None and fixed_inputs.dim_x != dim_x:
            raise ValueError(f"fixed_inputs is made for dim_x={fixed_inputs.dim_x}; the model has dim_x={dim_x}")
        if values not in get_args(Values):
            raise ValueError(f"values must be one of {', '.join(get_args(Values))}; got {values!r}")
        if dim_covariates < 0:
            raise ValueError(f"dim_covariates must not be negative; got {dim_covariates}")
        self.dim_x, self.dim_y, self.dim_covariates, self.values = dim_x, dim_y, dim_covariates, values
        self.likelihood = likelihood or Normal()
        if values != "raw" and not self.likelihood.relative:
            raise ValueError(
                f"values={values!r} moves outputs, but likelihood={type(self.likelihood).__name__}() has bounds that "
                "must stay where they are; use values='raw'"
            )
        self.fixed_inputs = fixed_inputs
        self.num_params = dim_y * self.likelihood.num_params

    @abstractmethod
    def encode(self, task: Task) -> Any:
        """The context as the family represents it; it may use the targets' extent, but nothing else."""

    @abstractmethod
    def decode(
        self,
        state: Any,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        """The raw parameters of the likelihood at each target; a model without covariates needs no such argument."""

    def forward(self, xc: Tensor | Task, yc: Tensor | None = None, xt: Tensor | None = None) -> Distribution:
        """The predictive distribution at the targets, elementwise over `(batch, target points, dim_y)`.

        Args:
            xc: a `Task`, which may have covariates, or context inputs `(batch, context points, dim_x)`.
            yc: context outputs, `(batch, context points, dim_y)`; points with NaN outputs are ignored.
            xt: target inputs, `(batch, target points, dim_x)`.
        """
        task, unit = self.normalise(self.task(xc, yc, xt))
        return self.likelihood(self.decode(self.encode(task), *task.at_targets()), unit)

    def task(self, xc: Tensor | Task, yc: Tensor | None = None, xt: Tensor | None = None) -> Task:
        """The task that the arguments of a call describe, checked against this model."""
        if isinstance(xc, Task):
            task = xc
        elif yc is None or xt is None:
            raise ValueError("a model takes a Task, or the three tensors xc, yc, xt")
        else:
            task = Task(xc, yc, xt)
        if (task.dim_x, task.dim_y) != (self.dim_x, self.dim_y):
            raise ValueError(
                f"the model has dim_x={self.dim_x} and dim_y={self.dim_y}; "
                f"the task has dim_x={task.dim_x} and dim_y={task.dim_y}"
            )
        if task.dim_covariates != self.dim_covariates:
            raise ValueError(
                f"the model has dim_covariates={self.dim_covariates}, but the task has {task.dim_covariates}; give a "
                "Task the covariates that the model is made for, as context_covariates and target_covariates"
            )
        weight = next(self.parameters(), None)
        if weight is not None and weight.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"the model's weights must be float32 or float64; got {weight.dtype}. Call model.float(), and use "
                "torch.autocast for mixed precision"
            )
        return task

    def normalise(self, task: Task) -> tuple[Task, Unit | None]:
        """The task with its context's outputs as the network sees them, and the unit that they are in; None if raw."""
        if self.values == "raw":
            return task, None
        y = task.yc.to(torch.promote_types(task.yc.dtype, self.dtype))
        shift = masked_mean(y, task).unsqueeze(1)
        scale = torch.ones_like(shift)
        if self.values == "standardised":
            variance = masked_mean((y - shift).square(), task).unsqueeze(1)
            round_off = 8 * torch.finfo(y.dtype).eps * masked_mean(y.abs(), task).unsqueeze(1)
            scale = torch.where(variance > round_off.square(), variance, 1.0).sqrt()
        return task.unchecked(yc=(y - shift) / scale), Unit(shift, scale)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def symmetry(self) -> Symmetry:
        """`none`, `exact` or `approx`; a model with fixed inputs is `approx`, even where they are switched off."""
        return "exact" if self.fixed_inputs is None else "approx"

    @contextmanager
    def equivariant(self) -> Iterator[None]:
        """Within this context the fixed inputs are off, and an `approx` model is exactly equivariant.

        Only for the calling thread: predictions of other threads with the same model do not change.
        """
        if self.fixed_inputs is None:
            yield
            return
        self.fixed_inputs.switch.off += 1
        try:
            yield
        finally:
            self.fixed_inputs.switch.off -= 1

    def symmetry_breaking(self, task: Task) -> Predictions:
        """Both predictions at the task's targets; their difference is what the model has learned about the place."""
        approximate = self(task)
        with self.equivariant():
            return Predictions(approximate, self(task))

    @property
    def label(self) -> str:
        """The model as the paper writes it, such as `ConvCNP (T~)`."""
        suffix = {"none": "", "exact": f" ({self.symmetry_group})", "approx": f" ({self.symmetry_group}~)"}
        return type(self).__name__ + suffix[self.symmetry]


def at_least_one(**sizes: int) -> None:
    """Raises an error that names the first size that is less than one."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1; got {size}")


def with_covariates(
    values: Float[Tensor, "batch points dim"], covariates: Float[Tensor, "batch points dim_covariates"] | None
) -> Float[Tensor, "batch points features"]:
    """Each point's values beside its covariates; the values alone where there are none."""
    return values if covariates is None else torch.cat([values, covariates.to(values)], dim=-1)


def context_mean(task: Task) -> Float[Tensor, "batch 1 dim_x"]:
    """The mean of each task's context inputs, in their own dtype; zero where the context is empty."""
    if task.xc.shape[1] == 0:
        return task.xc.new_zeros(task.batch_size, 1, task.dim_x)
    if task.context_mask is None:
        return task.xc.mean(dim=1, keepdim=True)
    return task.xc.sum(dim=1, keepdim=True) / task.context_mask.sum(dim=1).clamp(min=1)[:, None, None]


def relative_context(task: Task, anchor: Float[Tensor, "batch 1 dim_x"]) -> Float[Tensor, "batch context dim_x"]:
    """x_c − anchor in the coordinates' own dtype; zero where masked."""
    relative = task.xc - anchor
    return relative if task.context_mask is None else relative * task.context_mask.unsqueeze(-1)


def masked_mean(values: Float[Tensor, "*batch context dim"], task: Task) -> Float[Tensor, "*batch dim"]:
    """The mean over the context points that count, the second last dimension; zero where there are none."""
    if task.context_mask is None:
        return values.sum(dim=-2) / max(values.shape[-2], 1)
    mask = task.context_mask.view(task.batch_size, *[1] * (values.ndim - 3), -1, 1)
    return torch.where(mask, values, 0.0).sum(dim=-2) / mask.sum(dim=-2).clamp(min=1)
