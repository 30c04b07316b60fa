"""Tasks from a Gaussian process with the Gibbs kernel, whose lengthscale changes at x = 0: the paper's section 5.1."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aenp.task import Task


def gibbs(
    x1: Float[Tensor, "*#batch n"],
    l1: Float[Tensor, "*#batch n"],
    x2: Float[Tensor, "*#batch m"],
    l2: Float[Tensor, "*#batch m"],
) -> Float[Tensor, "*batch n m"]:
    """k(x, x') = √(2 l l' / (l² + l'²)) exp(−(x − x')² / (l² + l'²)), with the lengthscales l = l(x) and l' = l(x')."""
    x1, l1, x2, l2 = x1[..., None], l1[..., None], x2[..., None, :], l2[..., None, :]
    scale = l1**2 + l2**2
    # In place, and no smaller than e⁻³⁰: memory and denormal numbers, not arithmetic, take the time.
    return ((x1 - x2) ** 2 / -scale).clamp_(min=-30).exp_().mul_((2 * l1 * l2).div_(scale).sqrt_())


@dataclass(frozen=True)
class GibbsTasks:
    """y = f(x) + ε with f ~ GP(0, k), k the Gibbs kernel, and ε ~ N(0, noise²), in context and targets alike.

    The lengthscale is short on one side of x = 0 and long on the other, at random for each task. Context inputs
    are uniform in an interval, targets in the same interval with a margin on both sides.

    Args:
        centre: range of the centre of a task's interval; the paper's out-of-distribution tasks have (13, 27).
        width: length of the interval.
        margin: how much further targets reach on either side.
        num_context: smallest and largest number of context points.
        equal_sizes: draw one number of context points for the whole batch; otherwise each task has its own, and smaller
            sets are padded. For training: a batch without padding costs about half, and its gradient is hardly noisier.
        num_targets: number of targets.
        lengthscales: the short one and the long one.
        noise: standard deviation of the noise.

    Example:
        >>> from aenp.data import GibbsTasks
        >>> task = GibbsTasks(num_context=(5, 5), num_targets=50).batch(batch_size=2, index=0, seed=0)
        >>> task.xc.shape, task.xt.shape
        (torch.Size([2, 5, 1]), torch.Size([2, 50, 1]))
    """

    centre: tuple[float, float] = (-7.0, 7.0)
    width: float = 4.0
    margin: float = 1.0
    num_context: tuple[int, int] = (1, 64)
    equal_sizes: bool = False
    num_targets: int = 128
    lengthscales: tuple[float, float] = (0.1, 4.0)
    noise: float = 0.2

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        """Batch number `index` of the stream `seed`, a function of these arguments alone."""
        return self.batch_with_truth(batch_size, index, seed)[0]

    def batch_with_truth(self, batch_size: int, index: int, seed: int) -> tuple[Task, Bool[Tensor, " batch"]]:
        """The same batch, and for each task whether the short lengthscale is on the left, x < 0."""
        rng = np.random.default_rng((seed, index))
        short_left = torch.from_numpy(rng.random(batch_size) < 0.5)
        draws = 1 if self.equal_sizes else batch_size
        count = torch.from_numpy(rng.integers(*self.num_context, size=draws, endpoint=True)).expand(batch_size)
        largest = int(count.max())
        reach = np.full(largest + self.num_targets, self.width / 2)
        reach[largest:] += self.margin
        centre = rng.uniform(*self.centre, size=(batch_size, 1))
        x = torch.from_numpy(rng.uniform(centre - reach, centre + reach).astype(np.float32))
        y = self.sample(x, short_left, torch.from_numpy(rng.standard_normal(x.shape, dtype=np.float32)))
        (xc, xt), (yc, yt) = (values[..., None].split([largest, self.num_targets], dim=1) for values in (x, y))
        return Task(xc, yc, xt, yt, context_mask=torch.arange(largest) < count[:, None]), short_left

    def sample(
        self, x: Float[Tensor, "batch n"], short_left: Bool[Tensor, " batch"], normals: Float[Tensor, "batch n"]
    ) -> Float[Tensor, "batch n"]:
        """y = L ε with L Lᵀ = k(x, x) + noise² I, which the noise makes well-conditioned in float32."""
        scale = self.lengthscale(x < 0, short_left[:, None]).to(x)
        covariance = gibbs(x, scale, x, scale)
        covariance.diagonal(dim1=-2, dim2=-1).add_(self.noise**2)
        return (torch.linalg.cholesky(covariance) @ normals[..., None]).squeeze(-1)

    def lengthscale(
        self, left: Bool[Tensor, "*#batch"], short_left: Bool[Tensor, "*#batch"]
    ) -> Float[Tensor, "*batch"]:
        """l(x) in float64, of points that lie `left` of the change point or not."""
        return torch.tensor(self.lengthscales, dtype=torch.float64)[(left != short_left).long()]
