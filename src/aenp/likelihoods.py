"""Likelihoods: from a model's raw outputs to a distribution over y."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Categorical,
    ComposeTransform,
    Distribution,
    PowerTransform,
    SigmoidTransform,
    TransformedDistribution,
)
from torch.distributions import Normal as TorchNormal
from torch.nn.functional import softplus

from aenp.checks import check_floating
from aenp.configured import Configured
from aenp.distributions import CensoredNormal, Contaminated, Mixture

FAULTS = (1.0, 8.0, 64.0)
"Sizes of faults in multiples of the usual one: on this scale the logarithm of their density falls ever more slowly."
MARGIN = 0.05
"How far a logistic curve reaches beyond the bounds of a quantity at either end, as a share of its own height."


class Unit(NamedTuple):
    """What a task's outputs are counted from and in: y = shift + scale · (y as the network sees it)."""

    shift: Float[Tensor, "batch 1 dim_y"]
    scale: Float[Tensor, "batch 1 dim_y"]


class Likelihood(Configured, ABC):
    """Turns `num_params` raw numbers for each output into a distribution, elementwise over `(batch, points, dim_y)`.

    Args:
        min_scale: the smallest standard deviation, a floor that keeps the log-likelihood bounded.
    """

    num_params: int
    relative: ClassVar[bool] = True
    "Whether outputs may be counted from the mean of a task's context, and in its standard deviation."
    mutable = ("min_scale",)

    def __init__(self, min_scale: float = 1e-3) -> None:
        if not 0 < min_scale < math.inf:
            raise ValueError(f"min_scale must be positive and finite; got {min_scale}")
        self.min_scale = min_scale

    def __call__(self, raw: Float[Tensor, "batch points params"], unit: Unit | None = None) -> Distribution:
        check_floating(raw=raw)
        if raw.ndim == 0 or raw.shape[-1] == 0 or raw.shape[-1] % self.num_params:
            raise ValueError(
                f"raw must have {self.num_params} numbers for each output in its last dimension; "
                f"got a tensor of shape {tuple(raw.shape)}"
            )
        # Half precision is enough for a network, but not for squares and logarithms.
        raw = raw.to(torch.promote_types(raw.dtype, torch.float32))
        distribution = self.distribution(raw.unflatten(-1, (-1, self.num_params)))
        return distribution if unit is None else in_unit(distribution, *(value.to(raw.dtype) for value in unit))

    @abstractmethod
    def distribution(self, raw: Float[Tensor, "batch points dim_y {self.num_params}"]) -> Distribution:
        """The distribution, given the raw numbers of each output."""

    def _scale(self, raw: Tensor) -> Tensor:
        return self.min_scale + softplus(raw)


class Normal(Likelihood):
    """N(y; μ, (min_scale + softplus(ρ))²), with mean and scale for each point.

    Example:
        >>> import torch
        >>> import aenp
        >>> prediction = aenp.Normal(min_scale=0.5)(torch.zeros(2, 7, 6))  # 3 outputs with 2 raw numbers each
        >>> prediction.mean.shape, bool((prediction.stddev > 0.5).all())
        (torch.Size([2, 7, 3]), True)
    """

    num_params = 2

    def distribution(self, raw: Float[Tensor, "batch points dim_y 2"]) -> TorchNormal:
        return TorchNormal(raw[..., 0], self._scale(raw[..., 1]), validate_args=False)


