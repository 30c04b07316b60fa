"""Convolutions on a task's own box, and the networks made of them.

Arrays are channels-last: `(batch, *shape, channels)`.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv3d, pad

from aenp.nn.line_convolution import convolve_line


class Level(NamedTuple):
    """What a layer needs to know about its grid, which pooling makes coarser."""

    mask: Float[Tensor, "batch *shape 1"]
    "1 in each task's own box and 0 beyond: a task sees zeros around it, whatever batch it is in."
    t: Float[Tensor, "batch *shape num"] | None = None
    "The fixed inputs at the cells, for layers whose kernels depend on them."


def convolve(
    h: Float[Tensor, "batch *shape channels_in"],
    weight: Float[Tensor, "channels_out channels_in *kernel"],
    bias: Float[Tensor, " channels_out"],
) -> Float[Tensor, "batch *shape channels_out"]:
    """Σ_v weight(v) h(u + v) + bias, with zeros around the array."""
    if weight.ndim == 3:
        return convolve_line(h, weight, bias)
    padding = [size // 2 for size in weight.shape[2:]]
    return (conv2d if weight.ndim == 4 else conv3d)(h.movedim(-1, 1), weight, bias, padding=padding).movedim(1, -1)


class Convolution(nn.Module):
    """A convolution of odd kernel size in `dim_x` dimensions, within each task's box."""

    def __init__(self, dim_x: int, channels_in: int, channels_out: int, kernel: int) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"the kernel size must be odd; got {kernel}")
        fan_in = channels_in * kernel**dim_x
        # Keeps the signal's size through a ReLU, which matters without normalisation.
        self.weight = nn.Parameter((2 / fan_in) ** 0.5 * torch.randn(channels_out, channels_in, *[kernel] * dim_x))
        self.bias = nn.Parameter(torch.zeros(channels_out))

    def filters(self) -> Float[Tensor, "channels_out channels_in *kernel"]:
        return self.weight

    def forward(self, h: Float[Tensor, "batch *shape channels_in"], level: Level) -> Tensor:
        return convolve(h, self.filters(), self.bias) * level.mask


class SymmetricConvolution(Convolution):
    """k(−v) = k(v): equivariant to reflections, in one dimension."""

    def filters(self) -> Float[Tensor, "channels_out channels_in kernel"]:
        return (self.weight + self.weight.flip(-1)) / 2


class RelaxedConvolution(Convolution):
    """(k ⋆ h)(u) = Σ_l Σ_v k_l(v − u) (1 + t_l(v)) h(v) (appendix B.5): where t is zero, a plain convolution.

    Args:
        kernels: number L of kernels.
        num: number of fixed inputs, from which a linear map without bias makes the L functions t_l; 0 for none.
    """

    def __init__(self, dim_x: int, channels_in: int, channels_out: int, kernel: int, kernels: int, num: int) -> None:
        super().__init__(dim_x, kernels * channels_in, channels_out, kernel)
        self.kernels = kernels
        if num:
            self.modulate = nn.Linear(num, kernels, bias=False)

    def forward(self, h: Float[Tensor, "batch *shape channels_in"], level: Level) -> Tensor:
        copies = h.unsqueeze(-2)
        copies = (
            copies.expand(*h.shape[:-1], self.kernels, -1)
            if level.t is None
            else copies * (1 + self.modulate(level.t).unsqueeze(-1))
        )
        return super().forward(copies.flatten(-2), level)


class CNN(nn.Module):
    """h ← σ(conv(h)), then h ← h + σ(conv(h)) for each further layer, all at one resolution."""

    stride, nodal = 1, False

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, h: Float[Tensor, "batch *shape channels"], levels: Sequence[Level]) -> Tensor:
        h = self.layers[0](h, levels[0]).relu_()
        for layer in self.layers[1:]:
            h = h + layer(h, levels[0]).relu_()
        return h


class UNet(nn.Module):
    """A U-Net: convolution and pooling by two on the way down, linear upsampling and skip connections on the way up.

    Args:
        make: makes a convolution, given its numbers of input and output channels.
        widths: channels at each resolution, from fine to coarse.
        nodal: the centres of coarse cells are those of every second fine cell, so that pooling can turn about one of
            them; else a coarse cell is a block of fine ones.
    """

    def __init__(self, make: Callable[[int, int], nn.Module], widths: Sequence[int], nodal: bool = False) -> None:
        super().__init__()
        self.nodal = nodal
        self.pool, self.interpolate = (halve_nodes, double_nodes) if nodal else (halve, double)
        self.stride = 2 ** (len(widths) - 1)
        steps = list(pairwise(widths))
        self.first = make(widths[0], widths[0])
        self.down = nn.ModuleList(make(fine, coarse) for fine, coarse in steps)
        self.up = nn.ModuleList(make(coarse + fine, fine) for fine, coarse in reversed(steps))

    def forward(self, h: Float[Tensor, "batch *shape channels"], levels: Sequence[Level]) -> Tensor:
        h = self.first(h, levels[0]).relu_()
        skips = []
        for layer, level in zip(self.down, levels[1:], strict=True):
            skips.append(h)
            h = layer(self.pool(h), level).relu_()
        for layer, level, skip in zip(self.up, reversed(levels[:-1]), reversed(skips), strict=True):
            h = layer(torch.cat([self.interpolate(h) * level.mask, skip], dim=-1), level).relu_()
        return h


def halve(h: Float[Tensor, "batch *shape channels"]) -> Tensor:
    """The mean over blocks of two cells in each dimension."""
    for d in range(1, h.ndim - 1):
        h = h.unflatten(d, (-1, 2)).mean(dim=d + 1)
    return h


def double(h: Float[Tensor, "batch *shape channels"]) -> Tensor:
    """Linear interpolation to cells of half the size, with zeros around the array as for a convolution."""
    for d in range(1, h.ndim - 1):
        around = pad(h, [0, 0] * (h.ndim - 1 - d) + [1, 1])
        count = h.shape[d]
        left = 0.75 * h + 0.25 * around.narrow(d, 0, count)
        right = 0.75 * h + 0.25 * around.narrow(d, 2, count)
        h = torch.stack([left, right], dim=d + 1).flatten(d, d + 1)
    return h


def halve_nodes(h: Float[Tensor, "batch *shape channels"]) -> Tensor:
    """Every second cell, from the first to the last: half of it and a quarter of each neighbour, in each dimension."""
    for d in range(1, h.ndim - 1):
        even = (slice(None),) * d + (slice(None, None, 2),)
        nodes, between = h[even], pad(h, [0, 0] * (h.ndim - 1 - d) + [1, 1])[even]
        count = nodes.shape[d]
        h = 0.5 * nodes + 0.25 * (between.narrow(d, 0, count) + between.narrow(d, 1, count))
    return h


def double_nodes(h: Float[Tensor, "batch *shape channels"]) -> Tensor:
    """The cells, and between each two of them their mean, in each dimension."""
    for d in range(1, h.ndim - 1):
        count = h.shape[d]
        between = 0.5 * (h.narrow(d, 0, count - 1) + h.narrow(d, 1, count - 1))
        pairs = torch.stack([h.narrow(d, 0, count - 1), between], dim=d + 1).flatten(d, d + 1)
        h = torch.cat([pairs, h.narrow(d, count - 1, 1)], dim=d)
    return h
