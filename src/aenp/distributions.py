"""Distributions that torch lacks: a transformed Normal with mass at its bounds, and mixtures with quantiles."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from numpy.polynomial.legendre import leggauss
from torch import Tensor
from torch.distributions import Distribution, MixtureSameFamily, Normal, Transform
from torch.special import log_ndtr, ndtr, ndtri
from torch.types import _size

TAIL = 8.0
"Standard deviations from the mean beyond which a Normal has no mass that float32 could tell from zero."
HALVINGS = 64
"Steps of a bisection, after which an interval has the width of round-off."


def quadrature(like: Tensor) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes in (0, 1) and weights of a Gauss–Legendre rule, with which integrals of smooth functions are sums."""
    nodes, weights = (torch.from_numpy(values).to(like) / 2 for values in leggauss(48))
    return nodes + 0.5, weights


class CensoredNormal(Distribution):
    """Y = g(Z) with Z ~ N(loc, scale²), but `low` where Z < g⁻¹(low), and `high` where Z > g⁻¹(high).

    So the bounds have mass, P(Y = low) = P(Z ≤ g⁻¹(low)), and between them there is a density; `log_prob` is the
    logarithm of the one or the other, and −∞ beyond the bounds.

    Args:
        loc: mean of Z.
        scale: standard deviation of Z.
        transform: g, which increases between the bounds, with a finite slope at them.
        low: the smallest value.
        high: the largest value, which may be infinite.
    """

    has_rsample = True
    arg_constraints = {}  # noqa: RUF012

    def __init__(self, loc: Tensor, scale: Tensor, transform: Transform, low: float, high: float = math.inf) -> None:
        self.loc, self.scale, self.transform, self.low, self.high = loc, scale, transform, low, high
        self.edges = [transform.inv(loc.new_tensor(bound)) for bound in (low, high)]
        self.bounds = [(edge - loc) / scale for edge in self.edges]
        if not math.isfinite(high):  # must not depend on loc and scale, or their gradients would be NaN
            self.bounds[1] = torch.full_like(loc, math.inf)
        super().__init__(loc.shape, validate_args=False)

    def expand(self, batch_shape: _size, _instance: Distribution | None = None) -> "CensoredNormal":
        loc, scale = (each.expand(batch_shape) for each in (self.loc, self.scale))
        return CensoredNormal(loc, scale, self.transform, self.low, self.high)

    def log_prob(self, value: Tensor) -> Tensor:
        y = value.clamp(self.low, self.high)
        z = self.transform.inv(y)
        density = Normal(self.loc, self.scale, validate_args=False).log_prob(z)
        result = density - self.transform.log_abs_det_jacobian(z, y)
        result = torch.where(y <= self.low, log_ndtr(self.bounds[0]), result)
        if math.isfinite(self.high):
            result = torch.where(y >= self.high, log_ndtr(-self.bounds[1]), result)
        return torch.where((value < self.low) | (value > self.high), -torch.inf, result)

    def cdf(self, value: Tensor) -> Tensor:
        """P(Y ≤ value)."""
        below = torch.where(value < self.low, 0.0, self._normal_cdf(value))
        return torch.where(value >= self.high, 1.0, below)

    def cdf_below(self, value: Tensor) -> Tensor:
        """P(Y < value), which is less than the cdf at a bound."""
        below = torch.where(value <= self.low, 0.0, self._normal_cdf(value))
        return torch.where(value > self.high, 1.0, below)

    def _normal_cdf(self, value: Tensor) -> Tensor:
        return ndtr((self.transform.inv(value.clamp(self.low, self.high)) - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        """The smallest y with P(Y ≤ y) of at least `value`."""
        return self._from_standard(ndtri(value))

    def rsample(self, sample_shape: _size = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        return self._from_standard(torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device))

    def _from_standard(self, u: Tensor) -> Tensor:
        """Y where (Z − loc) / scale is `u`."""
        z, (first, last) = self.loc + self.scale * u, self.edges
        y = torch.where(z <= first, self.low, self.transform(z.clamp(first, last)))
        return torch.where(z >= last, self.high, y)

    @property
    def mean(self) -> Tensor:
        return self._expectation(lambda y: y)

    @property
    def variance(self) -> Tensor:
        mean = self.mean
        return self._expectation(lambda y: (y - mean).square())

    def _expectation(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """E f(Y): the mass at each bound, and an integral over Z between them."""
        nodes, weights = (each.view(-1, *[1] * self.loc.ndim) for each in quadrature(self.loc))
        first, last = (torch.full_like(self.loc, tail).clamp(*self.bounds) for tail in (-TAIL, TAIL))
        u = first + (last - first) * nodes
        density = (-0.5 * u.square()).exp() / math.sqrt(2 * math.pi)
        result = (last - first) * (weights * density * function(self._from_standard(u))).sum(0)
        result = result + function(torch.full_like(self.loc, self.low)) * ndtr(self.bounds[0])
        if math.isfinite(self.high):
            result = result + function(torch.full_like(self.loc, self.high)) * ndtr(-self.bounds[1])
        return result


class Mixture(MixtureSameFamily):
    """Σ_k w_k p_k(y), with quantiles."""

    def icdf(self, value: Tensor) -> Tensor:
        """The y with P(Y ≤ y) = value, by bisection between the smallest and largest such y of the components."""
        quantiles = self.component_distribution.icdf(value.unsqueeze(-1))
        low, high = quantiles.amin(-1), quantiles.amax(-1)
        for _ in range(HALVINGS):
            middle = low / 2 + high / 2
            below = self.cdf(middle) < value
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high


class Contaminated(Mixture):
    """A mixture of what is meant, its first component, and of what may be there instead.

    Densities and quantiles are those of the mixture, mean, variance and samples those of what is meant.
    """

    @property
    def mean(self) -> Tensor:
        return self.component_distribution.mean[..., 0]

    @property
    def variance(self) -> Tensor:
        return self.component_distribution.variance[..., 0]

    def sample(self, sample_shape: _size = ()) -> Tensor:
        return self.component_distribution.sample(sample_shape)[..., 0]
