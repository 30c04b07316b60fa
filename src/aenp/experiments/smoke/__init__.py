"""Smoke plumes: the experiment, the simulator and the data set on disk."""

from aenp.experiments.smoke.experiment import Smoke

__all__ = ["Smoke"]
