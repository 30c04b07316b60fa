"""PTTNP: transformer neural processes with pseudo-tokens, linear in the number of points (appendix B.4, E.2)."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from aenp.checks import positive
from aenp.fixed_inputs import FixedInputs, Injection
from aenp.likelihoods import Likelihood
from aenp.models.tnp import Transformer
from aenp.nn.attention import AttentionBlock, Kernel, KeysValues
from aenp.nn.coordinates import Domain
from aenp.nn.lattice import Lattice
from aenp.nn.local_attention import Points, ReadPoints, ReadTokens, Tokens, Window, among, in_a_row
from aenp.nn.spectral import Wavelengths
from aenp.process import Values, at_least_one, context_mean, relative_context
from aenp.task import Task


class PTTNPState(NamedTuple):
    """A context as a PT-TNP represents it."""

    anchor: Float[Tensor, "batch 1 dim_x"]
    "The context's mean, or the grid's first cell, from which positions are measured."
    lattice: Lattice | None
    "The grid of the pseudo-tokens, if they are on one."
    v: Any
    "Positions of the pseudo-tokens, as the attention takes them."
    tokens: list[KeysValues]
    "What targets see of the pseudo-tokens after each layer."
    mask: Tensor | None
    keep: Tensor | None
    "The draw of the fixed inputs' dropout."


class PTTNP(Transformer):
    """M pseudo-tokens u_m at v_m = v_{m,0} + mean(x_c) stand between the context and the targets.

    In the perceiver form (algorithms 5 and 6) each layer does u ← context, u ← u, target ← u; in the induced-set
    form, u ← context, context ← u, target ← u. With `fixed_inputs`, u_m starts as u_{m,0} + W t(v_m). Where the
    context is empty, the pseudo-tokens of an equivariant model have no position, and targets see none of them.

    With `pseudo_tokens="grid"` they lie on a grid that is laid around each task's context and anchored on its mean, all
    with the same u_0. They read the context once and each other in every layer, and targets read them once after the
    last. A token sees the context and a target the tokens less than `sight` cells away, and tokens see each other in a
    window: the cost is linear in the numbers of points and of cells, and targets decide nothing about each other. The
    grid ends one or two cells beyond the outermost context points; targets `sight` cells further out see no tokens.
    Predictions are smooth in the targets, and in the context as long as its outermost points, seen from the mean, stay
    in their cells, beyond which the grid grows.

    Args:
        dim_x: input dimension.
        dim_y: output dimension.
        symmetry: `none`, or `exact` for translation equivariance.
        attention: how an equivariant model weighs pairs: `mlp` or `spectral`, as for `TNP`.
        wavelengths: of a spectral attention, as for `TNP`; with a grid, from one `pseudo_spacing` to some of them.
        form: `induced`, which the paper trained, or `perceiver`.
        pseudo_tokens: number M of pseudo-tokens, or `grid`, with spectral attention in the perceiver form.
        pseudo_spread: standard deviation of the initial v_{m,0}, in units of x: about half the extent of a context.
        pseudo_spacing: distance between the tokens of a grid, in units of x: one number or one for each dimension.
        window: odd number of tokens of a grid that a token sees in each dimension, itself in the middle.
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
        sight: how many cells of a grid away tokens and points see each other in each dimension: the cost of many points
            grows with its power `dim_x`.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.PTTNP(dim_x=2, dim_y=1, attention="spectral", pseudo_tokens=16, dim=32, layers=2)
        >>> model.label, model(torch.rand(4, 10, 2), torch.randn(4, 10, 1), torch.rand(4, 50, 2)).mean.shape
        ('PTTNP (T)', torch.Size([4, 50, 1]))
    """

    family = "pttnp"
    symmetries = ("none", "exact", "approx")

    read_pseudo: Sequence[AttentionBlock]

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        symmetry: Literal["none", "exact"] = "exact",
        attention: Literal["mlp", "spectral"] = "mlp",
        wavelengths: Wavelengths = (0.1, 10.0),
        form: Literal["induced", "perceiver"] = "induced",
        pseudo_tokens: int | Literal["grid"] = 128,
        pseudo_spread: float = 1.0,
        pseudo_spacing: float | Sequence[float] = 0.5,
        window: int = 5,
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
        sight: int = 2,
    ) -> None:
        common = dim, heads, fixed_inputs, fixed_at_targets, likelihood, values, domain, fourier, dim_covariates
        super().__init__(dim_x, dim_y, symmetry, attention, wavelengths, *common)
        if form not in ("induced", "perceiver"):
            raise ValueError(f"form must be 'induced' or 'perceiver'; got {form!r}")
        at_least_one(layers=layers)
        self.form = form
        self.on_grid = isinstance(pseudo_tokens, str)
        kernels: tuple[Kernel | None, ...] = (None, None, None)
        if isinstance(pseudo_tokens, str):
            self._check_grid(pseudo_tokens, window)
            at_least_one(sight=sight)
            self.spacing, self.reach = positive("pseudo_spacing", pseudo_spacing, dim_x), window // 2
            self.sight = sight
            kernels = ReadPoints(), Window(self.reach), ReadTokens()
            self.pseudo_values = nn.Parameter(torch.randn(1, dim))
        else:
            at_least_one(pseudo_tokens=pseudo_tokens)
            self.pseudo_values = nn.Parameter(torch.randn(pseudo_tokens, dim))
            if not self.sees_positions:
                self.pseudo_positions = nn.Parameter(pseudo_spread * torch.randn(pseudo_tokens, dim_x))
        reads = 1 if self.on_grid else layers
        self.read_context = nn.ModuleList(self.block(kernels[0]) for _ in range(reads))
        # In the induced-set form nothing would read the last update of the context.
        updates = layers if form == "perceiver" else layers - 1
        self.update = nn.ModuleList(self.block(kernels[1]) for _ in range(updates))
        self.read_pseudo = nn.ModuleList(self.block(kernels[2]) for _ in range(reads))  # type: ignore[assignment]
        if fixed_inputs is not None:
            self.inject = Injection(fixed_inputs, dim)

    def _check_grid(self, pseudo_tokens: str, window: int) -> None:
        if pseudo_tokens != "grid":
            raise ValueError(f"pseudo_tokens must be a number or 'grid'; got {pseudo_tokens!r}")
        if self.sees_positions or self.attention != "spectral" or self.form != "perceiver":
            raise ValueError(
                "pseudo_tokens='grid' needs symmetry='exact', attention='spectral' and form='perceiver'; got "
                f"{'none' if self.sees_positions else 'exact'!r}, {self.attention!r} and {self.form!r}"
            )
        if window < 1 or window % 2 == 0:
            raise ValueError(f"window must be an odd number of tokens; got {window}")

    def encode(self, task: Task) -> PTTNPState:
        lattice = self._lattice(task) if self.on_grid else None
        anchor = context_mean(task) if lattice is None else lattice.origin
        count = len(self.pseudo_values) if lattice is None else math.prod(lattice.shape)
        u = self.pseudo_values.expand(task.batch_size, count, -1)
        x, v, keep = self._among(relative_context(task, anchor), lattice), None, None
        if not self.sees_positions:
            v = self._place_tokens(task.batch_size, lattice)
        if self.fixed_inputs is not None:
            keep = self.fixed_inputs.draw_keep(task.batch_size, u.device)
            u = self.inject(u, self.fixed_inputs(anchor + self._offsets(lattice).to(anchor), keep))
        z, seen, tokens = self.context_tokens(task), self._seen(task, lattice), []
        if lattice is not None:
            u = self.read_context[0](u, z, v, x, task.context_mask)
            for update in self.update:
                u = update(u, u, v, v, seen)
            return PTTNPState(anchor, lattice, v, [self.read_pseudo[0].keys_values(u)], seen, keep)
        for i, read in enumerate(self.read_context):
            u = read(u, z, v, x, task.context_mask)
            if self.form == "perceiver":
                u = self.update[i](u, u, v, v)
            elif i < len(self.update):
                z = self.update[i](z, u, x, v)
            tokens.append(self.read_pseudo[i].keys_values(u))
        return PTTNPState(anchor, lattice, v, tokens, seen, keep)

    def _lattice(self, task: Task) -> Lattice:
        """The grid around a task's context, with a row more on each side; an empty one has a single cell and those."""
        anchor = context_mean(task)
        mask = None if task.context_mask is None else pad(task.context_mask, [0, 1], value=True)
        points = torch.cat([task.xc, anchor], dim=1)
        lattice = Lattice.around(anchor, points, mask, self.spacing, margin=1, stride=1)
        numbers = Window.numbers(lattice.shape, self.reach, self.dim)
        lattice.check_size(numbers, self.dtype, "Raise pseudo_spacing")
        return lattice

    def _offsets(self, lattice: Lattice | None) -> Float[Tensor, "pseudo_tokens dim_x"]:
        """Positions of the pseudo-tokens relative to the anchor."""
        return self.pseudo_positions if lattice is None else lattice.offsets(1).flatten(0, -2)

    def _place_tokens(self, batch: int, lattice: Lattice | None) -> Any:
        """Positions of the pseudo-tokens, as the attention takes them."""
        offsets = self._offsets(lattice).unsqueeze(0)
        if lattice is None:
            return self.place(offsets.expand(batch, -1, -1))
        return Tokens(in_a_row(self.frequencies(offsets).expand(batch, -1, -1, -1)), lattice.shape)

    def _among(self, x: Float[Tensor, "batch points dim_x"], lattice: Lattice | None) -> Any:
        """Positions of points relative to the anchor, as the attention to pseudo-tokens takes them."""
        return self.place(x) if lattice is None else among(lattice, x, self.frequencies(x), self.sight)

    def _seen(self, task: Task, lattice: Lattice | None) -> Tensor | None:
        """The pseudo-tokens that are there: none for an equivariant model with an empty context; None for all."""
        some = task.xc.new_full([task.batch_size], task.xc.shape[1] > 0, dtype=torch.bool)
        if task.context_mask is not None:
            some = task.context_mask.any(dim=1)
        if lattice is not None:
            return lattice.mask(1, self.dtype).flatten(1).bool() & some[:, None]
        if self.sees_positions or (task.context_mask is None and task.xc.shape[1] > 0):
            return None
        return some[:, None].expand(-1, len(self.pseudo_values))

    def decode(
        self,
        state: PTTNPState,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        x = self._among(xt - state.anchor, state.lattice)
        z = self.target_tokens(xt, covariates, state.keep)
        few = self.on_grid and x.bias is None and x.near.numel() < len(state.v.phases)
        if few and not torch.compiler.is_compiling():
            z, (state, x) = z.flatten(0, 1).unsqueeze(0), _within_sight(state, x)
        for block, tokens in zip(self.read_pseudo, state.tokens, strict=True):
            z = block.read(z, tokens, x, state.v, state.mask)
        return self.head(z.view(*xt.shape[:-1], -1))


def _within_sight(state: PTTNPState, x: Points) -> tuple[PTTNPState, Points]:
    """The state with only those pseudo-tokens that some point sees, all in one task, where most are seen by none."""
    seen, near = x.near.unique(return_inverse=True)
    tokens = [
        (in_a_row(key)[seen].unsqueeze(0).transpose(1, 2), in_a_row(value)[seen].unsqueeze(0).transpose(1, 2))
        for key, value in state.tokens
    ]
    mask = None if state.mask is None else state.mask.flatten()[seen].unsqueeze(0)
    v = state.v._replace(phases=state.v.phases[seen])
    return state._replace(v=v, tokens=tokens, mask=mask), x._replace(near=near)
