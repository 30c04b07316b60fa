"""ConvCNP: a set convolution onto a grid, a network there, and a set convolution back (appendix B.1)."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.checks import positive
from aenp.fixed_inputs import FixedInputs, Injection
from aenp.likelihoods import Likelihood
from aenp.nn.convolution import CNN, Convolution, Level, UNet
from aenp.nn.lattice import Lattice, lattice_anchor
from aenp.nn.mlp import MLP
from aenp.nn.set_convolution import FromGrid, ToGrid
from aenp.process import NeuralProcess, Symmetry, Values, at_least_one, context_mean, with_covariates
from aenp.task import Task

EMBEDDING = 8
"Channels that the set convolution has for an embedding of outputs and covariates, at least."


class ConvCNPState(NamedTuple):
    """A context as a ConvCNP represents it: a grid, and the channels in its cells."""

    lattice: Lattice
    h: Float[Tensor, "batch *shape channels"]


class ConvCNP(NeuralProcess):
    """θ(x) = MLP(Σ_u CNN(MLP(h) + W t)(u) ψ(x − u)), with h the density and the smoothed outputs of the context.

    A new grid is laid around each task and anchored on its context, so the model is exactly equivariant to every
    translation, not only to those of the grid. Beyond the box of its points and a margin a task sees zeros.

    With covariates c, MLP([y, c]) is smoothed beside the outputs y, because their mean alone does not tell apart
    observations of several kinds in one place; at a target, c stands beside what the last MLP sees.

    Args:
        dim_x: input dimension, 1 to 3.
        dim_y: output dimension.
        points_per_unit: cells of the grid per unit of x, one number or one for each dimension; by default 32, 8, 4 in
            1, 2, 3 dimensions. `aenp.points_per_unit(tasks)` finds it for given data.
        on_grid: the data lie on a lattice with `points_per_unit` points per unit: values are placed on it and read
            off it, not smoothed.
        network: `unet`, or `cnn` for layers of one resolution.
        channels: channels of the network; by default 64, 32, 16 in 1, 2, 3 dimensions.
        growth: factor between the channels of one resolution of the U-Net and the next coarser one.
        kernel: odd kernel size; by default 5, or 3 in 3 dimensions.
        layers: number of convolutions. A U-Net has an odd number, and pools by two (layers − 1) / 2 times.
        margin: cells that the grid extends beyond the outermost points.
        lengthscales: number of learned lengthscales for interpolating from the grid to the targets.
        fixed_inputs: t(x), which makes the model approximately equivariant.
        likelihood: a heteroscedastic Normal by default.
        values: how the network sees outputs: `raw`, `centred` or `standardised`, as for `NeuralProcess`.
        dim_covariates: number of covariates of each point, as for `NeuralProcess`.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.ConvCNP(dim_x=2, dim_y=1, points_per_unit=8, channels=8, layers=3)
        >>> model.label, model(torch.rand(4, 10, 2), torch.randn(4, 10, 1), torch.rand(4, 50, 2)).mean.shape
        ('ConvCNP (T)', torch.Size([4, 50, 1]))
    """

    family = "convcnp"
    symmetries: ClassVar[tuple[Symmetry, ...]] = ("exact", "approx")
    max_dim_x = 3

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        points_per_unit: float | Sequence[float] | None = None,
        on_grid: bool = False,
        network: Literal["unet", "cnn"] = "unet",
        channels: int | None = None,
        growth: int = 1,
        kernel: int | None = None,
        layers: int = 7,
        margin: int = 4,
        lengthscales: int = 5,
        fixed_inputs: FixedInputs | None = None,
        likelihood: Likelihood | None = None,
        values: Values = "raw",
        dim_covariates: int = 0,
    ) -> None:
        super().__init__(dim_x, dim_y, likelihood, fixed_inputs, values, dim_covariates)
        points_per_unit = {1: 32.0, 2: 8.0, 3: 4.0}[dim_x] if points_per_unit is None else points_per_unit
        self.spacing = [1 / count for count in positive("points_per_unit", points_per_unit, dim_x)]
        channels = {1: 64, 2: 32, 3: 16}[dim_x] if channels is None else channels
        kernel = {1: 5, 2: 5, 3: 3}[dim_x] if kernel is None else kernel
        at_least_one(channels=channels, growth=growth, layers=layers, lengthscales=lengthscales)
        if margin < 0:
            raise ValueError(f"margin must not be negative; got {margin}")
        self.kernel, self.margin, self.on_grid = kernel, margin, on_grid
        self.to_grid = ToGrid(on_grid)
        seen = dim_y + dim_covariates
        embedding = max(EMBEDDING, 2 * seen) if dim_covariates else 0
        if dim_covariates:
            self.embed_point = MLP(seen, embedding, width=channels)
        self.embed = MLP(1 + dim_y + embedding, channels, width=channels)
        self.network = self._make_network(network, channels, growth, kernel, layers)
        self.from_grid = FromGrid(on_grid, lengthscales)
        self.head = MLP(channels + dim_covariates, self.num_params, width=channels)
        self._take_in(channels)
        linear = (max(layer.weight.shape) for layer in self.modules() if isinstance(layer, nn.Linear))
        self.widest = max(self._widest(network, channels, growth, layers), *linear)

    def _widest(self, network: str, channels: int, growth: int, layers: int) -> int:
        """The largest number of channels of any array in the network, per cell of the finest grid."""
        if network == "cnn":
            return channels
        # On the way up a U-Net joins two resolutions' channels; the deepest level is largest if growth exceeds pooling.
        return int(channels * (1 + growth) * max(1.0, growth / 2**self.dim_x) ** max(layers // 2 - 1, 0))

    def _make_network(self, network: str, channels: int, growth: int, kernel: int, layers: int) -> CNN | UNet:
        def make(channels_in: int, channels_out: int) -> nn.Module:
            return self._make_convolution(channels_in, channels_out, kernel)

        if network == "cnn":
            return CNN([make(channels, channels) for _ in range(layers)])
        if network == "unet":
            return UNet(make, unet_widths(channels, growth, layers))
        raise ValueError(f"network must be 'unet' or 'cnn'; got {network!r}")

    def _make_convolution(self, channels_in: int, channels_out: int, kernel: int) -> nn.Module:
        return Convolution(self.dim_x, channels_in, channels_out, kernel)

    def _take_in(self, channels: int) -> None:
        """Makes the layer that adds the fixed inputs to the channels of the grid."""
        if self.fixed_inputs is not None:
            self.inject = Injection(self.fixed_inputs, channels)

    def encode(self, task: Task) -> ConvCNPState:
        lattice = self.lattice(task)
        h = self.embed(self.to_grid(lattice, task.xc, self._point_values(task), task.context_mask))
        h, levels = self._break_symmetry(lattice, h)
        return ConvCNPState(lattice, self.network(h * levels[0].mask, levels))

    def _point_values(self, task: Task) -> Float[Tensor, "batch context values"]:
        """What the set convolution smooths: the outputs and, with covariates, an embedding of both."""
        y = task.yc.to(self.dtype)
        if task.context_covariates is None:
            return y
        return torch.cat([y, self.embed_point(with_covariates(y, task.context_covariates))], dim=-1)

    def _break_symmetry(self, lattice: Lattice, h: Tensor) -> tuple[Tensor, list[Level]]:
        """The grid's channels with the fixed inputs added, and what the network needs to know at each resolution."""
        if self.fixed_inputs is not None:
            keep = self.fixed_inputs.draw_keep(len(h), h.device)
            h = self.inject(h, self.fixed_inputs(lattice.centres(1), keep))
        return h, [Level(lattice.mask(stride, self.dtype)) for stride in self._strides()]

    def _strides(self) -> list[int]:
        return [2**i for i in range(self.network.stride.bit_length())]

    def decode(
        self,
        state: ConvCNPState,
        xt: Float[Tensor, "batch target dim_x"],
        covariates: Float[Tensor, "batch target dim_covariates"] | None = None,
    ) -> Float[Tensor, "batch target params"]:
        return self.head(with_covariates(self.from_grid(state.lattice, state.h, xt), covariates))

    def lattice(self, task: Task) -> Lattice:
        """The grid for a task: anchored on its context alone, large enough for its context and its targets."""
        points, mask = torch.cat([task.xc, task.xt], dim=1), None
        if task.context_mask is not None or task.target_mask is not None:
            masks = ((task.context_mask, task.xc), (task.target_mask, task.xt))
            mask = torch.cat([torch.ones_like(x[..., 0]).bool() if m is None else m for m, x in masks], dim=1)
        network = self.network
        around = self.spacing, self.margin, network.stride, network.nodal
        lattice = Lattice.around(self._anchor(task), points, mask, *around)
        # For a convolution in float64 torch copies the neighbours of every cell.
        copies = 1 + self.kernel**self.dim_x // 5 if self.dtype == torch.float64 else 1
        lattice.check_size(copies * self.widest, self.dtype)
        if self.on_grid and not torch.compiler.is_compiling():
            lattice.check_on(points, mask)
        return lattice

    def _anchor(self, task: Task) -> Float[Tensor, "batch 1 dim_x"]:
        """Where one of the cells has its centre."""
        node = lattice_anchor(context_mean(task), task.xc, task.context_mask, self.spacing, always=self.on_grid)
        if not self.on_grid or self.network.stride == 1 or task.xc.shape[1] == 0:
            return node
        # Whole blocks of cells lie closest around the context if it is in their middle.
        steps, stride = node.new_tensor(self.spacing), self.network.stride
        cells = ((task.xc - node) / steps).round()
        if task.context_mask is not None:
            cells = torch.where(task.context_mask.unsqueeze(-1), cells, torch.nan)
        first, last = (
            cells.nan_to_num(torch.inf).amin(dim=1, keepdim=True),
            cells.nan_to_num(-torch.inf).amax(dim=1, keepdim=True),
        )
        room = (first - last - 1 - 2 * self.margin).remainder(stride)
        return node + steps * (first - self.margin - (room / 2).floor()).nan_to_num()


def unet_widths(channels: int, growth: int, layers: int) -> list[int]:
    """The channels of a U-Net at each resolution, from fine to coarse."""
    if layers % 2 == 0:
        raise ValueError(f"a U-Net has an odd number of layers; got {layers}")
    return [channels * growth**i for i in range(layers // 2 + 1)]
