"""The paper's experiments by name."""

from aenp.experiments.experiment import Experiment, Preset, key
from aenp.experiments.gp import Gibbs
from aenp.process import NeuralProcess
from aenp.shipped import pretrained

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (Gibbs(),)}


def shipped_models(name: str) -> dict[str, NeuralProcess]:
    """The shipped models of an experiment by name, in the paper's order."""
    return {model: pretrained(f"{name}/{model}") for model in (key(*model) for model in EXPERIMENTS[name].models)}


__all__ = ["EXPERIMENTS", "Experiment", "Preset", "key", "shipped_models"]
