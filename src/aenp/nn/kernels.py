"""A mixture of kernels, each a sum of Matérn kernels, anisotropic, with a nugget and a linear drift."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aenp.nn import compiled
from aenp.nn.matern import SMOOTHNESS, matern
from aenp.nn.vecchia import distances

BLOCK = 2**16
"Covariances that are computed at a time, few enough for a processor's cache."


class Kernels(NamedTuple):
    """The kernels of a mixture, in units of the values' variance and of the extent of the context."""

    variance: Float[Tensor, "batch components shapes"]
    lengthscale: Float[Tensor, "batch components shapes"]
    stretch: Float[Tensor, "batch components dim_x dim_x"]
    "The map of places under which the kernel is isotropic."
    nugget: Float[Tensor, "batch components"]
    drift: Float[Tensor, "batch components regressors"]
    "Variances of the coefficients of one, the coordinates and the covariates."
    logits: Float[Tensor, "batch components"]

    def covariance(
        self,
        x1: Float[Tensor, "batch n dim_x"],
        drift1: Float[Tensor, "batch n regressors"],
        x2: Float[Tensor, "batch m dim_x"],
        drift2: Float[Tensor, "batch m regressors"],
    ) -> Float[Tensor, "batch components n m"]:
        """The covariance of the field between two sets of points, without nugget."""
        if compiled.usable(x1):
            return self._compiled(x1, drift1, x2, drift2)
        moved1, moved2 = (x.unsqueeze(1) @ self.stretch for x in (x1, x2))
        weighted = drift1.unsqueeze(1) * self.drift.unsqueeze(2)
        rows = max(1, BLOCK // (x2.shape[1] * self.nugget.numel()))
        parts = zip(moved1.split(rows, dim=2), weighted.split(rows, dim=2), strict=True)
        blocks = [self._covariance(*part, moved2, drift2.unsqueeze(1)) for part in parts]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)

    def own_covariance(
        self, x: Float[Tensor, "batch n dim_x"], drift: Float[Tensor, "batch n regressors"]
    ) -> Float[Tensor, "batch components n n"]:
        """The same of one set of points; what a factor does not read, above the diagonal, may be missing."""
        if compiled.usable(x):
            return self._compiled(x, drift, x, drift, triangle=True)
        count = x.shape[1]
        rows = max(1, BLOCK // (count * self.nugget.numel()))
        if rows >= count or torch.is_grad_enabled():  # the gradient of each block would be a copy of everything
            return self.covariance(x, drift, x, drift)
        moved = x.unsqueeze(1) @ self.stretch
        weighted, drift = drift.unsqueeze(1) * self.drift.unsqueeze(2), drift.unsqueeze(1)
        cov = x.new_zeros(*self.nugget.shape, count, count)
        for start in range(0, count, rows):
            these, until = slice(start, start + rows), slice(start + rows)
            part = self._covariance(moved[:, :, these], weighted[:, :, these], moved[:, :, until], drift[:, :, until])
            cov[:, :, these, until] = part
        return cov

    def _compiled(
        self,
        x1: Float[Tensor, "batch n dim_x"],
        drift1: Float[Tensor, "batch n regressors"],
        x2: Float[Tensor, "batch m dim_x"],
        drift2: Float[Tensor, "batch m regressors"],
        triangle: bool = False,
    ) -> Float[Tensor, "batch components n m"]:
        """The same in less time, but without gradients; of a triangle not what is above the diagonal."""
        cov = (drift1.unsqueeze(1) * self.drift.unsqueeze(2)) @ drift2.unsqueeze(1).mT
        moved1, moved2 = (x.unsqueeze(1) @ self.stretch for x in (x1, x2))
        compiled.add_covariances(cov, moved1, moved2, SMOOTHNESS, self.variance, self.lengthscale, triangle)
        return cov

    def _covariance(
        self,
        x1: Float[Tensor, "batch components n dim_x"],
        drift1: Float[Tensor, "batch components n regressors"],
        x2: Float[Tensor, "batch components m dim_x"],
        drift2: Float[Tensor, "batch 1 m regressors"],
    ) -> Float[Tensor, "batch components n m"]:
        """The same for places where the kernel is isotropic, and the first drift times its coefficients' variances."""
        r, cov = distances(x1, x2), drift1 @ drift2.mT
        scales, variances = (each[..., None, None].unbind(2) for each in (self.lengthscale, self.variance))
        for smoothness, scale, variance in zip(SMOOTHNESS, scales, variances, strict=True):
            cov.addcmul_(matern(r, smoothness, scale), variance)
        return cov

    def prior(self, drift: Float[Tensor, "batch n regressors"]) -> Float[Tensor, "batch components n"]:
        """The variance of an observation at each point, before any other is known."""
        own = drift.square() @ self.drift.mT
        return own.mT + (self.variance.sum(dim=-1) + self.nugget).unsqueeze(-1)
