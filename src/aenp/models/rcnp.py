"""RCNP: relational conditional neural processes, which see points only through their relations."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from aenp.fixed_inputs import FixedInputs, Injection
from aenp.likelihoods import Likelihood
from aenp.nn.mlp import MLP
from aenp.process import NeuralProcess, Values, context_mean, masked_mean, relative_context, with_covariates
from aenp.task import Task


class RCNPState(NamedTuple):
    """A context as an RCNP represents it."""

    anchor: Float[Tensor, "batch 1 dim_x"]
    "The context's mean, from which positions are measured."
    x: Float[Tensor, "batch context dim_x"]
    r: Float[Tensor, "batch context dim"]
    "What each point knows about the others."
    task: Task


class RCNP(NeuralProcess):
    """θ(x) = MLP(mean_n MLP([g(x, x_n), r_n])) with r_n = mean_m MLP([g(x_n, x_m), z_n, z_m]), z_n = MLP(y_n).

    The relation g(x, x') is the difference x − x' (translations) or the distance |x − x'| (rigid motions). With
    `fixed_inputs`, z_n = MLP(y_n) + W t(x_n). Covariates stand beside y_n in z_n, and beside the mean in θ.

    Args:
        dim_x: input dimension.
        dim_y: output dimension.
        relation: `difference` or `distance`.
        dim: size of the hidden layers and of the representations.
        fixed_inputs: t(x), which makes the model approximately equivariant.
        likelihood: a heteroscedastic Normal by default.
        values: how the network sees outputs: `raw`, `centred` or `standardised`, as for `NeuralProcess`.
        dim_covariates: number of covariates of each point, as for `NeuralProcess`.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.RCNP(dim_x=2, dim_y=1, relation="distance")
        >>> model.label, model(torch.rand(4, 10, 2), torch.randn(4, 10, 1), torch.rand(4, 50, 2)).mean.shape
        ('RCNP (E)', torch.Size([4, 50, 1]))
    """

    family = "rcnp"
    symmetries = ("exact", "approx")

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        relation: Literal["difference", "distance"] = "difference",
        dim: int = 64,
        fixed_inputs: FixedInputs | None = None,
        likelihood: Likelihood | None = None,
        values: Values = "raw",
        dim_covariates: int = 0,
    ) -> None:
        super().__init__(dim_x, dim_y, likelihood, fixed_inputs, values, dim_covariates)
        if relation not in ("difference", "distance"):
            raise ValueError(f"relation must be 'difference' or 'distance'; got {relation!r}")
        self.relation = relation
        self.symmetry_group = "T" if relation == "difference" else "E"
        size = dim_x if relation == "difference" else 1
        self.embed = MLP(dim_y + dim_covariates, dim, width=dim, hidden=1)
        if fixed_inputs is not None:
            self.inject = Injection(fixed_inputs, dim)
        self.context_pair = MLP(size + 2 * dim, dim, width=dim)
        self.target_pair = MLP(size + dim, dim, width=dim)
        self.head = MLP(dim + dim_covariates, self.num_params, width=dim)

    def encode(self, task: Task) -> RCNPState:
        anchor = context_mean(task)
        x = relative_context(task, anchor).to(self.dtype)
        z = self.embed(with_covariates(task.yc.to(self.dtype), task.context_covariates))
        if self.fixed_inputs is not None:
            keep = self.fixed_inputs.draw_keep(task.batch_size, z.device)
            z = self.inject(z, self.fixed_inputs(task.xc, keep))
        count = z.shape[1]
        own = z.unsqueeze(2).expand(-1, -1, count, -1)
        other = z.unsqueeze(1).expand(-1, count, -1, -1)
        r = masked_mean(self.context_pair(torch.cat([self._relate(x, x), own, other], dim=-1)), task)
        return RCNPState(anchor, x, r, task)

    def decode(
        self,
        state: RCNPState,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        x = (xt - state.anchor).to(self.dtype)
        r = state.r.unsqueeze(1).expand(-1, xt.shape[1], -1, -1)
        pairs = self.target_pair(torch.cat([self._relate(x, state.x), r], dim=-1))
        return self.head(with_covariates(masked_mean(pairs, state.task), covariates))

    def _relate(self, x: Tensor, other: Tensor) -> Float[Tensor, "batch points others size"]:
        difference = x.unsqueeze(2) - other.unsqueeze(1)
        # The norm's gradient at zero is zero, as for a point and itself.
        return difference if self.relation == "difference" else difference.norm(dim=-1, keepdim=True)
