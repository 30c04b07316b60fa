"""Recipe: how a model is trained, as numbers."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Recipe:
    """How a model is trained: AdamW on −loglik, with clipped gradients and an average of the weights.

    Args:
        steps: number of steps, unless the budget is given in minutes.
        batch_size: tasks in a step, for each device.
        learning_rate: its largest value.
        schedule: `cosine`, half a cosine down to zero with a linear warm-up from zero; or `constant`.
        warmup: share of the budget in which the warm-up would reach the learning rate.
        weight_decay: of all parameters except vectors.
        clip: largest magnitude of an element of the gradient, or of its norm.
        clip_by: `value` or `norm`.
        average: decay of the exponential average of the weights, which is what is saved in the end; smaller at first.
        exact_first: share of the budget in which an approximate model is trained without its fixed inputs.
        elsewhere: share of the tasks that are mirrored and moved out of the domain of the fixed inputs, unless the
            model has no symmetry; see `Elsewhere`.
        optimiser: `adamw`, or `muon`, which makes the momentum of hidden matrices orthogonal.

    Example:
        >>> from aenp.training import Recipe
        >>> recipe = Recipe(steps=1000, learning_rate=1e-3)
        >>> [round(recipe.rate(share), 5) for share in (0.0, 0.025, 0.5, 1.0)]
        [0.0, 0.0005, 0.0005, 0.0]
    """

    steps: int
    batch_size: int = 16
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup: float = 0.05
    weight_decay: float = 0.01
    clip: float = 0.5
    clip_by: Literal["value", "norm"] = "value"
    average: float = 0.999
    optimiser: Literal["adamw", "muon"] = "adamw"
    exact_first: float = 0.0
    elsewhere: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError(f"steps and batch_size must be at least 1; got {self.steps} and {self.batch_size}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be positive; got {self.learning_rate}")
        for name, share in (("exact_first", self.exact_first), ("elsewhere", self.elsewhere)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is a share, between 0 and 1; got {share}")
        if not 0 < self.warmup < 1 or not 0 <= self.average < 1:
            raise ValueError(f"warmup and average are shares below 1; got {self.warmup} and {self.average}")

    def rate(self, share: float) -> float:
        """The learning rate when `share` of the budget is spent."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * min(share / self.warmup, 0.5 + 0.5 * math.cos(math.pi * min(share, 1.0)))
