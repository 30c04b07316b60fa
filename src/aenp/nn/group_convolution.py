"""Group convolutions over C(n) and D(n) in the plane, with filters from a steerable basis."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.nn.convolution import CNN, Level, UNet, convolve
from aenp.symmetry import PointGroup


def steerable_basis(group: PointGroup, kernel: int) -> Float[Tensor, "elements basis kernel kernel"]:
    """Gaussian rings × circular harmonics, evaluated at the grid points moved by the inverse of each element.

    b_jm(r, φ) = exp(−(r − j)² / 2σ²) · cos or sin(m φ) for rings j = 0 … kernel // 2, with m up to 0 at the centre, 1
    at the outermost ring and 2 between: those that a square grid can rotate by 45° with little error.
    """
    if kernel % 2 == 0:
        raise ValueError(f"the kernel size must be odd; got {kernel}")
    radius = kernel // 2
    axis = torch.arange(-radius, radius + 1, dtype=torch.float64)
    points = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
    filters = []
    for element in group.elements():
        moved = element.inverse()(points)
        r = moved.norm(dim=-1)
        angle = torch.atan2(moved[..., 1], moved[..., 0])
        disc = r <= radius + 0.5
        rows = []
        for ring in range(radius + 1):
            profile = torch.exp(-0.5 * ((r - ring) / 0.6).square()) * disc
            rows.append(profile)
            for m in range(1, (0 if ring == 0 else 1 if ring == radius else 2) + 1):
                # A harmonic has no direction at the centre.
                rows += [profile * (r > 0.5) * wave for wave in ((m * angle).cos(), (m * angle).sin())]
        filters.append(torch.stack(rows))
    basis = torch.stack(filters)
    return basis / basis[:1].flatten(2).norm(dim=-1)[..., None, None]


class GroupConvolution(nn.Module):
    """(k ⋆ h)(u, g) = Σ_{v, g'} k(g⁻¹(v − u), g⁻¹g') h(v, g'), as one plain convolution with expanded filters.

    A field is a function on the plane and the group (the regular representation): `elements` channels, one for each
    g. A lifting convolution takes plain channels instead of fields: (k ⋆ h)(u, g) = Σ_v k(g⁻¹(v − u)) h(v).

    Args:
        group: C(n) or D(n).
        channels_in: number of channels, or of fields times elements unless `lift`.
        fields_out: number of fields; the output has `fields_out · elements` channels.
        kernel: odd kernel size.
        lift: whether the input has plain channels.
    """

    basis: Tensor
    relative: Tensor

    def __init__(self, group: PointGroup, channels_in: int, fields_out: int, kernel: int, lift: bool = False) -> None:
        super().__init__()
        elements = group.elements()
        basis = steerable_basis(group, kernel)
        self.register_buffer("basis", basis, persistent=False)
        matrices = torch.stack([element.matrix for element in elements])
        products = torch.einsum("gji,hjk->ghik", matrices, matrices)  # g⁻¹h
        table = (products.unsqueeze(2) - matrices).abs().sum(dim=(-1, -2)).argmin(dim=-1)
        self.register_buffer("relative", table, persistent=False)
        self.lift = lift
        fields_in = channels_in if lift else channels_in // len(elements)
        depth = 1 if lift else len(elements)
        count = basis.shape[1]
        scale = (2 / (fields_in * depth * count)) ** 0.5
        self.coefficients = nn.Parameter(scale * torch.randn(fields_out, fields_in, depth, count))
        self.bias = nn.Parameter(torch.zeros(fields_out))

    def filters(self) -> Float[Tensor, "channels_out channels_in kernel kernel"]:
        """The filters for each output element g: turned by g, their input elements permuted by it."""
        basis = self.basis.to(self.coefficients)
        if self.lift:
            filters = torch.einsum("oiub,gbxy->ogixy", self.coefficients, basis)
        else:
            permuted = self.coefficients[:, :, self.relative]  # (out, in, g, h, basis)
            filters = torch.einsum("oighb,gbxy->ogihxy", permuted, basis).flatten(2, 3)
        return filters.flatten(0, 1)

    def forward(self, h: Float[Tensor, "batch *shape channels_in"], level: Level) -> Tensor:
        bias = self.bias.repeat_interleave(len(self.basis))
        return convolve(h, self.filters(), bias) * level.mask

    def invariant(self, h: Float[Tensor, "batch *shape channels_in"], level: Level) -> Tensor:
        """The mean of each output field over the group, after a ReLU."""
        return self(h, level).relu_().unflatten(-1, (-1, len(self.basis))).mean(dim=-1)


class GroupCNN(CNN):
    """A CNN of group convolutions from plain channels to plain channels, with fields over the group in between.

    At the end a convolution of one cell makes `channels` fields, whose mean over the group is invariant.
    """

    def __init__(self, group: PointGroup, channels: int, fields: int, kernel: int, layers: int) -> None:
        width = fields * len(group.elements())
        lift = GroupConvolution(group, channels, fields, kernel, lift=True)
        super().__init__([lift, *(GroupConvolution(group, width, fields, kernel) for _ in range(layers - 1))])
        self.expand = GroupConvolution(group, width, channels, kernel=1)

    def forward(self, h: Float[Tensor, "batch *shape channels"], levels: Sequence[Level]) -> Tensor:
        return self.expand.invariant(super().forward(h, levels), levels[0])


class GroupUNet(UNet):
    """The same as a U-Net, which pools so that turns about the anchor of the grid are exact."""

    def __init__(self, group: PointGroup, channels: int, widths: Sequence[int], kernel: int) -> None:
        elements = len(group.elements())

        def make(channels_in: int, channels_out: int) -> GroupConvolution:
            return GroupConvolution(group, channels_in, channels_out // elements, kernel)

        super().__init__(make, widths, nodal=True)
        self.first = GroupConvolution(group, channels, widths[0] // elements, kernel, lift=True)
        self.expand = GroupConvolution(group, widths[0], channels, kernel=1)

    def forward(self, h: Float[Tensor, "batch *shape channels"], levels: Sequence[Level]) -> Tensor:
        return self.expand.invariant(super().forward(h, levels), levels[0])
