"""One-dimensional convolutions, at least about as fast on a CPU as a matrix product, forward and backward."""

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import conv2d

FOURIER = 15  # smallest kernel size for which Fourier transforms are faster than sums
SPECTRA = 2**25  # largest number of values in the filters of all frequencies


def convolve_line(
    h: Float[Tensor, "batch cells channels_in"],
    weight: Float[Tensor, "channels_out channels_in kernel"],
    bias: Float[Tensor, " channels_out"],
) -> Float[Tensor, "batch cells channels_out"]:
    """Σ_v weight(v) h(u + v) + bias, with zeros around the array."""
    if torch.is_autocast_enabled(h.device.type):
        # Cast before autograd sees them: the backward pass, outside autocast, needs one dtype too.
        dtype = torch.get_autocast_dtype(h.device.type)
        return DirectConvolution.apply(h.to(dtype), weight.to(dtype)) + bias
    short = h.shape[1] * weight[..., 0].numel() <= SPECTRA
    if weight.shape[-1] >= FOURIER and short and not torch.compiler.is_compiling():
        return FourierConvolution.apply(h, weight) + bias
    return DirectConvolution.apply(h, weight) + bias


class DirectConvolution(torch.autograd.Function):
    """The output and the gradient of h are two-dimensional channels-last convolutions of an array one cell high.

    The gradient of the weights is a matrix product for each v, of the batch laid end to end with zeros in between.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(h, weight)
        return DirectConvolution._convolve(h, weight)

    @staticmethod
    def _convolve(h: Tensor, weight: Tensor) -> Tensor:
        plane, padding = h.movedim(-1, 1).unsqueeze(2), [0, weight.shape[-1] // 2]
        return conv2d(plane, weight.unsqueeze(2), padding=padding).squeeze(2).movedim(1, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        h, weight = ctx.saved_tensors
        to_h = to_weight = None
        if ctx.needs_input_grad[0]:
            to_h = DirectConvolution._convolve(gradient, weight.transpose(0, 1).flip(-1))
        if ctx.needs_input_grad[1]:
            size = weight.shape[-1]
            gradients = spaced(gradient, 0, size - 1)[: 1 - size or None]
            shifted = spaced(h, size // 2, size // 2).unfold(0, len(gradients), 1).mT  # a view: for each v, from row v
            to_weight = (gradients.T @ shifted).movedim(0, -1)
        return to_h, to_weight


def spaced(h: Float[Tensor, "batch cells channels"], before: int, after: int) -> Float[Tensor, "rows channels"]:
    """The rows of all tasks one after another, each task with zeros before and after it."""
    rows = h.new_empty(len(h), before + h.shape[1] + after, h.shape[2])
    rows[:, :before] = 0.0
    rows[:, before : before + h.shape[1]] = h
    rows[:, before + h.shape[1] :] = 0.0
    return rows.flatten(0, 1)


class FourierConvolution(torch.autograd.Function):
    """The same by a matrix product for each frequency f: y(f) = Σ_v weight(v) e^{2πi f v / n} · h(f).

    The number of multiplications does not depend on the kernel's size. Differentiable once.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor) -> Tensor:
        size = weight.shape[-1]
        length = -(-(h.shape[1] + size // 2) // 32) * 32  # long enough for zeros around, and fast to transform
        waves = _waves(size, length, h.dtype, h.device)
        taps = weight.permute(2, 1, 0).flatten(1)
        filters = torch.complex(*(waves @ taps)).unflatten(1, (weight.shape[1], -1))
        spectrum = FourierConvolution._transform(h, length)
        ctx.save_for_backward(spectrum, filters)
        ctx.size, ctx.length, ctx.cells = size, length, h.shape[1]
        return FourierConvolution._return(spectrum @ filters, length, h.shape[1])

    @staticmethod
    def _transform(h: Tensor, length: int) -> Tensor:
        """The spectrum of each channel: `(frequencies, batch, channels)`."""
        return torch.fft.rfft(h, length, dim=1).transpose(0, 1).contiguous()

    @staticmethod
    def _return(spectrum: Tensor, length: int, cells: int) -> Tensor:
        return torch.fft.irfft(spectrum, length, dim=0)[:cells].transpose(0, 1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        spectrum, filters = ctx.saved_tensors
        gradients = FourierConvolution._transform(gradient, ctx.length).conj().resolve_conj()
        to_h = to_weight = None
        if ctx.needs_input_grad[0]:
            to_h = FourierConvolution._return((gradients @ filters.mT).conj(), ctx.length, ctx.cells)
        if ctx.needs_input_grad[1]:
            products = torch.view_as_real(spectrum.mT @ gradients)
            waves = _waves(ctx.size, ctx.length, gradient.dtype, gradient.device)
            # The inverse transform at the kernel's cells: each frequency except the first and the last counts twice.
            count = torch.full_like(waves[0, :, :1], 2 / ctx.length)
            count[0] = count[-1] = 1 / ctx.length
            cosine, sine = ((waves * count).mT.flatten(0, 1) @ products.flatten(1)).unflatten(0, (2, -1))
            taps = cosine.unflatten(1, products.shape[1:])[..., 0] - sine.unflatten(1, products.shape[1:])[..., 1]
            to_weight = taps.permute(2, 1, 0)
        return to_h, to_weight


@lru_cache(maxsize=64)
def _waves(size: int, length: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "2 frequencies size"]:
    """cos and sin of 2π f v / length for each frequency f and each cell v of a kernel."""
    with torch.inference_mode(False):  # a later training may use them too
        cells = torch.arange(size, dtype=torch.float64) - size // 2
        angle = 2 * torch.pi / length * torch.outer(torch.arange(length // 2 + 1, dtype=torch.float64), cells)
        return torch.stack([angle.cos(), angle.sin()]).to(dtype).to(device)
