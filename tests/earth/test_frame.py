"""Frame: a user's coordinates and values go to a model's units and back, wherever on the globe and whenever."""

import math

import numpy as np
import pytest

from aenp.configured import build
from aenp.earth.frame import Axis, Frame, Variable

LATITUDE, LONGITUDE = Axis("latitude", 4.0, 45.0, 40.0, 50.0), Axis("longitude", 8.0, 3.0, -10.0, 10.0)
TIME, ELEVATION = Axis("time", 4.0, 18000.0, 18000.0, 18365.0), Axis("elevation", 1000.0)
KELVIN, RAIN = Variable("t2m", 280.0, 5.0, "K", "temperature"), Variable("rain", 2.0, 0.5, "mm")
FRAME = Frame([LATITUDE, LONGITUDE, TIME, ELEVATION], [KELVIN, RAIN])


def draws(low: float, high: float, shape: tuple[int, ...] = (200,)) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, shape)


@pytest.mark.parametrize("axis", [LATITUDE, TIME, ELEVATION, Axis("longitude", 8.0, 3.0)], ids=lambda axis: axis.name)
@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 4)])
def test_coordinates_come_back_from_the_models_unit(axis: Axis, shape: tuple[int, ...]) -> None:
    values = draws(-80, 80, shape)
    x = axis.x(values)
    assert x.shape == shape and x.dtype == np.float64
    np.testing.assert_allclose(axis.origin + axis.unit * x, values, rtol=0, atol=1e-9)
    assert axis.x(axis.origin) == 0 and axis.x(axis.origin + axis.unit) == 1


def test_values_come_back_from_the_models_unit() -> None:
    values = draws(200, 320)
    for variable in FRAME.variables:
        np.testing.assert_allclose(variable.mean + variable.std * variable.y(values), values)
    assert KELVIN.y(285.0) == 1 and RAIN.y(1.0) == -2


@pytest.mark.parametrize("turns", [-2, -1, 1, 3])
@pytest.mark.parametrize(("low", "high"), [(-10.0, 10.0), (170.0, 190.0), (-190.0, -170.0), (0.0, 360.0), (5.0, 5.0)])
def test_longitudes_are_the_same_after_whole_turns(low: float, high: float, turns: int) -> None:
    """In a box of any kind, and all longitudes lie less than half a turn from its middle."""
    axis = Axis("longitude", 8.0, 3.0, low, high)
    longitude = draws(low - 100, low + 200)
    np.testing.assert_allclose(axis.x(longitude + 360 * turns), axis.x(longitude), rtol=0, atol=1e-9)
    assert (np.abs(axis.origin + axis.unit * axis.x(longitude) - (low + high) / 2) <= 180 + 1e-9).all()


def test_a_box_across_the_date_line_is_one_piece() -> None:
    """Its longitudes are in order from west to east, whichever way they are counted."""
    axis = Axis("longitude", 8.0, 180.0, 170.0, 190.0)
    frame = Frame([Axis("latitude", 4.0), axis], [KELVIN])
    np.testing.assert_allclose(axis.x([170, 179, -180, 180, -179, -170]) * 8, [-10, -1, 0, 0, 1, 10], atol=1e-9)
    inside = frame.inside({"latitude": 0.0, "longitude": [170, -170, 190, -190, 169, -169, 0]})
    assert inside.tolist() == [True] * 4 + [False] * 3


def test_without_a_box_longitudes_are_unchanged() -> None:
    assert Axis("longitude", 2.0).x([-370, 0, 350]).tolist() == [-185, 0, 175]


@pytest.mark.parametrize("resolution", ["D", "h", "s", "ns"])
def test_dates_are_days_since_1970(resolution: str) -> None:
    """Of any resolution, and a missing date is NaN."""
    dates = np.array(["1970-01-01", "2019-04-14", "1969-12-31", "NaT"]).astype(f"datetime64[{resolution}]")
    np.testing.assert_array_equal(Axis("time", 1.0).x(dates), [0, 18000, -1, math.nan])
    noon = np.datetime64("2019-04-16T12:00", "ns")
    assert TIME.x(noon) == TIME.x(18002.5) == 0.625


def test_places_are_stacked_in_the_order_of_the_axes() -> None:
    """Whatever the order in which they are given, and broadcast against each other."""
    latitude, longitude = draws(40, 50, (5, 1)), draws(-10, 10, (1, 3))
    given = {"elevation": 500.0, "time": np.datetime64("2019-04-18"), "longitude": longitude, "latitude": latitude}
    x = FRAME.x(given)
    assert x.shape == (5, 3, 4)
    np.testing.assert_allclose(x[..., 0], np.broadcast_to((latitude - 45) / 4, (5, 3)))
    np.testing.assert_allclose(x[..., 1], np.broadcast_to((longitude - 3) / 8, (5, 3)))
    assert (x[..., 2] == 1).all() and (x[..., 3] == 0.5).all()


