"""Frame: the coordinates and variables of a field in the user's units, and what they are in a model's."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray
from numpy.typing import ArrayLike

from aenp.configured import Configured
from aenp.data.kinds import one_hot
from aenp.earth.climatology import Climatology
from aenp.earth.reference import Given, Misses
from aenp.earth.regions import TOLERANCE
from aenp.earth.sources import EPOCH

AXES = {"latitude": "°", "longitude": "°", "time": " days", "elevation": " m"}
"The coordinates that a model may see, with their units."
DAY = 86400
"In seconds."
ROUNDING = 0.1
"Of a variable's std, by which values may lie beyond its bounds: packed files round, and sensors err."


class Axis(Configured):
    """x = (value − origin) / unit along one coordinate.

    Args:
        name: latitude or longitude in degrees, time in days since 1970-01-01, or elevation in metres.
        unit: the length of one unit of x.
        origin: the value where x is zero.
        low: the smallest value in training; None if that does not matter.
        high: the largest.
        window: how far apart the observations of a task were in training at most. Each time is predicted from those up
            to half of it before and after, and contexts that are wider on the map are seen in tiles of this side; None
            if from all, and as a whole.
    """

    def __init__(
        self,
        name: str,
        unit: float,
        origin: float = 0.0,
        low: float | None = None,
        high: float | None = None,
        window: float | None = None,
    ) -> None:
        if name not in AXES:
            raise ValueError(f"an axis must be one of {', '.join(AXES)}; got {name!r}")
        bounds = {side: bound for side, bound in (("low", low), ("high", high)) if bound is not None}
        _check_numbers(name, unit=unit, origin=origin, **bounds)
        if not (0 < unit < math.inf and math.isfinite(origin)):
            raise ValueError(f"{name}: unit must be positive and origin finite; got {unit} and {origin}")
        if (low is None) != (high is None) or not (low is None or high is None or -math.inf < low <= high < math.inf):
            raise ValueError(f"{name}: low and high are both None, or both finite and low ≤ high; got {low} and {high}")
        if window is not None and not 0 < window < math.inf:
            raise ValueError(f"{name}: window must be positive and finite; got {window}")
        self.name, self.unit, self.origin, self.window = name, unit, origin, window
        self.low = -math.inf if low is None else float(low)
        self.high = math.inf if high is None else float(high)

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low)

    def x(self, values: ArrayLike) -> Float[ndarray, "*points"]:
        """Values in the model's unit; times may be dates, and longitudes may be counted either way round the globe."""
        values = np.asarray(values)
        if np.issubdtype(values.dtype, np.datetime64):
            values = (values - EPOCH) / np.timedelta64(1, "D")
        offset = np.asarray(values, float) - self.origin
        if self.name == "longitude" and self.bounded:
            middle = (self.low + self.high) / 2 - self.origin
            # Only whole turns are subtracted, so that values that need none are not rounded.
            offset = offset - 360 * np.floor((offset - middle + 180) / 360)
        return np.asarray(offset / self.unit)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The values in training, in the model's unit; None if they do not matter."""
        if not self.bounded:
            return None
        return (self.low - self.origin) / self.unit, (self.high - self.origin) / self.unit


