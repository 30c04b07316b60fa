"""Covariates: what is known of a place beside its coordinates, from columns of a table or from fields."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float
from numpy import ndarray

from aenp.earth.frame import Covariate
from aenp.earth.gridded import DIMS, interpolated, open_gridded
from aenp.earth.places import Places
from aenp.earth.sources import NAMES, FieldLike, NoSuchVariable, describe, names_of, open_dataset, with_coordinates
from aenp.earth.units import converted, units_of

POINTS = 2**18
"Number of points with times of their own at which a field is interpolated at a time."


@dataclass(frozen=True)
class Layer:
    """A field from which a covariate is taken.

    Args:
        field: as `open_gridded` returns it; with one time, it does not change.
        where: what to call its source in messages.
    """

    field: xr.DataArray
    where: str

    @property
    def units(self) -> str | None:
        return units_of(self.field.attrs)

    @property
    def changes(self) -> bool:
        return self.field.sizes["time"] > 1

    def on(
        self, latitude: Float[ndarray, " places"], longitude: Float[ndarray, " places"], times: ndarray | None
    ) -> Float[ndarray, "times places"]:
        """The values at all places and times, or of one time if these do not change."""
        if not self.changes or times is None:
            return self.at(latitude, longitude, None)[None]
        values = np.empty((len(times), len(latitude)), np.float32)
        block = max(1, POINTS // len(latitude))
        for first in range(0, len(times), block):
            some = times[first : first + block]
            points = np.tile(latitude, len(some)), np.tile(longitude, len(some)), np.repeat(some, len(latitude))
            values[first : first + block] = self.at(*points).reshape(len(some), -1)
        return values

    def at(
        self, latitude: Float[ndarray, " points"], longitude: Float[ndarray, " points"], times: ndarray | None
    ) -> Float[ndarray, " points"]:
        """The values at points that each have a place and perhaps a time, linearly interpolated."""
        if not self.changes:
            places, place = np.unique(np.stack([latitude, longitude]), axis=1, return_inverse=True)
            return interpolated(self.field, places[0], places[1], self.where)[place]
        if times is None:
            raise ValueError(
                f"{self.where}: {self.field.name} changes with time, but the places have no times; add them"
            )
        parts = [slice(first, first + POINTS) for first in range(0, len(times), POINTS)]
        each = (interpolated(self.field, latitude[n], longitude[n], self.where, times[n]) for n in parts)
        return np.concatenate([np.empty(0), *each])


def as_list(given: FieldLike | Sequence[FieldLike]) -> list[FieldLike]:
    """The given covariates; a single one need not be in a list."""
    if isinstance(given, Mapping) and not isinstance(given, xr.Dataset):
        raise ValueError("covariates are a list of fields, files and names; got a mapping. Name fields with .rename")
    single = isinstance(given, str | os.PathLike | xr.Dataset | xr.DataArray | pd.DataFrame)
    return [given] if single else list(given)  # type: ignore[list-item,arg-type]


def open_layers(
    given: FieldLike | Sequence[FieldLike],
    needed: Sequence[Covariate] | None = None,
    topography: FieldLike | None = None,
) -> dict[str, Layer]:
    """The variables of the given fields, files and data sets by their names: those that are needed, or else all.

    If `elevation` is needed and not among them, it is that of the topography. Either way it is zero at sea.
    """
    names = None if needed is None else [each.name for each in needed]
    layers: dict[str, Layer] = {}
    for source in as_list(given):
        dataset, where = with_coordinates(open_dataset(source), *DIMS), describe(source)
        for name in (name for name in names_of(dataset, where) if names is None or name in names):
            if name == "value" or name in layers:
                raise ValueError(
                    f"{where}: covariates need names of their own, but this one is {name}; name it with .rename"
                )
            layers[name] = _layer(name, open_gridded(source, name), where)
    if topography is not None and "elevation" in (names or ()) and "elevation" not in layers:
        layers["elevation"] = _layer("elevation", open_gridded(topography), describe(topography))
    return layers


def _layer(name: str, field: xr.DataArray, where: str) -> Layer:
    return Layer(field.clip(min=0.0, keep_attrs=True) if name == "elevation" else field, where)


def columns_and_layers(
    given: Sequence[FieldLike], data: object, is_scattered: bool
) -> tuple[list[str], dict[str, Layer]]:
    """The names of covariates that are columns of the data, and those that are fields, some of them in the data."""
    every = as_list(given)
    names = [each for each in every if isinstance(each, str) and not Path(each).suffix and not Path(each).exists()]
    if places := [name for name in names if any(name.lower() in NAMES[kind] for kind in DIMS)]:
        raise ValueError(f"{places[0]} is a coordinate, which models see by themselves; leave it out of the covariates")
    layers = open_layers([each for each in every if not (isinstance(each, str) and each in names)])
    if is_scattered:
        columns = ("elevation" if name.lower() in NAMES["elevation"] else name for name in names)
        return list(dict.fromkeys(columns)), layers
    for name in names:
        try:
            layers[name] = _layer(name, open_gridded(data, name), describe(data))  # type: ignore[arg-type]
        except NoSuchVariable as error:
            told = f"the covariate {name} is neither a file nor a variable of {describe(data)}; give one of these"
            raise ValueError(told) from error
    return [], layers


def unscaled(columns: Sequence[str], layers: Mapping[str, Layer], table: pd.DataFrame) -> list[Covariate]:
    """The covariates of a table in their own units."""
    units = table.attrs.get("units_of", {}) | {"elevation": "m"}
    named = {name: units.get(name) for name in columns} | {name: layer.units for name, layer in layers.items()}
    return [Covariate(name, 0.0, 1.0, known or "") for name, known in named.items()]


def with_covariates(
    table: pd.DataFrame, covariates: Sequence[Covariate], layers: Mapping[str, Layer], where: str
) -> pd.DataFrame:
    """The observations with a column for each covariate, in its units: their own, or else from the layers."""
    if not covariates:
        return table
    own_units = table.attrs.get("units_of", {}) | {"elevation": "m"}
    place = [table[name].to_numpy(float) for name in ("latitude", "longitude")]
    times = table["time"].to_numpy() if "time" in table else None
    for each in covariates:
        own = table.get(each.name, pd.Series(np.nan, table.index)).to_numpy(float)
        known = converted(own, own_units.get(each.name), each.units, f"the covariate {each.name} of {where}")
        table = table.assign(**{each.name: _complete(known, each, layers, place[0], place[1], times, where)})
    table.attrs = table.attrs | {"units_of": own_units | {each.name: each.units for each in covariates}}
    return table


def places_with_covariates(
    places: Places, covariates: Sequence[Covariate], layers: Mapping[str, Layer], where: str
) -> Places:
    """The places with a coordinate for each covariate, in its units: their own, or else from the layers."""
    for each in covariates:
        layer, coordinates = layers.get(each.name), places.coordinates
        own = coordinates.get(each.name, xr.full_like(coordinates["latitude"], np.nan, float).drop_attrs())
        units = "m" if each.name == "elevation" else units_of(own.attrs)
        own = own.copy(
            data=converted(own.values.astype(float), units, each.units, f"the covariate {each.name} of {where}")
        )
        needed = ["latitude", "longitude"]
        if layer is not None and layer.changes and "time" in coordinates:
            needed.append("time")
        own, *at = xr.broadcast(own, *(coordinates[name] for name in needed))
        latitude, longitude, *times = (values.values.ravel() for values in at)
        known = _complete(own.values.ravel(), each, layers, latitude, longitude, times[0] if times else None, where)
        places = replace(places, coordinates={**coordinates, each.name: own.copy(data=known.reshape(own.shape))})
    return places


def _complete(
    known: Float[ndarray, " points"],
    covariate: Covariate,
    layers: Mapping[str, Layer],
    latitude: Float[ndarray, " points"],
    longitude: Float[ndarray, " points"],
    times: ndarray | None,
    where: str,
) -> Float[ndarray, " points"]:
    """The known values, and those of the layer where there are none; an error if that has none either."""
    name = covariate.name
    missing = np.isnan(known) & np.isfinite(latitude + longitude)
    if times is not None:
        missing &= ~np.isnat(times)
    if not missing.any():
        return known
    layer, values = layers.get(name), known.copy()
    if layer is not None:
        at = latitude[missing], longitude[missing], None if times is None else times[missing]
        both = f"the covariate {name} of {layer.where} and of the model's training data"
        values[missing] = converted(layer.at(*at), layer.units, covariate.units, both)
    unknown = missing & np.isnan(values)
    if unknown.any():
        first = int(np.argmax(unknown))
        raise lacking(name, where, layers, latitude[first], longitude[first], None if times is None else times[first])
    return values


def lacking(
    name: str, where: str, layers: Mapping[str, Layer], latitude: float, longitude: float, time: np.datetime64 | None
) -> ValueError:
    """The error for a place whose covariate is not known."""
    place = f"{latitude:.5g}, {longitude:.5g}" + ("" if time is None else f" at {time.astype('datetime64[m]')}")
    if name not in layers:
        return ValueError(
            f"the covariate {name} is not known at {place} of {where}; add a column or coordinate {name}, or give a "
            f"field of that name in `covariates`" + (", or a topography as `elevation`" if name == "elevation" else "")
        )
    return ValueError(
        f"the covariate {name} of {layers[name].where} has no value at {place}, which is needed for {where}; give a "
        "field that covers all places and times"
    )
