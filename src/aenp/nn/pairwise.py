"""PairwiseMLP: the paper's translation-equivariant attention, computed in tiles."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.nn.attention import Kernel, Mask
from aenp.nn.mlp import MLP

TILE = 768  # pairs at a time for each thread: their activations stay in its cache, and matrix products are still fast
PAD = 16  # unused columns: rows whose distance is a power of two would compete for the same lines of the cache


class PairwiseMLP(Kernel):
    """logit(i, j) = MLP([q_1·k_1/√d, …, q_H·k_H/√d, x_i − x_j]) ∈ R^H for query i and key j (appendix B.3).

    The MLP's hidden layers are computed for some pairs at a time, and once more in the backward pass: memory grows with
    pairs × heads, not with pairs × width.
    """

    def __init__(self, dim_x: int, heads: int, width: int) -> None:
        super().__init__()
        self.mlp = MLP(heads + dim_x, heads, width=width)

    def forward(
        self,
        query: Float[Tensor, "batch heads queries size"],
        key: Float[Tensor, "batch heads keys size"],
        value: Float[Tensor, "batch heads keys size"],
        x: Float[Tensor, "batch queries dim_x"],
        context_x: Float[Tensor, "batch keys dim_x"],
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries size"]:
        weights = (
            torch.cat([layer.weight, layer.bias[:, None]], dim=1) for layer in self.mlp if isinstance(layer, nn.Linear)
        )
        # Features first and pairs last: dot products and logits then need no permutation.
        logits = torch.ops.aenp.pairwise_mlp(
            (query * query.shape[-1] ** -0.5).to(x.dtype).transpose(0, 1),
            key.to(x.dtype).transpose(0, 1),
            x.permute(2, 0, 1),
            context_x.permute(2, 0, 1),
            *weights,
        ).transpose(0, 1)
        if mask is None:
            return logits.softmax(dim=-1) @ value
        # Not −∞: where no key counts, a softmax of it would be NaN.
        logits = logits.masked_fill(~mask[:, None, None], torch.finfo(logits.dtype).min)
        return (logits.softmax(dim=-1) @ value) * mask.any(dim=1)[:, None, None, None]


# The operator below takes `(heads, batch, points, size)`, `(dim_x, batch, points)` and each layer's weights with its
# bias as the last column, which multiplies a feature that is always one.

_INPUTS = "Tensor q, Tensor k, Tensor xq, Tensor xk, Tensor w1, Tensor w2, Tensor w3"
torch.library.define("aenp::pairwise_mlp", f"({_INPUTS}) -> Tensor")
torch.library.define(
    "aenp::pairwise_mlp_backward",
    f"(Tensor grad, {_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)


def _features(q: Tensor, k: Tensor, xq: Tensor, xk: Tensor) -> Float[Tensor, "features pairs"]:
    """[q·k, xq − xk, 1] for every pair."""
    heads, batch, queries, _ = q.shape
    x = q.new_ones(heads + len(xq) + 1, batch, queries, k.shape[2])
    torch.matmul(q, k.mT, out=x[:heads])
    torch.sub(xq[..., None], xk[:, :, None], out=x[heads:-1])
    return x.flatten(1)


def _tile() -> int:
    return TILE * min(torch.get_num_threads(), 4)


def _buffers(count: int, x: Tensor, w1: Tensor) -> Float[Tensor, "count features tile"]:
    """Room for the activations of one tile, with a last row of ones."""
    buffers = x.new_empty(count, len(w1) + 1, min(_tile(), x.shape[1]) + PAD)
    buffers[:, -1] = 1.0
    return buffers


@torch.library.impl("aenp::pairwise_mlp", "default")
def _forward(q: Tensor, k: Tensor, xq: Tensor, xk: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
    x = _features(q, k, xq, xk)
    logits = x.new_empty(len(w3), *q.shape[1:3], k.shape[2])
    buffers = _buffers(2, x, w1)
    for some, out in zip(x.split(_tile(), 1), logits.flatten(1).split(_tile(), 1), strict=True):
        h1, h2 = buffers[:, :, : some.shape[1]]
        torch.mm(w1, some, out=h1[:-1]).relu_()
        torch.mm(w2, h1, out=h2[:-1]).relu_()
        torch.mm(w3, h2, out=out)
    return logits


@torch.library.impl("aenp::pairwise_mlp_backward", "default")
def _backward(
    grad: Tensor, q: Tensor, k: Tensor, xq: Tensor, xk: Tensor, w1: Tensor, w2: Tensor, w3: Tensor
) -> tuple[Tensor, ...]:
    x = _features(q, k, xq, xk)
    grad_weights = _mlp_backward(grad.flatten(1), x, w1, w2, w3)
    grad_x = x.unflatten(1, grad.shape[1:])
    grad_dots, grad_difference = grad_x[: len(q)], grad_x[len(q) : -1]
    return grad_dots @ k, grad_dots.mT @ q, grad_difference.sum(-1), -grad_difference.sum(-2), *grad_weights


def _mlp_backward(grad: Tensor, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the weights; x, except its ones, is overwritten by its own gradient."""
    v1, v2, v3 = w1[:, :-1].T, w2[:, :-1].T, w3[:, :-1].T
    grad_w1, grad_w2, grad_w3 = (w.new_zeros(w.shape) for w in (w1, w2, w3))
    relu_backward = torch.ops.aten.threshold_backward.grad_input
    buffers = _buffers(3, x, w1)
    for some, grad_out in zip(x.split(_tile(), 1), grad.split(_tile(), 1), strict=True):
        h1, h2, g2 = buffers[:, :, : some.shape[1]]
        torch.mm(w1, some, out=h1[:-1]).relu_()
        torch.mm(w2, h1, out=h2[:-1]).relu_()
        grad_w3.addmm_(grad_out, h2.T)
        g1, g2 = h2[:-1], g2[:-1]  # the gradient of the first layer takes the place of h2
        relu_backward(torch.mm(v3, grad_out, out=g2), h2[:-1], 0, grad_input=g2)
        grad_w2.addmm_(g2, h1.T)
        relu_backward(torch.mm(v2, g2, out=g1), h1[:-1], 0, grad_input=g1)
        grad_w1.addmm_(g1, some.T)
        torch.mm(v1, g1, out=some[:-1])
    return grad_w1, grad_w2, grad_w3


@torch.library.register_fake("aenp::pairwise_mlp")
def _forward_fake(q: Tensor, k: Tensor, *inputs: Tensor) -> Tensor:
    return q.new_empty(*q.shape[:3], k.shape[2])


@torch.library.register_fake("aenp::pairwise_mlp_backward")
def _backward_fake(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(value.new_empty(value.shape) for value in inputs)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> Any:
    return torch.ops.aenp.pairwise_mlp_backward(grad, *ctx.saved_tensors)


def _no_gradients(ctx: Any, *grads: Tensor) -> None:
    raise RuntimeError("attention='mlp' can be differentiated once only; use attention='spectral'")


torch.library.register_autograd("aenp::pairwise_mlp", _gradients, setup_context=_save)
torch.library.register_autograd("aenp::pairwise_mlp_backward", _no_gradients)
