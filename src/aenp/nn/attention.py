"""Attention: one module, given the kernel that weighs keys against queries."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from aenp.nn.mlp import MLP

Mask = Bool[Tensor, "batch keys"] | None
KeysValues = tuple[Float[Tensor, "batch heads keys size"], Float[Tensor, "batch heads keys size"]]


class Attention(nn.Module):
    """out_h(q) = Σ_k softmax_k(logit_h(q, k)) v_h(k), the heads joined by a linear map.

    Args:
        dim: size of the tokens.
        heads: number of heads; divides `dim`.
        kernel: from queries, keys, values and positions to each head's output; a plain dot product by default.
    """

    def __init__(self, dim: int, heads: int, kernel: "Kernel | None" = None) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads; got dim={dim} and heads={heads}")
        self.heads = heads
        self.kernel = kernel or DotProduct()
        self.to_query = nn.Linear(dim, dim)
        self.to_key_value = nn.Linear(dim, 2 * dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(
        self,
        z: Float[Tensor, "batch queries dim"],
        context: Float[Tensor, "batch keys dim"],
        x: Any = None,
        context_x: Any = None,
        mask: Mask = None,
    ) -> Float[Tensor, "batch queries dim"]:
        """What each query token finds in the context.

        Args:
            z: query tokens, `(batch, queries, dim)`.
            context: key tokens, `(batch, keys, dim)`; where there is none, the output is the linear map's bias.
            x: positions of the queries, as the kernel takes them; None for a plain dot product.
            context_x: positions of the keys.
            mask: `(batch, keys)`, True where a key counts; None if all do.
        """
        return self.read(z, self.keys_values(context), x, context_x, mask)

    def keys_values(self, context: Float[Tensor, "batch keys dim"]) -> KeysValues:
        """What queries see of the context, to be computed once for all of them."""
        key, value = self.to_key_value(context).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return key, value

    def read(
        self,
        z: Float[Tensor, "batch queries dim"],
        keys_values: KeysValues,
        x: Any = None,
        context_x: Any = None,
        mask: Mask = None,
    ) -> Float[Tensor, "batch queries dim"]:
        """The same, given the context's keys and values."""
        query = self.to_query(z).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return self.to_out(self.kernel(query, *keys_values, x, context_x, mask).transpose(1, 2).flatten(2))


class AttentionBlock(nn.Module):
    """z ← z + Attention(norm z, norm context); z ← z + MLP(norm z). Without a context, z attends to itself."""

    def __init__(self, dim: int, heads: int, kernel: "Kernel | None" = None) -> None:
        super().__init__()
        self.attention = Attention(dim, heads, kernel)
        self.norm, self.norm_context, self.norm_mlp = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = MLP(dim, dim, width=dim)

    def forward(
        self,
        z: Float[Tensor, "batch queries dim"],
        context: Float[Tensor, "batch keys dim"],
        x: Any = None,
        context_x: Any = None,
        mask: Mask = None,
    ) -> Float[Tensor, "batch queries dim"]:
        return self.read(z, self.keys_values(context), x, context_x, mask)

    def keys_values(self, context: Float[Tensor, "batch keys dim"]) -> KeysValues:
        """What queries see of the context, to be computed once for all of them."""
        return self.attention.keys_values(self.norm_context(context))

    def read(
        self,
        z: Float[Tensor, "batch queries dim"],
        keys_values: KeysValues,
        x: Any = None,
        context_x: Any = None,
        mask: Mask = None,
    ) -> Float[Tensor, "batch queries dim"]:
        """The same, given the context's keys and values."""
        z = z + self.attention.read(self.norm(z), keys_values, x, context_x, mask)
        return z + self.mlp(self.norm_mlp(z))


class Kernel(nn.Module, ABC):
    """From queries, keys, values and positions to each head's output: Σ_k softmax_k(logit(q, k)) v_k.

    A query whose task has no key that counts gets zeros.
    """

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "batch heads queries size"],
        key: Float[Tensor, "batch heads keys size"],
        value: Float[Tensor, "batch heads keys size"],
        x: Any,
        context_x: Any,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries size"]: ...


class DotProduct(Kernel):
    """logit_h = q_h · k_h / √d; positions are ignored."""

    def forward(
        self,
        query: Float[Tensor, "batch heads queries size"],
        key: Float[Tensor, "batch heads keys size"],
        value: Float[Tensor, "batch heads keys size"],
        x: None,
        context_x: None,
        mask: Mask,
    ) -> Float[Tensor, "batch heads queries size"]:
        return masked_attention(query, key, value, mask)


def masked_attention(
    query: Float[Tensor, "batch heads queries size"],
    key: Float[Tensor, "batch heads keys size"],
    value: Float[Tensor, "batch heads keys size"],
    mask: Mask,
) -> Float[Tensor, "batch heads queries size"]:
    """softmax(query · keyᵀ / √size) value over the keys that count; zero for a task that has none."""
    if key.shape[2] == 0:
        return torch.zeros_like(query)
    if mask is None:
        return scaled_dot_product_attention(query, key, value)
    some = mask.any(dim=1)[:, None, None, None]
    # A softmax over nothing is NaN: where no key counts, let all count and drop the result.
    allowed = mask[:, None, None, :] | ~some
    return scaled_dot_product_attention(query, key, value, attn_mask=allowed) * some
