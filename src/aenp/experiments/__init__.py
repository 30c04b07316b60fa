"""The paper's experiments by name."""

from aenp.experiments.era5 import Temperature
from aenp.experiments.era5_points import PointTemperature, SpaceTimeTemperature
from aenp.experiments.experiment import Experiment, Preset, key
from aenp.experiments.gp import Gibbs
from aenp.experiments.smoke import Smoke
from aenp.process import NeuralProcess
from aenp.shipped import pretrained, shipped

EXPERIMENTS: dict[str, type[Experiment]] = {
    experiment.name: experiment for experiment in (Gibbs, Smoke, Temperature, PointTemperature, SpaceTimeTemperature)
}


def shipped_models(experiment: Experiment) -> dict[str, NeuralProcess]:
    """The shipped models of an experiment by name, in the paper's order."""
    experiment.check_shipped()
    name = experiment.name
    names = [key(*model) for model in experiment.models if f"{name}/{key(*model)}" in shipped(name)]
    if not names:
        raise ValueError(f"no models of {name} are shipped; train some, and give their --weights")
    return {model: pretrained(f"{name}/{model}") for model in names}


__all__ = ["EXPERIMENTS", "Experiment", "Preset", "key", "shipped_models"]
