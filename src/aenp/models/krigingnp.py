"""KrigingNP: a network reads the kernel off the context, and kriging with that kernel predicts."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from aenp.likelihoods import Likelihood, NormalMixture
from aenp.nn.cells import cells, where_they_count
from aenp.nn.kernels import Kernels
from aenp.nn.matern import SMOOTHNESS
from aenp.nn.mlp import MLP
from aenp.nn.vecchia import logarithms, order, profile, references, spacing, take, traceless
from aenp.process import (
    NeuralProcess,
    at_least_one,
    context_mean,
    masked_mean,
    relative_context,
    with_covariates,
)
from aenp.task import Task

REACH = 7.0
"The largest change by the network of the logarithm of a kernel's parameter."
JITTER, LEAST_NUGGET = 1e-7, 1e-7
ROUND_OFF = 1e-12
"The share of its mean square below which the variance of some values counts as zero."
LEAST_EXTENT = 1e-12
"The share of its distance from zero below which the extent of some places counts as none."
TOGETHER = 4
"Cells that are kriged at a time."
WHOLE = 2
"Contexts of up to so many windows are kriged as a whole, which takes less time than a few cells that overlap."
OFFSETS = (0.0, 2 / 3, 4 / 3)
"Where the borders of the divisions into cells lie, relative to the context's extent."
SHARP = 40
"Number of points from which on references are weighted as if there were no more, so that several keep some weight."


class Components(NamedTuple):
    """The Normals of a mixture, for every target."""

    weight: Float[Tensor, "tasks components target"]
    "In proportion to their probabilities."
    mean: Float[Tensor, "tasks components target"]
    variance: Float[Tensor, "tasks components target"]


class KrigingState(NamedTuple):
    """A context as a KrigingNP represents it; every output is a task of its own, in double precision."""

    anchor: Float[Tensor, "batch 1 dim_x"]
    "The context's mean, from which positions are measured."
    extent: Float[Tensor, "batch 1 1"]
    "The unit of length: the root mean square distance from the anchor."
    x: Float[Tensor, "tasks context dim_x"]
    drift: Float[Tensor, "tasks context regressors"]
    mask: Bool[Tensor, "tasks context"] | None
    "Which points count; None if all do."
    kernels: Kernels
    factor: Float[Tensor, "tasks components context context"]
    "The Cholesky factor of the covariance of the context."
    errors: Float[Tensor, "tasks components context 1"]
    "The context's values relative to what those before them say, in standard deviations."
    shift: Float[Tensor, "tasks 1 1"]
    scale: Float[Tensor, "tasks 1 1"]
    "Mean and standard deviation of the context's values, from which and in which kriging counts."


class KrigingNP(NeuralProcess):
    """Σ_k w_k N(y; kriging of D_c with kernel k), where a network infers weights and kernels from the context.

    The network sees how well each of a fixed set of reference kernels explains the context, by Vecchia's likelihood.
    Lengths are measured in the context's own extent and spacing, so that p(y | s·x, s·D_c) = p(y | x, D_c) for s > 0.
    Values are measured in their standard deviation, of those that are kriged together.
    Each kernel is a sum of Matérn kernels, anisotropic, with a nugget and a linear drift in x and the covariates.
    Contexts larger than two windows are divided into cells, each with the kernels and the kriging of the points nearest
    to its middle, in three ways, and the predictions are mixed.

    Args:
        dim_x: input dimension.
        dim_y: output dimension; outputs are predicted one by one.
        components: number of kernels in the mixture.
        dim: size of the network's hidden layers.
        layers: number of the network's hidden layers.
        window: the number of context points that a cell is kriged from.
        likelihood: a `NormalMixture` with as many components; by default that.
        dim_covariates: number of covariates of each point, as for `NeuralProcess`.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.pretrained("base/krigingnp-exact")
        >>> x = torch.rand(1, 60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> y = torch.sin(3 * x[..., :1]).float()
        >>> prediction = aenp.predict(model, aenp.Task(x[:, :50], y[:, :50], x[:, 50:]))
        >>> bool(((prediction.mean - y[:, 50:]).abs() < 0.05).all())
        True
    """

    family = "krigingnp"
    symmetries = ("exact",)
    likelihood: NormalMixture

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        components: int = 3,
        dim: int = 128,
        layers: int = 3,
        window: int = 256,
        likelihood: Likelihood | None = None,
        dim_covariates: int = 0,
    ) -> None:
        at_least_one(components=components, dim=dim, layers=layers, window=window)
        likelihood = likelihood or NormalMixture(components)
        super().__init__(dim_x, dim_y, likelihood, None, "standardised", dim_covariates)
        if not isinstance(likelihood, NormalMixture) or likelihood.components != components:
            raise ValueError(
                f"likelihood must be NormalMixture({components}), as kriging with {components} kernels predicts; got "
                f"{type(likelihood).__name__}()"
            )
        shapes, stretches = len(SMOOTHNESS), len(traceless(dim_x))
        self.sizes = [shapes, shapes, stretches, 1, 2 + (dim_covariates > 0), 1]
        self.components, self.window = components, window
        seen = 3 * len(references(dim_x)) + 3
        self.network = MLP(seen, components * sum(self.sizes), width=dim, hidden=layers)

    def encode(self, task: Task) -> KrigingState | Task:
        """Kernels and factors of a small context; a large one is left until its targets' cells are known.

        In double precision from the start, so that the round-off of sums does not decide the order of the points.
        """
        numbers = {name: each for name, each in vars(task).items() if each is not None and each.is_floating_point()}
        task = task.unchecked(**{name: each.double() for name, each in numbers.items()})
        return task if task.xc.shape[1] > WHOLE * self.window else self._krige(task)

    def _krige(self, task: Task) -> KrigingState:
        task = task if task.xc.shape[1] else _one_masked_point(task)
        anchor, mask = context_mean(task), _mask(task)
        x, extent = _in_extents(relative_context(task, anchor), mask, anchor)
        y, shift, scale = _standardised(task)
        y, shift, scale = (each.mT.flatten(0, 1) for each in (y, shift, scale))
        x, mask = self._each_output(x), self._each_output(mask)
        covariates = None if task.context_covariates is None else self._each_output(task.context_covariates)
        kernels, drift = self._kernels(x, y, mask, covariates), _drift(x, covariates)
        cov, noise = kernels.own_covariance(x, drift), kernels.nugget.unsqueeze(-1) + JITTER * kernels.prior(drift)
        if task.context_mask is not None:
            cov.mul_((mask.unsqueeze(1) & mask.unsqueeze(2)).unsqueeze(1))
            noise = torch.where(mask.unsqueeze(1), noise, 1.0)
        cov.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor = torch.linalg.cholesky(cov)
        errors = torch.linalg.solve_triangular(factor, y[:, None, :, None].expand(*factor.shape[:3], 1), upper=False)
        seen = None if task.context_mask is None else mask
        return KrigingState(anchor, extent, x, drift, seen, kernels, factor, errors, shift[..., None], scale[..., None])

    def decode(
        self,
        state: KrigingState | Task,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        if isinstance(state, Task):
            given = (xt,) if covariates is None else (xt, covariates)
            return torch.cat([self._by_cells(state[i], *(each[i : i + 1] for each in given)) for i in range(len(xt))])
        return self._raw(self._kriged(state, xt, covariates))

    def _kriged(self, state: KrigingState, xt: Tensor, covariates: Tensor | None = None) -> Components:
        """Kriging with each kernel at the targets."""
        x = self._each_output((xt - state.anchor) / state.extent)
        drift = _drift(x, None if covariates is None else self._each_output(covariates.double()))
        cov = state.kernels.covariance(state.x, state.drift, x, drift)
        cov = cov if state.mask is None else cov.mul_(state.mask[:, None, :, None])
        weights = torch.linalg.solve_triangular(state.factor, cov, upper=False)
        mean = state.shift + state.scale * (weights * state.errors).sum(dim=2)
        variance = state.kernels.prior(drift) - weights.square().sum(dim=2)
        variance = state.scale.square() * torch.maximum(variance, state.kernels.nugget.unsqueeze(-1))
        return Components(state.kernels.logits.softmax(dim=1).unsqueeze(-1).expand_as(mean), mean, variance)

    def _raw(self, found: Components) -> Float[Tensor, "batch target params"]:
        """The raw parameters of a mixture for each output."""
        raw = self.likelihood.raw(*(each.mT for each in (found.weight.log(), found.mean, found.variance.sqrt())))
        return raw.unflatten(0, (-1, self.dim_y)).transpose(1, 2).flatten(2).to(self.network.dtype)

    def _by_cells(self, task: Task, *at_targets: Tensor) -> Float[Tensor, "1 target params"]:
        """The raw parameters at the targets of one task, by kriging in each one's cells, some cells at a time.

        Several divisions have borders elsewhere. Each component has the mean and variance of its mixture over these,
        weighted by how far the target is from the border: μ = Σ_i w_i μ_i, σ² = Σ_i w_i σ_i² + (Σ_i w_i μ_i² − μ²).
        """
        numbers, xt, anchor = _mask(task)[0].nonzero()[:, 0], at_targets[0], context_mean(task)[0]
        if len(numbers) <= WHOLE * self.window:
            return self.decode(self._krige(_some_context(task, numbers[None])), *at_targets)
        points, places, values = task.xc[0, numbers] - anchor, xt[0] - anchor, task.yc[0, numbers].tanh().mean(dim=1)
        found = where_they_count(list(cells(points, places, self.window, OFFSETS, values)), len(places))
        found = sorted(found, key=lambda cell: len(cell.members))
        sums = xt.new_zeros(4, self.dim_y, self.components, xt.shape[1], dtype=torch.float64)
        for start in range(0, len(found), TOGETHER):
            some = found[start : start + TOGETHER]
            filled = pad_sequence([cell.members for cell in some], batch_first=True)
            state = self._krige(_some_context(task, numbers[torch.stack([cell.near for cell in some])]))
            weight, mean, variance = self._kriged(state, *(each[0, filled] for each in at_targets))
            moments = weight * torch.stack([torch.ones_like(mean), mean, mean.square(), variance])
            for cell, inside in zip(some, moments.unflatten(1, (-1, self.dim_y)).unbind(1), strict=True):
                sums[..., cell.members] += cell.weights * inside[..., : len(cell.members)]
        mean, square, variance = sums[1:] / sums[0]
        between = (square - mean.square()).clamp(min=0)  # round-off may be more than the variance of a flat part
        return self._raw(Components(sums[0], mean, variance + between))

    def _each_output(self, values: Shaped[Tensor, "batch points *dim"]) -> Shaped[Tensor, "tasks points *dim"]:
        """The same values for each output."""
        return values if self.dim_y == 1 else values.repeat_interleave(self.dim_y, dim=0)

    def _kernels(self, x: Tensor, y: Tensor, mask: Tensor, covariates: Tensor | None) -> Kernels:
        """The mean parameters of the references, weighted by their likelihood, as the network corrects them.

        Of more than a window of points, some as good as random tell the kernels.
        """
        if x.shape[1] > self.window:
            some = order(x / spacing(x, mask)[:, None, None], y, mask).argsort(dim=1)[:, : self.window]
            x, y, mask = take(x, some), y.take_along_dim(some, 1), mask.take_along_dim(some, 1)
            covariates = None if covariates is None else take(covariates, some)
        unit = spacing(x, mask)
        logliks, scales = profile(x / unit[:, None, None], y, mask, covariates)
        count, best = mask.sum(dim=1, keepdim=True), logliks.amax(dim=1, keepdim=True)
        weights = (count.clamp(max=SHARP) * logliks).softmax(dim=1)
        features = [
            (30 * (best - logliks)).log1p() / 3,
            weights,
            scales / 4,
            best / 2,
            count.clamp(min=1).log() / 4,
            unit.log().unsqueeze(1) / 2,
        ]
        seen = torch.cat(features, dim=1).to(self.network.dtype)
        out = self.network(seen).double().unflatten(1, (self.components, -1))
        variance, length, stretch, nugget, drift, logits = (REACH * (out / REACH).tanh()).split(self.sizes, dim=2)
        bank = torch.from_numpy(logarithms(self.dim_x)).to(x)
        likely_length, likely_nugget = (weights @ bank).T[..., None, None]
        likely_variance = (weights * scales).sum(dim=1)[:, None, None]
        directions = torch.from_numpy(traceless(self.dim_x)).to(out)
        spread = torch.linspace(-1, 1, self.components).to(out).unsqueeze(-1)
        regressors = [0] + [1] * self.dim_x + [2] * self.dim_covariates
        return Kernels(
            variance=(likely_variance + variance).exp() / len(SMOOTHNESS),
            lengthscale=(likely_length + length + spread).exp() * unit[:, None, None],
            stretch=_exponential((stretch / 2 @ directions.flatten(1)).unflatten(2, directions.shape[1:])),
            nugget=(likely_variance + likely_nugget + nugget).exp()[..., 0].clamp(min=LEAST_NUGGET),
            drift=drift.exp()[..., regressors],
            logits=logits[..., 0],
        )


def is_constant(values: Shaped[ndarray, " points"]) -> bool:
    """Whether the values differ by no more than the round-off of their own type."""
    precision = np.finfo(values.dtype if values.dtype.kind == "f" else float).eps
    return bool(np.ptp(values.astype(float)) <= 8 * precision * np.abs(values).max())


def scale_of(values: Shaped[ndarray, " points"]) -> float:
    """The values' standard deviation or, if they are constant, their magnitude, so that it has their unit in any case.

    Zeros alone tell no scale, and have that of one.
    """
    return float(np.abs(values).max() or 1.0) if is_constant(values) else float(values.astype(float).std())


def _mask(task: Task) -> Bool[Tensor, "batch context"]:
    """Which context points count."""
    return torch.ones_like(task.xc[..., 0], dtype=torch.bool) if task.context_mask is None else task.context_mask


def _in_extents(
    x: Float[Tensor, "batch context dim_x"],
    mask: Bool[Tensor, "batch context"],
    anchor: Float[Tensor, "batch 1 dim_x"],
) -> tuple[Float[Tensor, "batch context dim_x"], Float[Tensor, "batch 1 1"]]:
    """Places in units of their root mean square, and that; places without extent stay as they are.

    What they differ by from `anchor`, their mean, may be its round-off alone.
    """
    square = x.square().sum(dim=(1, 2), keepdim=True) / mask.sum(dim=1).clamp(min=1)[:, None, None]
    round_off = (LEAST_EXTENT * anchor).square().sum(dim=2, keepdim=True)
    extent = torch.where(square > round_off, square, 1.0).sqrt()
    return x / extent, extent


def _standardised(task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """The context's values, zero where masked, with the mean and deviation that they count in."""
    y = task.yc
    shift = masked_mean(y, task).unsqueeze(1)
    square = masked_mean((y - shift).square(), task).unsqueeze(1)
    scale = torch.where(square > ROUND_OFF * masked_mean(y.square(), task).unsqueeze(1), square, 1.0).sqrt()
    return (y - shift) / scale * _mask(task).unsqueeze(-1), shift, scale


def _exponential(a: Float[Tensor, "*batch dim_x dim_x"]) -> Float[Tensor, "*batch dim_x dim_x"]:
    """exp(A) for symmetric A of trace zero; in the plane A² = λ² I, so that exp(A) = cosh(λ) I + sinh(λ) / λ · A."""
    if a.shape[-1] != 2:
        return torch.linalg.matrix_exp(a)
    size = a[..., :1, :].norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return size.cosh() * torch.eye(2, dtype=a.dtype, device=a.device) + size.sinh() / size * a


def _drift(x: Tensor, covariates: Tensor | None) -> Float[Tensor, "tasks points regressors"]:
    """One, the coordinates and the covariates of each point."""
    return with_covariates(torch.cat([torch.ones_like(x[..., :1]), x], dim=-1), covariates)


def _some_context(task: Task, numbers: Int[Tensor, "cells points"]) -> Task:
    """A task for each cell, with the context points of these numbers."""
    at_context, at_targets = task.context_covariates, task.target_covariates
    some = None if at_context is None else at_context[0, numbers]
    none = None if at_targets is None else at_targets.expand(len(numbers), -1, -1)
    return Task(
        task.xc[0, numbers], task.yc[0, numbers], task.xt.expand(len(numbers), -1, -1), None, None, None, some, none
    )


def _one_masked_point(task: Task) -> Task:
    """The same empty context with a place for a point, so that no array is empty."""
    values = {name: getattr(task, name) for name in ("xc", "yc", "context_covariates")}
    padded = {name: pad(value, [0, 0, 0, 1]) for name, value in values.items() if value is not None}
    return replace(
        task, **padded, context_mask=torch.zeros(task.batch_size, 1, dtype=torch.bool, device=task.xc.device)
    )
