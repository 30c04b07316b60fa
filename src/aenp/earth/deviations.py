"""Values as deviations from what is expected: from the climatology of each place, or from a first guess."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.climatology import Climatology
from aenp.earth.frame import Frame
from aenp.earth.reference import Given
from aenp.earth.units import converted

SAME = 1e-5
"Of a variable's std, within which differences are those of rounding."


def anomalies(
    frame: Frame,
    times: ndarray,
    latitude: Float[ndarray, " places"],
    longitude: Float[ndarray, " places"],
    values: Float[ndarray, "times places"],
    trained: int,
) -> tuple[Frame, Float[ndarray, "times places"]]:
    """The frame with a climatology of the first dates, which are trained on, and all values as deviations from it."""
    if len(values) < 2 or not np.issubdtype(times.dtype, np.datetime64):
        raise ValueError(
            f"anomalies need the climatology of each place, from several dates; got {len(values)}. Give more, or leave "
            "`anomalies` out"
        )
    training = slice(trained)
    known = ~np.isnan(values[training]).all(axis=0)
    climatology = Climatology.of(times[training], latitude[known], longitude[known], values[training][:, known])
    mean, std = climatology.on(times)
    deviations = np.full(values.shape, np.nan, np.float32)
    deviations[:, known] = (values[:, known] - mean) / std
    time, place = np.nonzero(~np.isnan(values) & ~known)
    if len(time):
        mean, std = climatology.at({"latitude": latitude[place], "longitude": longitude[place], "time": times[time]})
        deviations[time, place] = (values[time, place] - mean) / std
    return frame.relative_to(climatology), deviations


def differences(
    frame: Frame,
    name: str,
    values: Float[ndarray, "times *places"],
    known: Float[ndarray, "*times_and_places covariates"] | None,
) -> tuple[Frame, Float[ndarray, "times *places"]]:
    """The frame with a covariate as the first guess, and the values as differences to it."""
    names, variable = [each.name for each in frame.covariates], frame.variables[0]
    if known is None or name not in names:
        raise ValueError(
            f"given must be the name of one of the covariates, {', '.join(names) or 'of which there are none'}; got "
            f"{name}. Add it to `covariates`"
        )
    covariate = frame.covariates[names.index(name)]
    both = f"the given {name} and {variable.name}"
    zero, one = converted(np.array([0.0, 1.0]), covariate.units, variable.units, both)
    guess = (one - zero) * (covariate.mean + covariate.std * known[..., names.index(name)].astype(float)) + zero
    errors = values - guess
    mean, std = float(np.nanmean(errors)), float(np.nanstd(errors))
    if not std > SAME * variable.std:
        raise ValueError(f"{both} differ by a constant, so that nothing is left to learn; leave `given` out")
    given = Given(name, float(one - zero), float(zero) + mean, std)
    return frame.relative_to(given), ((errors - mean) / std).astype(np.float32)
