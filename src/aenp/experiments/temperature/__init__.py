"""Surface temperature: on the grid, at points, and in space, time and elevation."""

from aenp.experiments.temperature.grid import Temperature
from aenp.experiments.temperature.points import PointTemperature
from aenp.experiments.temperature.space_time import SpaceTimeTemperature

__all__ = ["PointTemperature", "SpaceTimeTemperature", "Temperature"]
