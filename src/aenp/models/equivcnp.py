"""EquivCNP: a ConvCNP that is equivariant to rotations and reflections too (appendix B.2)."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.models.convcnp import ConvCNP, unet_widths
from aenp.nn.convolution import CNN, SymmetricConvolution, UNet
from aenp.nn.group_convolution import GroupCNN, GroupUNet
from aenp.process import context_mean, relative_context
from aenp.symmetry import C, D, PointGroup
from aenp.task import Task


class EquivCNP(ConvCNP):
    """A ConvCNP that is equivariant to rigid motions, E (appendix B.2).

    On the line its kernels are symmetric, and pooling is too, because the middle of the task lies between two blocks of
    cells. In the plane it has group convolutions over C(n) or D(n), which are exact for rotations by multiples of 90°
    and close for the others; C(n) has no reflections.

    Args:
        dim_x: input dimension, 1 or 2.
        dim_y: output dimension.
        group: rotations of the plane by multiples of 45° or 90°, with reflections, `D8` or `D4`, or without, `C8` or
            `C4`.
        network: `unet`, the default on the line unless `on_grid`; or `cnn`, all layers at one resolution, the default
            in the plane.
        channels: channels of the network, over all elements of the group, and of what comes before and after it; by
            default 64.
        fields: in the plane, channels of the network for each element of the group; by default their share of
            `channels`, which must then be a multiple of their number.
        kernel: odd kernel size; by default 5.
        layers: number of convolutions.
        options: as for `ConvCNP`, where they apply; `points_per_unit` is one number.

    Example:
        >>> import torch
        >>> import aenp
        >>> model = aenp.EquivCNP(dim_x=2, dim_y=1, group="C4", channels=8, layers=3).double()
        >>> x, y = torch.rand(1, 20, 2, dtype=torch.float64), torch.randn(1, 20, 1)
        >>> task = aenp.Task(x[:, :10], y[:, :10], x[:, 10:])
        >>> turned = aenp.symmetry.C(4).elements()[1](task)  # a quarter turn
        >>> model.label, torch.allclose(model(task).mean, model(turned).mean, atol=1e-6)
        ('EquivCNP (SE)', True)
    """

    family = "equivcnp"
    symmetries = ("exact", "approx")
    max_dim_x = 2
    symmetry_group = "E"

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        group: Literal["C4", "C8", "D4", "D8"] = "D8",
        network: Literal["unet", "cnn"] | None = None,
        channels: int = 64,
        kernel: int = 5,
        layers: int = 7,
        fields: int | None = None,
        **options: Any,
    ) -> None:
        groups: dict[str, PointGroup] = {"C4": C(4), "C8": C(8), "D4": D(4), "D8": D(8)}
        if group not in groups:
            raise ValueError(f"group must be one of {', '.join(groups)}; got {group!r}")
        on_line = dim_x == 1
        if network == "unet" and on_line and options.get("on_grid"):
            raise ValueError("network='unet' with dim_x=1 needs on_grid=False: otherwise pooling breaks the symmetry")
        if fields is not None and (on_line or fields < 1):
            raise ValueError(f"fields must be at least 1, with dim_x=2; got {fields} with dim_x={dim_x}")
        self.group = groups[group]
        elements = len(self.group.elements())
        if dim_x == 2 and fields is None and channels % elements:
            raise ValueError(
                f"without fields, channels must be a multiple of the group's {elements} elements; got {channels}"
            )
        self.fields = channels // elements if fields is None else fields
        if dim_x == 2 and group.startswith("C"):
            self.symmetry_group = "SE"
        super().__init__(
            dim_x,
            dim_y,
            network=network or ("unet" if on_line and not options.get("on_grid") else "cnn"),
            channels=channels,
            kernel=kernel,
            layers=layers,
            **options,
        )
        if len(set(self.spacing)) > 1:
            raise ValueError("rotations need one points_per_unit for both dimensions; got several")

    def _make_network(self, network: str, channels: int, growth: int, kernel: int, layers: int) -> CNN | UNet:
        if self.dim_x == 1:
            return super()._make_network(network, channels, growth, kernel, layers)
        if network == "cnn":
            return GroupCNN(self.group, channels, self.fields, kernel, layers)
        width = self.fields * len(self.group.elements())
        return GroupUNet(self.group, channels, unet_widths(width, growth, layers), kernel)

    def _widest(self, network: str, channels: int, growth: int, layers: int) -> int:
        if self.dim_x == 1:
            return super()._widest(network, channels, growth, layers)
        # The last layer has this many for each element; half, because fewer arrays of that size are held at a time.
        return max(channels // 2, self.fields) * len(self.group.elements())

    def _anchor(self, task: Task) -> Float[Tensor, "batch 1 dim_x"]:
        node = super()._anchor(task)
        if self.network.stride == 1:
            return node
        mean, steps = context_mean(task), node.new_tensor(self.spacing)
        if self.dim_x == 1:  # Half a cell off the mean, a reflection takes blocks of cells to blocks.
            return mean + steps / 2
        # The node nearest the mean; of two as near, that to which far points and large values lean, as they turn too.
        x = relative_context(task, mean)
        leans = []
        for values in (x.square(), task.yc, task.context_covariates):
            if values is None:
                continue
            weight = values.to(x.dtype).sum(dim=-1, keepdim=True)
            size = (weight * x).norm(dim=-1, keepdim=True).sum(dim=1, keepdim=True)
            leans.append((weight * x).sum(dim=1, keepdim=True) / torch.where(size > 0, size, 1.0))
        return node + steps * ((mean - node) / steps + 0.01 * sum(leans)).round()

    def _make_convolution(self, channels_in: int, channels_out: int, kernel: int) -> nn.Module:
        return SymmetricConvolution(self.dim_x, channels_in, channels_out, kernel)
