"""The paper's experiments, one folder each, and what they share: training a model, scoring it, writing the report.

An experiment is a subclass of `Experiment` in a folder here, or in a module that an installed package names as an
entry point of the group `aenp.experiments`; nothing else needs to change.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules

from aenp.experiments.experiment import Experiment, Preset, key, key_of

__all__ = ["Experiment", "Preset", "experiment_class", "experiments", "key", "key_of"]


def experiments() -> dict[str, type[Experiment]]:
    """Every experiment by name.

    Example:
        >>> from aenp.experiments import experiments
        >>> "gp" in experiments()
        True
    """
    _import_all()
    return dict(sorted(Experiment.known.items()))


def experiment_class(name: str) -> type[Experiment]:
    """The experiment of this name.

    Example:
        >>> from aenp.experiments import experiment_class
        >>> experiment_class("gp").title
        '1-D regression with the Gibbs kernel'
    """
    if name not in experiments():
        raise ValueError(f"experiment must be one of {', '.join(experiments())}; got {name!r}")
    return experiments()[name]


@cache
def _import_all() -> None:
    for module in iter_modules(__path__):
        if module.ispkg:
            import_module(f"{__name__}.{module.name}")
    for entry in entry_points(group="aenp.experiments"):
        entry.load()