class Robust(Likelihood):
    """(1 − ε) N(y; μ, σ²) + ε Σ_k w_k N(y; μ, σ² + φ_k²), for measurements, of which a share ε is faulty.

    A Normal would have to be wide everywhere for the sake of a few stations whose values are far off. Most faults are
    of a size φ, some of 8 φ and few of 64 φ, with w_k proportional to 1 / φ_k. Moments and samples are of measurements
    that are not faulty, densities and quantiles of all.

    Args:
        share: the share ε of faulty measurements.
        fault: the standard deviation φ of what is wrong with most of them, in the unit of the outputs.
        min_scale: the smallest standard deviation σ of the others.

    Example:
        >>> import torch
        >>> import aenp
        >>> zeros, far = torch.zeros(1, 1, 2), torch.full((1, 1, 1), 15.0)
        >>> [round(each(zeros).log_prob(far).item()) for each in (aenp.Normal(), aenp.Robust(share=0.01, fault=10.0))]
        [-234, -9]
    """

    num_params = 2

    def __init__(self, share: float = 0.01, fault: float = 1.0, min_scale: float = 1e-3) -> None:
        super().__init__(min_scale)
        if not 0 < share < 1:
            raise ValueError(f"share, of faulty measurements, must be between 0 and 1; got {share}")
        if not 0 < fault < math.inf:
            raise ValueError(f"fault, a standard deviation, must be positive and finite; got {fault}")
        self.share, self.fault = share, fault

    def distribution(self, raw: Float[Tensor, "batch points dim_y 2"]) -> Contaminated:
        mean, scale = raw[..., 0], self._scale(raw[..., 1])
        sizes = raw.new_tensor(FAULTS)
        scales = (scale.square().unsqueeze(-1) + (self.fault * sizes).square()).sqrt()
        scales = torch.cat([scale.unsqueeze(-1), scales], dim=-1)
        rarities = self.share / sizes / (1 / sizes).sum()
        weights = torch.cat([rarities.new_tensor([1 - self.share]), rarities]).expand_as(scales)
        normals = TorchNormal(mean.unsqueeze(-1).expand_as(scales), scales, validate_args=False)
        return Contaminated(Categorical(weights, validate_args=False), normals, validate_args=False)


class NormalMixture(Likelihood):
    """Σ_k w_k N(y; μ_k, σ_k²), for what one Normal cannot express: several modes, heavy tails.

    Args:
        components: number K of Normals.
        min_scale: the smallest standard deviation of a component.

    Example:
        >>> import torch
        >>> import aenp
        >>> prediction = aenp.NormalMixture(components=2)(torch.zeros(1, 5, 6))  # 3 raw numbers a component
        >>> prediction.log_prob(torch.zeros(1, 5, 1)).shape
        torch.Size([1, 5, 1])
    """

    def __init__(self, components: int = 3, min_scale: float = 1e-3) -> None:
        super().__init__(min_scale)
        if components < 1:
            raise ValueError(f"a mixture needs at least one component; got {components}")
        self.components, self.num_params = components, 3 * components

    def distribution(self, raw: Float[Tensor, "batch points dim_y params"]) -> Mixture:
        weights, means, scales = raw.unflatten(-1, (3, self.components)).unbind(-2)
        normals = TorchNormal(means + self._offsets(means), self._scale(scales), validate_args=False)
        return Mixture(Categorical(logits=weights, validate_args=False), normals, validate_args=False)

    def raw(
        self,
        logits: Float[Tensor, "batch points components"],
        means: Float[Tensor, "batch points components"],
        scales: Float[Tensor, "batch points components"],
    ) -> Float[Tensor, "batch points params"]:
        """The raw numbers of a mixture of one output with these weights, means and standard deviations."""
        above = (scales - self.min_scale).clamp(min=1e-9)
        return torch.cat([logits, means - self._offsets(means), above + (-torch.expm1(-above)).log()], dim=-1)

    def _offsets(self, like: Tensor) -> Float[Tensor, " components"]:
        """Fixed, distinct offsets of the means: components that start out equal would stay equal."""
        return torch.linspace(-1, 1, self.components + 2).to(like)[1:-1]


