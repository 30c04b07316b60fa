"""Observations: what a context holds, as a table in the units of a model."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from aenp.earth.covariates import open_layers, with_covariates
from aenp.earth.frame import Frame, Variable
from aenp.earth.gridded import FieldLike
from aenp.earth.places import elevation_or_error
from aenp.earth.points import PointsLike, check_units, joined, open_points
from aenp.earth.sources import NoSuchVariable, NoValues, describe
from aenp.earth.units import converted

FAR = 20
"Standard deviations from the mean in training beyond which a context's median suggests another variable or unit."
FEWEST = 10
"The smallest number of values other than zero whose median tells."


def observations_in(
    frame: Frame,
    context: PointsLike,
    variable: str | Sequence[str] | None = None,
    elevation: FieldLike | None = None,
    covariates: Sequence[FieldLike] = (),
) -> pd.DataFrame:
    """The observations as a table in the units of a frame, as `FieldModel.observed` returns it."""
    names = [variable] if variable is None or isinstance(variable, str) else list(variable)
    table = _several(frame, context, names) if frame.kinds else _single(frame, context, names)
    if "time" in frame.axes and "time" not in table:
        raise ValueError(f"{describe(context)} has no time, which the model sees; add a column `time`")
    if "elevation" in frame.axes:
        known = table.get("elevation", pd.Series(np.nan, table.index))
        where = table["latitude"].to_numpy(), table["longitude"].to_numpy()
        table = table.assign(elevation=elevation_or_error(known.to_numpy(float), *where, elevation, describe(context)))
        if table["elevation"].isna().any():
            raise ValueError(
                f"{describe(context)} has places that the topography does not cover; add a column elevation"
            )
    layers = open_layers(covariates, frame.covariates, elevation)
    return with_covariates(table, frame.covariates, layers, describe(context))


def columns_of(frame: Frame) -> list[str]:
    """The columns of values in what `observations_in` returns."""
    return [each.name for each in frame.variables] if frame.kinds else ["value"]


def _several(frame: Frame, context: PointsLike, names: Sequence[str | None]) -> pd.DataFrame:
    """The observations of several variables, of which at least one was observed."""
    variables = frame.variables
    found: dict[str, pd.DataFrame] = {}
    chosen = [each.name for each in variables] if names == [None] else list(names)
    if len(chosen) != len(variables):
        raise ValueError(
            f"the model has the variables {', '.join(columns_of(frame))}; give as many names in `variable`, in this "
            f"order, or none; got {', '.join(map(str, names))}"
        )
    for expected, name in zip(variables, chosen, strict=True):
        try:
            table = open_points(context, name, further=[each.name for each in frame.covariates])
        except NoValues:
            continue
        except NoSuchVariable:
            if names != [None]:
                raise
            continue
        if names == [None] and table.attrs["name"] in set(columns_of(frame)) - {expected.name}:
            continue  # alike in name, but another of the variables
        check_units(context, [*found, expected.name])
        found[expected.name] = _in_units(table, expected, context)
    if not found:
        raise ValueError(
            f"{describe(context)} has no values of {', '.join(columns_of(frame))}; give some of one at least"
        )
    together = joined(found)
    return together.assign(**{name: np.nan for name in columns_of(frame) if name not in found})


def _single(frame: Frame, context: PointsLike, names: Sequence[str | None]) -> pd.DataFrame:
    """The observations of the one variable."""
    if len(names) != 1:
        raise ValueError(f"the model has one variable, {frame.variables[0].name}; got {', '.join(map(str, names))}")
    (variable,), (expected,) = names, frame.variables
    further = [each.name for each in frame.covariates]
    try:
        observed = open_points(context, variable or expected.name, further=further)
    except NoSuchVariable:
        if variable is not None:
            raise
        observed = open_points(context, further=further)
    return _in_units(observed, expected, context)


def _in_units(observed: pd.DataFrame, expected: Variable, context: PointsLike) -> pd.DataFrame:
    """The observations in the variable's units."""
    both, values = f"{describe(context)} and the model's training data", observed["value"].to_numpy(float)
    observed = observed.assign(value=converted(values, observed.attrs.get("units"), expected.units, both))
    observed.attrs["units"] = expected.units
    wet = observed["value"][observed["value"] != 0]  # of rain, most values may be zero, and few tell nothing
    middle = float((wet if len(wet) >= FEWEST else observed["value"]).median())
    if abs(expected.y(middle)) > FAR:
        about = f"{expected.mean:.4g} ± {expected.std:.2g} {expected.units}".rstrip()
        raise ValueError(
            f"{describe(context)}: values are about {middle:.4g}; the model was trained on {expected.name} of {about}. "
            "Check variable and units"
        )
    return observed
