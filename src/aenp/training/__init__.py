"""Training: the loop and its recipe, progress on the screen, and the run's directory.

It depends on models and sources of tasks, not on experiments.
"""

from typing import TYPE_CHECKING, Any

from aenp.training.machine import Machine
from aenp.training.recipe import Recipe

if TYPE_CHECKING:
    from aenp.training.loop import train

__all__ = ["Machine", "Recipe", "train"]


def __getattr__(name: str) -> Any:
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aenp.training.loop import train  # needs Lightning

    return train