class NonNegative(Likelihood):
    """y = z + z²/2 where z > 0 and else 0, with z ~ N(μ, σ²), for what is often exactly zero: precipitation, smoke.

    Zero has the probability Φ(−μ/σ). Above, y grows like z where it is small and like z² where it is large, so that its
    tail is as long as a Gamma's, while its density stays bounded at small values. Outputs must not be negative, and be
    scaled so that typical ones are near 1; the network sees them as they are, `values="raw"`.

    Args:
        min_scale: the smallest standard deviation σ.

    Example:
        >>> import torch
        >>> import aenp
        >>> rain = aenp.NonNegative()(torch.zeros(1, 5, 2))  # μ = 0: dry with probability ½
        >>> round(rain.cdf(torch.tensor(0.0)).mean().item(), 3), bool((rain.sample() >= 0).all())
        (0.5, True)
    """

    num_params = 2
    relative = False
    transform = ComposeTransform(
        [AffineTransform(1.0, 1.0), PowerTransform(torch.tensor(2.0)), AffineTransform(-0.5, 0.5)]
    )

    def distribution(self, raw: Float[Tensor, "batch points dim_y 2"]) -> CensoredNormal:
        return CensoredNormal(raw[..., 0], self._scale(raw[..., 1]), self.transform, 0.0)


class Bounded(Likelihood):
    """y = low + (high − low) · s(z) with z ~ N(μ, σ²), for what has two bounds: relative humidity, cloud cover.

    s is a logistic curve that reaches 5 % beyond 0 and 1 and is cut there. So both bounds have probabilities of their
    own, and values exactly at them, such as a clear sky, are no limiting case. The network sees outputs as they are,
    `values="raw"`.

    Args:
        low: the smallest possible value.
        high: the largest.
        min_scale: the smallest standard deviation σ.

    Example:
        >>> import torch
        >>> import aenp
        >>> humidity = aenp.Bounded(0, 100)(torch.zeros(1, 5, 2))
        >>> sample = humidity.sample((1000,))
        >>> round(humidity.icdf(torch.tensor(0.5)).mean().item()), bool(((sample >= 0) & (sample <= 100)).all())
        (50, True)
    """

    num_params = 2
    relative = False

    def __init__(self, low: float = 0.0, high: float = 1.0, min_scale: float = 1e-3) -> None:
        super().__init__(min_scale)
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"low and high must be finite and low < high; got {low} and {high}")
        self.low, self.high = low, high
        height = (high - low) * (1 + 2 * MARGIN)
        self.transform = ComposeTransform([SigmoidTransform(), AffineTransform(low - MARGIN * (high - low), height)])

    def distribution(self, raw: Float[Tensor, "batch points dim_y 2"]) -> CensoredNormal:
        return CensoredNormal(raw[..., 0], self._scale(raw[..., 1]), self.transform, self.low, self.high)


def in_unit(distribution: Distribution, shift: Tensor, scale: Tensor) -> Distribution:
    """The distribution of shift + scale · y, for y from `distribution`."""
    if isinstance(distribution, TorchNormal):
        return TorchNormal(shift + scale * distribution.mean, scale * distribution.stddev, validate_args=False)
    if isinstance(distribution, Mixture):
        components = in_unit(distribution.component_distribution, shift.unsqueeze(-1), scale.unsqueeze(-1))
        return type(distribution)(distribution.mixture_distribution, components, validate_args=False)
    return TransformedDistribution(distribution, AffineTransform(shift, scale), validate_args=False)


def widened(distribution: Distribution, factor: float) -> Distribution:
    """The distribution with deviations from its mean scaled by a factor."""
    if factor == 1:
        return distribution
    return in_unit(distribution, (1 - factor) * distribution.mean, torch.tensor(factor))


def blurred(distribution: Distribution, std: Tensor) -> Distribution:
    """The distribution of y + e, for y from Normals or a mixture of them and an error e ~ N(0, std²)."""
    if isinstance(distribution, Mixture):
        components = blurred(distribution.component_distribution, std.unsqueeze(-1))
        return type(distribution)(distribution.mixture_distribution, components, validate_args=False)
    return TorchNormal(distribution.mean, torch.hypot(distribution.stddev, std), validate_args=False)
