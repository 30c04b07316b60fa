"""CNP: the conditional neural process with a deep set, a baseline without symmetry."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aenp.likelihoods import Likelihood
from aenp.nn.coordinates import Coordinates, Domain
from aenp.nn.mlp import MLP
from aenp.process import NeuralProcess, Symmetry, Values, masked_mean, with_covariates
from aenp.task import Task


class CNPState(NamedTuple):
    """A context as a CNP represents it."""

    r: Float[Tensor, "batch dim"]


class CNP(NeuralProcess):
    """θ(x) = MLP([r, x, c]) with r = mean_n MLP([x_n, y_n, 1, c_n]), or zero for an empty context; c: covariates.

    Args:
        dim_x: input dimension.
        dim_y: output dimension.
        dim: size of the representation r and of the hidden layers.
        layers: number of hidden layers of the encoder and of the decoder.
        likelihood: a heteroscedastic Normal by default.
        values: how the network sees outputs: `raw`, `centred` or `standardised`, as for `NeuralProcess`.
        domain: the box that positions are scaled to, as for `FixedInputs`; by default they are taken as they are.
        fourier: number of waves for each dimension that are seen beside the position itself.
        dim_covariates: number of covariates of each point, as for `NeuralProcess`.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.CNP(dim_x=2, dim_y=3)
        >>> model(torch.rand(4, 10, 2), torch.randn(4, 10, 3), torch.rand(4, 50, 2)).mean.shape
        torch.Size([4, 50, 3])
    """

    family = "cnp"
    symmetries = ("none",)

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        dim: int = 128,
        layers: int = 3,
        likelihood: Likelihood | None = None,
        values: Values = "raw",
        domain: Domain | None = None,
        fourier: int = 0,
        dim_covariates: int = 0,
    ) -> None:
        super().__init__(dim_x, dim_y, likelihood, values=values, dim_covariates=dim_covariates)
        self.coordinates = Coordinates(dim_x, domain, fourier)
        self.point = MLP(self.coordinates.size + dim_y + 1 + dim_covariates, dim, width=dim, hidden=layers)
        self.head = MLP(dim + self.coordinates.size + dim_covariates, self.num_params, width=dim, hidden=layers)

    @property
    def symmetry(self) -> Symmetry:
        return "none"

    def encode(self, task: Task) -> CNPState:
        y = task.yc.to(self.dtype)
        points = torch.cat([self.coordinates(task.xc, y.dtype), y, torch.ones_like(y[..., :1])], dim=-1)
        return CNPState(masked_mean(self.point(with_covariates(points, task.context_covariates)), task))

    def decode(
        self,
        state: CNPState,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        r = state.r.unsqueeze(1).expand(-1, xt.shape[1], -1)
        return self.head(with_covariates(torch.cat([r, self.coordinates(xt, r.dtype)], dim=-1), covariates))
