"""Muon: momentum whose matrices are made orthogonal, for hidden layers; AdamW for all other parameters."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"Of the quintic whose iteration brings singular values near one in five steps."


class Muon(torch.optim.Optimizer):
    """Groups with `orthogonal` are updated by Muon, the others by AdamW; either has about the same size of update.

    Args:
        groups: of parameters, each with `orthogonal` and `weight_decay`.
        lr: the learning rate.
        momentum: of the matrices.
        betas: of AdamW.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "betas": betas, "orthogonal": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            (self._orthogonal if group["orthogonal"] else self._adam)(parameters, group)
        return loss

    def _orthogonal(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        alike = defaultdict(list)
        for parameter in parameters:
            alike[parameter.flatten(1).shape].append(parameter)
        for shape, same in alike.items():
            gradients = torch.stack([parameter.grad.flatten(1) for parameter in same])  # type: ignore[union-attr]
            moments = self._moments("momentum", same)
            torch._foreach_lerp_(
                moments, [g.view_as(p) for g, p in zip(gradients, same, strict=True)], 1 - group["momentum"]
            )
            ahead = gradients.lerp(torch.stack([moment.flatten(1) for moment in moments]), group["momentum"])
            update = orthogonal(ahead) * (0.2 * max(shape) ** 0.5)
            updates = [u.view_as(p) for u, p in zip(update, same, strict=True)]
            torch._foreach_add_(same, updates, alpha=-group["lr"])

    def _adam(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        first, second = self._moments("exp_avg", parameters), self._moments("exp_avg_sq", parameters)
        steps = [self.state[p].setdefault("step", torch.zeros(())) for p in parameters]
        torch._foreach_add_(steps, 1)
        gradients, step = [p.grad for p in parameters if p.grad is not None], steps[0].item()
        fast, slow = group["betas"]
        torch._foreach_lerp_(first, gradients, 1 - fast)
        torch._foreach_mul_(second, slow)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - slow)
        scales = torch._foreach_sqrt(torch._foreach_div(second, 1 - slow**step))
        torch._foreach_add_(scales, 1e-8)
        torch._foreach_addcdiv_(parameters, first, scales, -group["lr"] / (1 - fast**step))

    def _moments(self, name: str, parameters: list[Tensor]) -> list[Tensor]:
        return [self.state[p].setdefault(name, torch.zeros_like(p)) for p in parameters]


def orthogonal(matrices: Float[Tensor, "batch rows columns"], steps: int = 5) -> Float[Tensor, "batch rows columns"]:
    """U Vᵀ of each matrix U S Vᵀ, nearly: singular values between about 0.7 and 1.2 (Newton–Schulz)."""
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / x.flatten(1).norm(dim=1)[:, None, None].clamp(min=1e-12)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x if wide else x.mT