class Variable(Configured):
    """y = (value − mean) / std for one variable.

    Args:
        name: such as t2m.
        mean: of the training values.
        std: their standard deviation.
        units: such as K.
        long_name: the name in words.
        low: the smallest possible value, if there is one; values a little below it count as it.
        high: the largest.
    """

    def __init__(
        self,
        name: str,
        mean: float,
        std: float,
        units: str = "",
        long_name: str = "",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        bounds = {side: bound for side, bound in (("low", low), ("high", high)) if bound is not None}
        _check_numbers(name, mean=mean, std=std, **bounds)
        if not (math.isfinite(mean) and 0 < std < math.inf):
            raise ValueError(f"{name}: mean must be finite and std positive; got {mean} and {std}")
        self.name, self.mean, self.std, self.units, self.long_name = name, mean, std, units, long_name
        self.low, self.high = bounds.get("low", -math.inf), bounds.get("high", math.inf)
        if not self.low < self.high:
            raise ValueError(f"{name}: low must be less than high; got {low} and {high}")

    def y(self, values: Any) -> Any:
        """Values in the model's unit; raises an error if some lie clearly beyond the variable's bounds."""
        slack = ROUNDING * self.std
        if np.any(values < self.low - slack) or np.any(values > self.high + slack):
            found = f"{np.nanmin(values):.4g} to {np.nanmax(values):.4g}"
            raise ValueError(
                f"{self.name} must lie between {self.low:g} and {self.high:g} {self.units}; got values from {found}. "
                "Check variable and units"
            )
        return (np.clip(values, self.low, self.high) - self.mean) / self.std


class Covariate(Configured):
    """c = (value − mean) / std for one covariate.

    Args:
        name: such as topo, of a column, a coordinate or a field.
        mean: of the training values.
        std: their standard deviation.
        units: such as m.
    """

    def __init__(self, name: str, mean: float, std: float, units: str = "") -> None:
        _check_numbers(name, mean=mean, std=std)
        if not (math.isfinite(mean) and 0 < std < math.inf):
            raise ValueError(
                f"the covariate {name} must differ between places or times; got mean {mean:g} and standard deviation "
                f"{std:g}. Leave it out"
            )
        self.name, self.mean, self.std, self.units = name, mean, std, units


def _check_numbers(what: str, **values: object) -> None:
    """Raises an error that names the first value that is not a number."""
    for name, value in values.items():
        if not isinstance(value, Real):
            raise ValueError(f"{what}: {name} must be a number; got {value!r}")


class Frame(Configured):
    """Converts between a user's coordinates and values and a model's x and y.

    Args:
        axes: the coordinates that a model sees, in the order of x: latitude, longitude, and perhaps time and elevation.
        variables: what it predicts. Of several, each value is a point of its own, whose last covariates say which
            variable it is of.
        period: first and last date of the training data, where they have dates.
        covariates: what is known of each place, context and target alike, in the order of a task's covariates.
        reference: a climatology or first guess of the one variable, if y is a deviation from it, (value − mean) / std.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        variables: Sequence[Variable],
        period: Sequence[str] | None = None,
        covariates: Sequence[Covariate] = (),
        reference: Climatology | Given | None = None,
    ) -> None:
        self.period = None if period is None else tuple(period)
        self.axes, self.variables = {axis.name: axis for axis in axes}, list(variables)
        if len(self.axes) < len(axes) or not {"latitude", "longitude"} <= set(self.axes):
            raise ValueError(f"axes are latitude, longitude and others; got {[axis.name for axis in axes]}")
        if not self.variables:
            raise ValueError("a frame needs a variable; got none")
        self.covariates = list(covariates)
        for kind, several in (("variables", self.variables), ("covariates", self.covariates)):
            names = [each.name for each in several]
            if len(set(names)) < len(names):
                raise ValueError(f"{kind} need different names; got {', '.join(names)}")
        taken = {"latitude", "longitude", "time", "value", *(each.name for each in self.variables)}
        for each in self.covariates:
            if each.name in taken:
                raise ValueError(
                    f"a covariate must not be called value, nor have the name of a variable or of a coordinate; got "
                    f"{each.name}. Rename it, or leave it out"
                )
        if reference is not None and len(self.variables) > 1:
            raise ValueError(f"a climatology or first guess is of one variable; got {len(self.variables)}")
        if isinstance(reference, Given) and reference.name not in [each.name for each in self.covariates]:
            raise ValueError(f"the given {reference.name} must be one of the covariates; add it to them")
        self.reference = reference

    def relative_to(self, reference: Climatology | Given) -> "Frame":
        """The same frame for deviations from what is expected."""
        return Frame(list(self.axes.values()), self.variables, self.period, self.covariates, reference)

    @property
    def kinds(self) -> int:
        """The number of covariates that say which variable a value is of; none for a single one."""
        return len(self.variables) if len(self.variables) > 1 else 0

    @property
    def windows(self) -> list[float]:
        """The sides of tiles in the model's units; infinite along axes that have none."""
        return [
            math.inf if axis.window is None or axis.name == "time" else axis.window / axis.unit
            for axis in self.axes.values()
        ]

    @property
    def reach(self) -> np.timedelta64 | None:
        """How far from a time observations are seen: none others if it is no axis; None if all are."""
        if "time" not in self.axes:
            return np.timedelta64(0, "s")
        window = self.axes["time"].window
        return None if window is None else np.timedelta64(round(window * DAY / 2), "s")

    @property
    def domain(self) -> list[tuple[float, float] | None]:
        """The box of the training data in the model's units."""
        return [axis.interval for axis in self.axes.values()]

    def x(self, coordinates: Mapping[str, ArrayLike]) -> Float[ndarray, "*points dim_x"]:
        """Places in the model's units, from the frame's coordinates by name."""
        return np.stack(np.broadcast_arrays(*(axis.x(coordinates[name]) for name, axis in self.axes.items())), axis=-1)

    def c(
        self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame, number: int = 0
    ) -> Float[ndarray, "*points covariates"]:
        """The covariates of places in the model's units, from coordinates and covariates by name, for one variable."""
        shape = np.shape(coordinates["latitude"])
        scaled = [(np.asarray(coordinates[each.name], float) - each.mean) / each.std for each in self.covariates]
        kind = np.broadcast_to(one_hot(np.array(number), self.kinds) if self.kinds else (), (*shape, self.kinds))
        return np.concatenate([*(each[..., None] for each in scaled), kind], axis=-1)

    def y(
        self, values: Float[ndarray, " points"], coordinates: Mapping[str, ArrayLike] | pd.DataFrame, number: int = 0
    ) -> Float[ndarray, " points"]:
        """Values of one of the variables at these places in the model's units."""
        if self.reference is None:
            return np.asarray(self.variables[number].y(values))
        shift, scale = self.units(coordinates)
        return (values - shift) / scale

    def units(
        self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame, number: int = 0
    ) -> tuple[Float[ndarray, "*points"], Float[ndarray, "*points"]]:
        """What y of a variable counts from at these places, and its unit: the same everywhere, or the reference's."""
        if self.reference is None:
            return np.array(self.variables[number].mean, float), np.array(self.variables[number].std, float)
        return self.reference.at(coordinates)

    def doubt(self, coordinates: Mapping[str, ArrayLike] | pd.DataFrame) -> Float[ndarray, "*points"] | None:
        """The standard error in the model's unit of what y counts from at these places; None if that is known."""
        return None if self.reference is None else self.reference.doubt(coordinates)

    def misses(self, samples: int, seed: int) -> Misses | None:
        """Errors of what y counts from, in the model's unit, one for each sample; None if that is known."""
        return None if self.reference is None else self.reference.misses(samples, seed)

    def lengths(self, x: Float[ndarray, " dim_x"]) -> str:
        """A length along each axis in the user's units, in words."""
        return " × ".join(
            f"{each * axis.unit:.3g}{AXES[axis.name]}" for each, axis in zip(x, self.axes.values(), strict=True)
        )

    def inside(self, coordinates: Mapping[str, ArrayLike]) -> Bool[ndarray, "*points"]:
        """Whether each place is in the box of the training data, edges included."""
        x, slack = self.x(coordinates), [TOLERANCE / axis.unit for axis in self.axes.values()]
        lower, upper = np.array([interval or (-math.inf, math.inf) for interval in self.domain]).T
        return np.asarray(((x >= lower - slack) & (x <= upper + slack)).all(axis=-1))
