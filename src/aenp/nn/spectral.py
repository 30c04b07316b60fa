"""Spectral attention: exactly translation equivariant, at the cost of a plain dot product."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from aenp.nn.attention import Kernel, Mask, masked_attention

Wavelengths = Sequence[float] | Sequence[Sequence[float]]

CONTENT = 0.25  # share of a head's channels that do not turn: they see a token's content, not its position
PEAK = 3.0  # initial logit of a query for a key at its own place


class Spectral(Kernel):
    """logit(i, j) = Re Σ_p q_p k̄_p e^{iω_p·(x_i − x_j)} / √d; out_p(i) = Σ_j softmax_j(logit) v_p e^{iω_p·(x_j − x_i)}.

    Pairs p of a head's channels are read as complex numbers. Turned by e^{iω_p·x}, queries and keys meet in an ordinary
    dot product, which depends on x_i − x_j alone, and values carry their position relative to the query.
    """

    def forward(
        self,
        query: Float[Tensor, "batch heads queries size"],
        key: Float[Tensor, "batch heads keys size"],
        value: Float[Tensor, "batch heads keys size"],
        x: Complex[Tensor, "batch heads queries pairs"],
        context_x: Complex[Tensor, "batch heads keys pairs"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries size"]:
        out = masked_attention(turn(query, x), turn(key, context_x), turn(value, context_x), mask)
        return turn(out, x.conj())


def turn(
    channels: Float[Tensor, "batch heads points size"], phases: Complex[Tensor, "batch heads points pairs"]
) -> Float[Tensor, "batch heads points size"]:
    """Pairs of channels, as complex numbers, times the phases."""
    pairs = torch.view_as_complex(channels.to(phases.real.dtype).unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * phases).flatten(-2)


class Frequencies(nn.Module):
    """e^{iω_p·x} for each head's pairs p; made once for all layers.

    ω_p = 2π (1 + δ_p) · direction_p / λ_p, with wavelengths λ_p on a geometric scale divided among the heads, random
    directions in more than one dimension, and a learned relative change δ_p. The first pairs have ω = 0.

    Args:
        dim_x: input dimension.
        heads: number of heads.
        size: channels of a head, an even number.
        wavelengths: the shortest and the longest λ, or one such pair for each dimension of x.
    """

    frequencies: Tensor

    def __init__(self, dim_x: int, heads: int, size: int, wavelengths: Wavelengths) -> None:
        super().__init__()
        limits = np.asarray(wavelengths, dtype=float)
        if limits.shape not in ((2,), (dim_x, 2)) or not (limits[..., 0] > 0).all() or not (np.diff(limits) >= 0).all():
            raise ValueError(
                f"wavelengths must be (shortest, longest), or one such pair for each dimension; got {wavelengths}"
            )
        if size % 2:
            raise ValueError(f"spectral attention needs an even number of channels in each head; got {size}")
        still = self.still(size)
        turning = size // 2 - still
        fraction = torch.linspace(0, 1, heads * turning, dtype=torch.float64).view(turning, heads).T.unsqueeze(-1)
        shortest, longest = torch.tensor(np.log(limits)).expand(dim_x, 2).unbind(-1)
        directions = torch.randn(heads, turning, dim_x, dtype=torch.float64)
        directions = directions / directions.norm(dim=-1, keepdim=True) if dim_x > 1 else torch.ones_like(directions)
        frequencies = 2 * math.pi * directions / (shortest + fraction * (longest - shortest)).exp()
        self.register_buffer(
            "frequencies",
            torch.cat([torch.zeros(heads, still, dim_x), frequencies], dim=1).to(torch.get_default_dtype()),
        )
        self.change = nn.Parameter(torch.zeros(heads, turning, dim_x))

    @staticmethod
    def still(size: int) -> int:
        """The number of pairs of a head that do not turn."""
        return max(1, round(CONTENT * size / 2)) if size > 2 else 0

    def forward(self, x: Float[Tensor, "batch points dim_x"]) -> Complex[Tensor, "batch heads points pairs"]:
        """The phases at positions near the origin, given in the coordinates' own dtype."""
        change = torch.nn.functional.pad(self.change, [0, 0, self.frequencies.shape[1] - self.change.shape[1], 0])
        frequencies = self.frequencies * (1 + change)
        # Whole turns are removed in float64, so that phases are as exact far from the origin as near it.
        turns = torch.einsum("bnd,hpd->bhnp", x.double(), frequencies.double() / (2 * math.pi))
        angle = 2 * math.pi * (turns - turns.detach().round()).to(frequencies.dtype)
        return torch.complex(angle.cos(), angle.sin())

    @torch.no_grad()
    def start_local(self, query_bias: Tensor, key_bias: Tensor) -> None:
        """Makes each head initially attend to points near the query, over a length of its own between the scales.

        With keys of 1 and queries of PEAK · g_p on the turning pairs the logit is PEAK · Σ_p g_p cos(ω_p·Δx), which is
        near a Gaussian of length ℓ in Δx for g_p ∝ |ω_p| exp(−|ω_p|² ℓ² / 2).
        """
        heads, pairs, _ = self.frequencies.shape
        still = pairs - self.change.shape[1]
        omega = self.frequencies[:, still:].norm(dim=-1)
        longest, shortest = 2 * math.pi / omega.min(), 2 * math.pi / omega.max()
        length = shortest / 2 * (longest / shortest) ** torch.linspace(0, 1, heads).unsqueeze(-1)
        share = (omega.log() - (omega * length).square() / 2).softmax(dim=-1)
        query_bias.view(heads, pairs, 2)[:, still:, 0] = PEAK * math.sqrt(2 * pairs) * share
        key_bias.view(heads, pairs, 2)[:, still:, 0] = 1.0
