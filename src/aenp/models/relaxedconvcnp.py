"""RelaxedConvCNP: a ConvCNP whose convolutions themselves depend on position (appendix B.5)."""

from typing import Any

from torch import Tensor, nn

from aenp.models.convcnp import ConvCNP
from aenp.nn.convolution import Level, RelaxedConvolution
from aenp.nn.lattice import Lattice
from aenp.process import at_least_one


class RelaxedConvCNP(ConvCNP):
    """A ConvCNP of relaxed convolutions, whose kernels are weighted by 1 + t_l at each cell (appendix B.5).

    The fixed inputs enter every layer, on the layer's own grid, and nowhere else.

    Args:
        dim_x: input dimension, 1 to 3.
        dim_y: output dimension.
        kernels: number L of kernels in each convolution.
        options: as for `ConvCNP`.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.RelaxedConvCNP(dim_x=1, dim_y=1, fixed_inputs=aenp.FixedInputs(1, domain=[(0, 1)]), channels=8)
        >>> model.label, model(torch.rand(4, 10, 1), torch.randn(4, 10, 1), torch.rand(4, 50, 1)).mean.shape
        ('RelaxedConvCNP (T~)', torch.Size([4, 50, 1]))
    """

    family = "relaxedconvcnp"
    symmetries = ("approx",)

    def __init__(self, dim_x: int, dim_y: int, kernels: int = 1, **options: Any) -> None:
        at_least_one(kernels=kernels)
        self.kernels = kernels
        super().__init__(dim_x, dim_y, **options)
        if self.fixed_inputs is not None and self.fixed_inputs.concatenate:
            raise ValueError("RelaxedConvCNP takes t in as weights of its kernels; concatenate=True does not apply")

    def _make_convolution(self, channels_in: int, channels_out: int, kernel: int) -> nn.Module:
        num = 0 if self.fixed_inputs is None else self.fixed_inputs.num
        return RelaxedConvolution(self.dim_x, channels_in, channels_out, kernel, self.kernels, num)

    def _widest(self, network: str, channels: int, growth: int, layers: int) -> int:
        return self.kernels * super()._widest(network, channels, growth, layers)

    def _take_in(self, channels: int) -> None:
        """Nothing: the fixed inputs enter inside the convolutions."""

    def _break_symmetry(self, lattice: Lattice, h: Tensor) -> tuple[Tensor, list[Level]]:
        if self.fixed_inputs is None:
            return super()._break_symmetry(lattice, h)
        keep = self.fixed_inputs.draw_keep(len(h), h.device)
        return h, [
            Level(lattice.mask(stride, self.dtype), self.fixed_inputs(lattice.centres(stride), keep))
            for stride in self._strides()
        ]
