"""PTTNP: transformer neural processes with pseudo-tokens, linear in the number of points (appendix B.4, E.2)."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.fixed_inputs import FixedInputs, Injection
from aenp.likelihoods import Likelihood
from aenp.models.tnp import Transformer
from aenp.nn.coordinates import Domain
from aenp.nn.spectral import Wavelengths
from aenp.process import Values, at_least_one, context_mean, relative_context
from aenp.task import Task


class PTTNPState(NamedTuple):
    """A context as a PT-TNP represents it."""

    anchor: Float[Tensor, "batch 1 dim_x"]
    "The context's mean, from which positions are measured."
    v: Tensor | None
    "Positions of the pseudo-tokens, as the attention takes them."
    tokens: list[Float[Tensor, "batch pseudo_tokens dim"]]
    "The pseudo-tokens after each layer."
    mask: Tensor | None
    keep: Tensor | None
    "The draw of the fixed inputs' dropout."


class PTTNP(Transformer):
    """M pseudo-tokens u_m at v_m = v_{m,0} + mean(x_c) stand between the context and the targets.

    In the perceiver form (algorithms 5 and 6) each layer does u ← context, u ← u, target ← u; in the induced-set
    form, u ← context, context ← u, target ← u. With `fixed_inputs`, u_m starts as u_{m,0} + W t(v_m). Where the
    context is empty, the pseudo-tokens of an equivariant model have no position, and targets see none of them.

    Args:
        dim_x: input dimension.
        dim_y: output dimension.
        symmetry: `none`, or `exact` for translation equivariance.
        attention: how an equivariant model weighs pairs: `mlp` or `spectral`, as for `TNP`.
        wavelengths: of a spectral attention, as for `TNP`.
        form: `induced`, which the paper trained, or `perceiver`.
        pseudo_tokens: number M of pseudo-tokens.
        pseudo_spread: standard deviation of the initial v_{m,0}, in units of x: about half the extent of a context.
        dim: size D_z of the tokens.
        heads: number of attention heads.
        layers: number of layers.
        fixed_inputs: t(x), which makes an exact model approximate.
        fixed_at_targets: whether t is added to the target tokens too, for effects finer than the pseudo-tokens resolve.
        likelihood: a heteroscedastic Normal by default.
        values: how the network sees outputs: `raw`, `centred` or `standardised`, as for `NeuralProcess`.
        domain: the box that a model without symmetry scales positions to, as for `FixedInputs`; by default none.
        fourier: number of waves for each dimension, beside the position itself, that a model without symmetry sees.
        dim_covariates: number of covariates of each point, as for `NeuralProcess`.
    """

    family = "pttnp"
    symmetries = ("none", "exact", "approx")

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        symmetry: Literal["none", "exact"] = "exact",
        attention: Literal["mlp", "spectral"] = "mlp",
        wavelengths: Wavelengths = (0.1, 10.0),
        form: Literal["induced", "perceiver"] = "induced",
        pseudo_tokens: int = 128,
        pseudo_spread: float = 1.0,
        dim: int = 128,
        heads: int = 8,
        layers: int = 5,
        fixed_inputs: FixedInputs | None = None,
        fixed_at_targets: bool = False,
        likelihood: Likelihood | None = None,
        values: Values = "raw",
        domain: Domain | None = None,
        fourier: int = 0,
        dim_covariates: int = 0,
    ) -> None:
        common = dim, heads, fixed_inputs, fixed_at_targets, likelihood, values, domain, fourier, dim_covariates
        super().__init__(dim_x, dim_y, symmetry, attention, wavelengths, *common)
        if form not in ("induced", "perceiver"):
            raise ValueError(f"form must be 'induced' or 'perceiver'; got {form!r}")
        at_least_one(pseudo_tokens=pseudo_tokens, layers=layers)
        self.form = form
        self.pseudo_values = nn.Parameter(torch.randn(pseudo_tokens, dim))
        if not self.sees_positions:
            self.pseudo_positions = nn.Parameter(pseudo_spread * torch.randn(pseudo_tokens, dim_x))
        self.read_context = nn.ModuleList(self.block() for _ in range(layers))
        # In the induced-set form nothing would read the last update of the context.
        updates = layers if form == "perceiver" else layers - 1
        self.update = nn.ModuleList(self.block() for _ in range(updates))
        self.read_pseudo = nn.ModuleList(self.block() for _ in range(layers))
        if fixed_inputs is not None:
            self.inject = Injection(fixed_inputs, dim)

    def encode(self, task: Task) -> PTTNPState:
        anchor = context_mean(task)
        u = self.pseudo_values.expand(task.batch_size, -1, -1)
        x, v, keep = self.place(relative_context(task, anchor)), None, None
        if not self.sees_positions:
            v = self.place(self.pseudo_positions.expand(task.batch_size, -1, -1))
        if self.fixed_inputs is not None:
            keep = self.fixed_inputs.draw_keep(task.batch_size, u.device)
            u = self.inject(u, self.fixed_inputs(anchor + self.pseudo_positions.to(anchor), keep))
        z, tokens = self.context_tokens(task), []
        for i, read in enumerate(self.read_context):
            u = read(u, z, v, x, task.context_mask)
            if self.form == "perceiver":
                u = self.update[i](u, u, v, v)
            elif i < len(self.update):
                z = self.update[i](z, u, x, v)
            tokens.append(u)
        return PTTNPState(anchor, v, tokens, self._seen(task), keep)

    def _seen(self, task: Task) -> Tensor | None:
        """Which tasks see pseudo-tokens: all, except those of an equivariant model with an empty context."""
        if self.sees_positions or (task.context_mask is None and task.xc.shape[1] > 0):
            return None
        some = task.xc.new_zeros(task.batch_size, dtype=torch.bool)
        if task.context_mask is not None:
            some = task.context_mask.any(dim=1)
        return some[:, None].expand(-1, len(self.pseudo_values))

    def decode(
        self,
        state: PTTNPState,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        x = self.place(xt - state.anchor)
        z = self.target_tokens(xt, covariates, state.keep)
        for read, u in zip(self.read_pseudo, state.tokens, strict=True):
            z = read(z, u, x, state.v, state.mask)
        return self.head(z)
