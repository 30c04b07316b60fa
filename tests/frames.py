"""A small frame for tests of fields."""

from aenp.earth.frame import Axis, Frame, Variable


def frame(south: float, north: float, west: float, east: float) -> Frame:
    """Temperatures of 280 ± 5 K in a box, a unit of x being four degrees."""
    sides = (("latitude", south, north), ("longitude", west, east))
    axes = [Axis(name, 4.0, (low + high) / 2, low, high) for name, low, high in sides]
    return Frame(axes, [Variable("t2m", 280.0, 5.0, "K")])
