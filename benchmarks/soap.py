"""SOAP: Adam in the eigenbases of each matrix's second moments, tried against Muon and AdamW in `recipes.py`."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aenp.training.muon import Muon

EVERY = 10
"Steps between two updates of the bases."
LARGEST = 256
"The largest side of a matrix that has a basis of its own."


class SOAP(Muon):
    """As `Muon`, with the hidden matrices trained by SOAP."""

    def _orthogonal(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        alike = defaultdict(list)
        for parameter in parameters:
            alike[parameter.flatten(1).shape].append(parameter)
        for same in alike.values():
            gradients = torch.stack([parameter.grad.flatten(1) for parameter in same])  # type: ignore[union-attr]
            update = self._rotated(gradients, self.state[same[0]], group["betas"][0])
            torch._foreach_add_(same, [u.view_as(p) for u, p in zip(update, same, strict=True)], alpha=-group["lr"])

    @staticmethod
    def _rotated(
        gradients: Float[Tensor, "batch rows columns"], state: dict[str, Any], fast: float, slow: float = 0.95
    ) -> Float[Tensor, "batch rows columns"]:
        """Adam's update of these matrices in the bases of their rows and columns."""
        products = [gradients @ gradients.mT, gradients.mT @ gradients]
        if not state:
            state |= {"step": 0, "first": torch.zeros_like(gradients), "second": torch.zeros_like(gradients)}
            state["moments"] = [(1 - slow) * product for product in products]
            state["bases"] = [basis(moment) for moment in state["moments"]]
        state["step"] += 1
        step, bases = state["step"], state["bases"]
        state["first"].lerp_(gradients, 1 - fast)
        turned = turn(gradients, bases)
        state["second"].lerp_(turned.square(), 1 - slow)
        scale = (state["second"] / (1 - slow**step)).sqrt() + 1e-8
        update = turn(turn(state["first"], bases) / (1 - fast**step) / scale, [each.mT for each in bases])
        for moment, product in zip(state["moments"], products, strict=True):
            moment.lerp_(product, 1 - slow)
        if step % EVERY == 0:
            state["bases"] = [basis(m, old) for m, old in zip(state["moments"], bases, strict=True)]
        return update


def turn(matrices: Tensor, bases: list[Tensor]) -> Tensor:
    """The matrices in these bases of their rows and columns; an empty basis leaves them as they are."""
    rows, columns = bases
    matrices = rows.mT @ matrices if rows.numel() else matrices
    return matrices @ columns if columns.numel() else matrices


def basis(moment: Tensor, old: Tensor | None = None) -> Tensor:
    """Eigenvectors of the moment, from `old` ones by one step of power iteration; none if it is large."""
    if moment.shape[-1] > LARGEST:
        return moment.new_zeros(len(moment), 0, 0)
    if old is None:
        return torch.linalg.eigh(moment).eigenvectors.flip(-1)
    return torch.linalg.qr(moment @ old).Q


def with_soap(make: Callable[..., torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """The maker of optimisers, with SOAP wherever it makes Muon."""

    def made(*arguments: Any, **options: Any) -> torch.optim.Optimizer:
        optimiser = make(*arguments, **options)
        return SOAP(optimiser.param_groups, optimiser.defaults["lr"]) if isinstance(optimiser, Muon) else optimiser

    return made