def test_the_domain_is_the_box_of_the_training_data() -> None:
    """A place is inside if its x is in the domain, and an axis without bounds does not matter."""
    assert FRAME.domain == [(-1.25, 1.25), (-1.625, 0.875), (0.0, 91.25), None]
    places = {
        "latitude": draws(35, 55), "longitude": draws(-20, 20)[::-1], "time": draws(17900, 18500), "elevation": 9e9,
    }  # fmt: skip
    x, inside = FRAME.x(places), FRAME.inside(places)
    lower, upper = np.array([side or (-math.inf, math.inf) for side in FRAME.domain]).T
    assert np.array_equal(inside, ((lower <= x) & (x <= upper)).all(axis=-1)) and 0 < inside.mean() < 1


def test_the_edges_are_inside_also_when_rounded_and_nan_is_not() -> None:
    edges = {"latitude": [40, 50, 39.99995, 39.9], "longitude": [-10, 10, 10.00002, 0], "time": 18000, "elevation": 0}
    assert FRAME.inside({name: np.float32(values) for name, values in edges.items()}).tolist() == [True] * 3 + [False]
    assert not FRAME.inside({"latitude": math.nan, "longitude": 0, "time": 18000, "elevation": 0})


def test_a_frame_is_rebuilt_from_its_configuration() -> None:
    again = build(FRAME.configuration())
    assert again.configuration() == FRAME.configuration() and again.domain == FRAME.domain
    for one, other in zip(again.variables, FRAME.variables, strict=True):
        assert vars(one) == vars(other)
    places = {"latitude": 41.0, "longitude": 355.0, "time": np.datetime64("2019-07-01"), "elevation": 20.0}
    assert np.array_equal(again.x(places), FRAME.x(places))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Axis("depth", 1.0), "an axis must be one of latitude, longitude, time, elevation; got 'depth'"),
        (lambda: Axis("latitude", 0.0), "latitude: unit must be positive and origin finite; got 0.0 and 0.0"),
        (lambda: Axis("latitude", math.nan), "latitude: unit must be positive"),
        (lambda: Axis("latitude", math.inf), "latitude: unit must be positive"),
        (lambda: Axis("latitude", 1.0, math.nan), "origin finite; got 1.0 and nan"),
        (lambda: Axis("latitude", 1.0, low=1.0), "low and high are both None, or both finite and low ≤ high"),
        (lambda: Axis("latitude", 1.0, high=1.0), "low and high are both None, or both finite and low ≤ high"),
        (lambda: Axis("latitude", 1.0, low=2.0, high=1.0), "got 2.0 and 1.0"),
        (lambda: Axis("latitude", 1.0, low=math.nan, high=1.0), "got nan and 1.0"),
        (lambda: Axis("longitude", 1.0, low=0.0, high=math.inf), "both finite.*got 0.0 and inf"),
        (lambda: Axis("longitude", 1.0, low=-math.inf, high=0.0), "both finite.*got -inf and 0.0"),
        (lambda: Variable("t2m", math.nan, 1.0), "t2m: mean must be finite and std positive; got nan and 1.0"),
        (lambda: Variable("t2m", 0.0, 0.0), "t2m: mean must be finite and std positive"),
        (lambda: Variable("t2m", 0.0, math.inf), "t2m: mean must be finite and std positive"),
        (lambda: Frame([LATITUDE], [KELVIN]), r"axes are latitude, longitude and others; got \['latitude'\]"),
        (lambda: Frame([LATITUDE, LONGITUDE, LATITUDE], [KELVIN]), "got .*'latitude', 'longitude', 'latitude'"),
        (lambda: Frame([LATITUDE, LONGITUDE], []), "a frame needs a variable; got none"),
        (lambda: Frame([LATITUDE, LONGITUDE], [KELVIN, KELVIN]), "variables need different names; got t2m, t2m"),
    ],
)
def test_invalid_arguments_raise(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_bounded_variable_takes_values_a_little_beyond_its_bounds_and_no_others() -> None:
    humidity = Variable("r", 0.0, 100.0, "%", low=0.0, high=100.0)
    assert humidity.y(np.array([-1e-9, 50.0, 102.0])).tolist() == [0.0, 0.5, 1.0]
    assert np.isnan(humidity.y(np.array([np.nan, 1.0]))).tolist() == [True, False]
    with pytest.raises(ValueError, match="r must lie between 0 and 100 %; got values from 280 to 290"):
        humidity.y(np.array([280.0, 290.0, np.nan]))
    with pytest.raises(ValueError, match="low must be less than high; got 1 and 0"):
        Variable("r", 0.0, 1.0, low=1, high=0)
