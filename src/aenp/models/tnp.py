"""TNP: transformer neural processes, plain and translation equivariant (appendix B.3, E.1)."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.fixed_inputs import FixedInputs, Injection
from aenp.likelihoods import Likelihood
from aenp.nn.attention import AttentionBlock, Kernel
from aenp.nn.coordinates import Coordinates, Domain
from aenp.nn.mlp import MLP
from aenp.nn.pairwise import PairwiseMLP
from aenp.nn.spectral import Frequencies, Spectral, Wavelengths
from aenp.process import (
    NeuralProcess,
    Symmetry,
    Values,
    at_least_one,
    context_mean,
    relative_context,
    with_covariates,
)
from aenp.task import Task


class Transformer(NeuralProcess):
    """What TNP and PTTNP share: how points become tokens, and where attention sees positions.

    Without a symmetry, a token is MLP([x, y, 1]) for a context point and MLP([x, 0, 0]) for a target. With it, a
    token is MLP(y) for a context point and one learned vector for every target; positions are seen only as
    differences, inside the attention. Covariates c stand beside what these MLPs see; the learned vector becomes the
    sum of it and MLP(c).
    """

    inject: Injection
    "How tokens take t in, in a model with fixed inputs."

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        symmetry: Literal["none", "exact"],
        attention: Literal["mlp", "spectral"],
        wavelengths: Wavelengths,
        dim: int,
        heads: int,
        fixed_inputs: FixedInputs | None,
        fixed_at_targets: bool,
        likelihood: Likelihood | None,
        values: Values,
        domain: Domain | None,
        fourier: int,
        dim_covariates: int,
    ) -> None:
        super().__init__(dim_x, dim_y, likelihood, fixed_inputs, values, dim_covariates)
        if symmetry not in ("none", "exact"):
            raise ValueError(
                f"symmetry must be 'none' or 'exact'; got {symmetry!r}. For 'approx', give an exact model fixed_inputs"
            )
        if attention not in ("mlp", "spectral"):
            raise ValueError(f"attention must be 'mlp' or 'spectral'; got {attention!r}")
        if symmetry == "none" and fixed_inputs is not None:
            raise ValueError("symmetry='none' has no symmetry for fixed_inputs to break; use symmetry='exact'")
        if symmetry == "exact" and (domain is not None or fourier):
            raise ValueError(
                "domain and fourier are for symmetry='none'; for an approximate model give FixedInputs both"
            )
        if fixed_at_targets and fixed_inputs is None:
            raise ValueError("fixed_at_targets=True needs fixed_inputs")
        at_least_one(dim=dim, heads=heads)
        self.sees_positions = symmetry == "none"
        self.dim, self.heads, self.attention = dim, heads, attention
        self.fixed_at_targets = fixed_at_targets
        seen = dim_y + dim_covariates
        if self.sees_positions:
            self.coordinates = Coordinates(dim_x, domain, fourier)
            seen += self.coordinates.size + 1
        self.embed = MLP(seen, dim, width=dim)
        if not self.sees_positions:
            self.target_token = nn.Parameter(torch.randn(dim))
            if dim_covariates:
                self.embed_covariates = MLP(dim_covariates, dim, width=dim, hidden=1)
            if attention == "spectral":
                self.frequencies = Frequencies(dim_x, heads, dim // heads, wavelengths)
        self.head = MLP(dim, self.num_params, width=dim)

    def block(self, kernel: Kernel | None = None) -> AttentionBlock:
        """A block of attention; `kernel` in place of the usual one where attention is spectral."""
        if self.sees_positions:
            return AttentionBlock(self.dim, self.heads)
        if self.attention == "mlp":
            return AttentionBlock(self.dim, self.heads, PairwiseMLP(self.dim_x, self.heads, width=self.dim))
        block = AttentionBlock(self.dim, self.heads, kernel or Spectral())
        self.frequencies.start_local(block.attention.to_query.bias, block.attention.to_key_value.bias[: self.dim])
        return block

    def place(self, x: Float[Tensor, "batch points dim_x"]) -> Tensor | None:
        """Positions relative to the anchor, in the coordinates' own dtype, as the attention takes them."""
        if self.sees_positions:
            return None
        return self.frequencies(x) if self.attention == "spectral" else x.to(self.dtype)

    @property
    def symmetry(self) -> Symmetry:
        return "none" if self.sees_positions else super().symmetry

    def context_tokens(self, task: Task) -> Float[Tensor, "batch context dim"]:
        seen = task.yc.to(self.dtype)
        if self.sees_positions:
            seen = torch.cat([self.coordinates(task.xc, seen.dtype), seen, torch.ones_like(seen[..., :1])], dim=-1)
        return self.embed(with_covariates(seen, task.context_covariates))

    def target_tokens(
        self, xt: Tensor, covariates: Tensor | None, keep: Tensor | None
    ) -> Float[Tensor, "batch target dim"]:
        if self.sees_positions:
            x = self.coordinates(xt, self.dtype)
            seen = torch.cat([x, x.new_zeros(*x.shape[:-1], self.dim_y + 1)], dim=-1)
            return self.embed(with_covariates(seen, covariates))
        z = self.target_token.expand(*xt.shape[:-1], -1)
        if covariates is not None:
            z = z + self.embed_covariates(covariates.to(self.dtype))
        if self.fixed_inputs is None or not self.fixed_at_targets:
            return z
        return self.inject(z, self.fixed_inputs(xt, keep))


