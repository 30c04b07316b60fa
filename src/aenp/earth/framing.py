"""The frame that suits data: the units of their variables and covariates, their box and their period."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.frame import Axis, Covariate, Frame, Variable

PLACE = ("latitude", "longitude")
AWAY = 10.0
"Standard deviations from zero to the mean beyond which a variable is none that is often zero."
RELATIVE = ("normal", "robust")
"Likelihoods for which values are counted from their mean."
BOUNDS = {"%": (0.0, 100.0), "percent": (0.0, 100.0), "1": (0.0, 1.0), "(0 - 1)": (0.0, 1.0)}
"The bounds of bounded variables in units that tell them."


def variable_in(
    likelihood: str,
    bounds: tuple[float, float] | None,
    name: str,
    mean: float,
    std: float,
    attributes: Mapping[Any, Any],
) -> Variable:
    """The variable in units that suit the likelihood: from its mean, from zero, or from one bound to the other."""
    units, long_name = (str(attributes.get(key, "")) for key in ("units", "long_name"))
    if likelihood in RELATIVE:
        return Variable(name, mean, std, units, long_name)
    if likelihood == "precipitation":
        if mean > AWAY * std:
            about = f"{mean:.4g} ± {std:.2g} {units}".rstrip()
            raise ValueError(
                f"{name} is {about}, far from zero, and likelihood='precipitation' is for what "
                "is often zero; choose other variables with `variable`, or leave the likelihood out"
            )
        return Variable(name, 0.0, std, units, long_name, low=0.0)
    known = bounds or BOUNDS.get(units)
    if known is None:
        raise ValueError(
            f"bounds of {name} in {units!r} are not known; give its smallest and largest value as `bounds`"
        )
    low, high = known
    return Variable(name, low, high - low, units, long_name, low, high)


def scaled_covariates(
    units: Mapping[str, str | None], values: Float[ndarray, "*points covariates"]
) -> tuple[list[Covariate], Float[ndarray, "*points covariates"]]:
    """The covariates with the means and standard deviations of their values, and the values scaled by these."""
    points = tuple(range(values.ndim - 1))
    means, stds = np.nanmean(values, axis=points), np.nanstd(values, axis=points)
    named = zip(units.items(), means.tolist(), stds.tolist(), strict=True)
    covariates = [Covariate(name, mean, std, known or "") for (name, known), mean, std in named]
    return covariates, ((values - means) / stds).astype(np.float32)


def unwrap_longitudes(longitude: Float[ndarray, " points"]) -> Float[ndarray, " points"]:
    """The longitudes, those west of the widest gap moved once round the globe, to join regions across the date line."""
    order = np.sort(longitude)
    gaps = np.diff(order, append=order[0] + 360)
    west = order[np.argmax(gaps)]
    return np.where(longitude <= west, longitude + 360, longitude) if west < order[-1] else longitude


def moments(name: str, values: xr.DataArray | pd.Series) -> tuple[float, float]:
    """The mean and standard deviation of a variable, which must not be constant."""
    mean, std = float(values.mean()), float(values.std())
    precision = np.finfo(values.dtype if values.dtype.kind == "f" else float).eps
    if not std > 8 * precision * abs(mean):
        raise ValueError(
            f"the values of {name} are all the same or missing: mean {mean:g}, standard deviation {std:g}; choose "
            "another variable, region or period"
        )
    return mean, std


def frame_of(
    latitude: ndarray,
    longitude: ndarray,
    steps: Sequence[float],
    degrees: float,
    windows: Sequence[float],
    variables: Sequence[Variable],
    period: tuple[str, str] | None,
    covariates: Sequence[Covariate],
) -> Frame:
    """The frame of data at these places, each of which stands for the cell around it."""
    axes = []
    for kind, values, step, window in zip(PLACE, (latitude, longitude), steps, windows, strict=True):
        low, high = float(values.min()) - step / 2, float(values.max()) + step / 2
        axes.append(Axis(kind, degrees, (low + high) / 2, low, high, window))
    return Frame(axes, variables, period, covariates)


def period_of(data: xr.DataArray | pd.DataFrame) -> tuple[str, str] | None:
    """First and last date of the data, if they have dates."""
    known = data.coords if isinstance(data, xr.DataArray) else data.columns
    times = np.asarray(data["time"] if "time" in known else ())
    if not np.issubdtype(times.dtype, np.datetime64):
        return None
    return str(times.min().astype("datetime64[D]")), str(times.max().astype("datetime64[D]"))


def dates_of(data: xr.DataArray | pd.DataFrame) -> ndarray:
    """The times of the data, each once and in order; an error if there are none."""
    if period_of(data) is None:
        raise ValueError("the data have no dates, so `time`, the length of a window, cannot be used; leave it out")
    return np.unique(data["time"])