class TNPState(NamedTuple):
    """A context as a TNP represents it."""

    anchor: Float[Tensor, "batch 1 dim_x"]
    "The context's mean, from which positions are measured."
    x: Tensor | None
    "Positions of the context, as the attention takes them."
    tokens: list[Float[Tensor, "batch context dim"]]
    "The context's tokens after each layer."
    mask: Tensor | None
    keep: Tensor | None
    "The draw of the fixed inputs' dropout."


class TNP(Transformer):
    """Context tokens attend to each other, target tokens to the context tokens, in each of `layers` layers.

    With `fixed_inputs`, context tokens become MLP(y) + W t(x) (algorithm 4). Each layer updates the context before
    the targets read it, so that no block is idle.

    Args:
        dim_x: input dimension.
        dim_y: output dimension.
        symmetry: `none`, or `exact` for translation equivariance.
        attention: how an equivariant model weighs pairs: `mlp`, the paper's pairwise MLP, or `spectral`, which turns
            queries, keys and values by learned frequencies, many times faster and with memory linear in the points.
        wavelengths: the shortest and the longest wavelength of a spectral attention, or one such pair for each
            dimension; `aenp.wavelengths(tasks)` finds them for given data.
        dim: size D_z of the tokens.
        heads: number of attention heads.
        layers: number of layers.
        fixed_inputs: t(x), which makes an exact model approximate.
        fixed_at_targets: whether t is added to the target tokens too.
        likelihood: a heteroscedastic Normal by default.
        values: how the network sees outputs: `raw`, `centred` or `standardised`, as for `NeuralProcess`.
        domain: the box that a model without symmetry scales positions to, as for `FixedInputs`; by default none.
        fourier: number of waves for each dimension, beside the position itself, that a model without symmetry sees.
        dim_covariates: number of covariates of each point, as for `NeuralProcess`.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.TNP(dim_x=1, dim_y=1, attention="spectral", dim=32, layers=2, fixed_inputs=aenp.FixedInputs(1))
        >>> model.label, model(torch.rand(4, 10, 1), torch.randn(4, 10, 1), torch.rand(4, 50, 1)).mean.shape
        ('TNP (T~)', torch.Size([4, 50, 1]))
    """

    family = "tnp"
    symmetries = ("none", "exact", "approx")

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        symmetry: Literal["none", "exact"] = "exact",
        attention: Literal["mlp", "spectral"] = "mlp",
        wavelengths: Wavelengths = (0.1, 10.0),
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
        self.self_attention = nn.ModuleList(self.block() for _ in range(layers))
        self.cross_attention = nn.ModuleList(self.block() for _ in range(layers))
        at_least_one(layers=layers)
        if fixed_inputs is not None:
            self.inject = Injection(fixed_inputs, dim)

    def encode(self, task: Task) -> TNPState:
        anchor = context_mean(task)
        x = self.place(relative_context(task, anchor))
        z, keep = self.context_tokens(task), None
        if self.fixed_inputs is not None:
            keep = self.fixed_inputs.draw_keep(task.batch_size, z.device)
            z = self.inject(z, self.fixed_inputs(task.xc, keep))
        tokens = []
        for block in self.self_attention:
            z = block(z, z, x, x, task.context_mask)
            tokens.append(z)
        return TNPState(anchor, x, tokens, task.context_mask, keep)

    def decode(
        self,
        state: TNPState,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        x = self.place(xt - state.anchor)
        z = self.target_tokens(xt, covariates, state.keep)
        for block, context in zip(self.cross_attention, state.tokens, strict=True):
            z = block(z, context, x, state.x, state.mask)
        return self.head(z)
