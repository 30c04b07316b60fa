"""The commands for own fields and stations that train nothing: interpolate, predict, suggest, validate."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
from tyro.conf import Positional

from aenp.arguments import (
    Count,
    File,
    Seed,
    Text,
    Words,
    check_apart,
    check_place,
    number,
    optional,
)
from aenp.earth.field_model import FieldModel
from aenp.earth.interpolation import interpolate as interpolated
from aenp.earth.output import check_output, write_prediction
from aenp.earth.points import open_points
from aenp.earth.regions import Period, Region
from aenp.saving import written_whole
from aenp.shipped import find_model

Files = Annotated[tuple[Path, ...], optional("PATH ...")]


def interpolate(
    context: Positional[Path],
    target: Text = None,
    out: File = None,
    variable: Text = None,
    plot: File = None,
    coast: File = None,
    quantiles: Annotated[tuple[float, ...], optional("P ...")] = (),
    samples: Annotated[int, number(int, 0, 10**4)] = 0,
    seed: Seed = 0,
) -> None:
    """Predict a field from observations alone, at once, with the base model: mean and standard deviation.

    Example: aenp interpolate stations.csv --target 36,47,6,19,0.25 --plot map.png

    Args:
        context: observations: a CSV table, or a file with a gridded field that is NaN where nothing was observed.
        target: where to predict: a file with latitudes and longitudes, or south,north,west,east,step in degrees; by
            default a grid over the observations.
        out: NetCDF file to write; a name that ends in .csv makes a table, in .zarr a Zarr directory.
        variable: name of the values in the context; by default the only one.
        plot: a map to draw, such as map.png.
        coast: a file with topography or a land–sea mask, for coastlines on that map.
        quantiles: probabilities of quantiles to predict, such as 0.05 0.5 0.95.
        samples: number of coherent samples to draw: plausible fields, without the noise of single observations.
        seed: random seed of the samples.
    """
    if out is None and plot is None:
        raise ValueError("there is nothing to write; give --out, such as --out prediction.nc, or --plot map.png")
    if out is not None:
        check_output(out)
    _check_paths(out, plot, coast, context=context, target=target)
    if plot is not None:
        from aenp.earth.maps import map_prediction, read_coast
    observed = open_points(context, variable)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prediction = interpolated(observed, target, "value", quantiles, samples, seed, sys.stderr.isatty()).load()
    shore = None if plot is None or coast is None else read_coast(coast, prediction, observed)
    for each in caught:
        print(f"aenp: {each.message}", file=sys.stderr)
    if out is not None:
        print(write_prediction(prediction, out))
    if plot is not None:
        print(map_prediction(prediction, observed, plot, shore))


def predict(
    weights: str,
    context: Path,
    target: str,
    out: Path,
    variable: Words = None,
    elevation: File = None,
    plot: File = None,
    coast: File = None,
    quantiles: Annotated[tuple[float, ...], optional("P ...")] = (),
    samples: Annotated[int, number(int, 0, 10**4)] = 0,
    seed: Seed = 0,
    covariates: Files = (),
) -> None:
    """Predict a field from observations: mean, standard deviation, the equivariant part, local effects.

    Example: aenp predict --weights era5-2d/pttnp-approx --context stations.csv --target 36,47,6,19,0.25
    --out prediction.nc --plot map.png

    Args:
        weights: a model that `aenp fit` wrote, or its directory, or the name of a shipped one.
        context: observations: a CSV table, or a file with a gridded field that is NaN where nothing was observed.
        target: where to predict: a file with latitudes and longitudes, or south,north,west,east,step in degrees.
        out: NetCDF file to write; a name that ends in .csv makes a table, in .zarr a Zarr directory.
        variable: name of the values in the context, or t2m,u10 for a model of several variables, in its order; by
            default the names in training, or the only one.
        elevation: a topography in metres, for a model that sees elevation, where context or target have none.
        plot: a map to draw, such as map.png; by default none.
        coast: a file with topography or a land–sea mask, for coastlines on the map that --plot draws.
        quantiles: probabilities of quantiles to predict, such as 0.05 0.5 0.95.
        samples: number of coherent samples to draw: plausible fields, without the noise of single observations.
        seed: random seed of the samples.
        covariates: files of the model's covariates, where context or target have no column or variable of that name.
    """
    check_output(out)
    _check_paths(out, plot, coast, covariates, weights=weights, context=context, target=target, elevation=elevation)
    if plot is not None:
        from aenp.earth.maps import map_prediction, read_coast
    model = field_model(weights)
    observed = model.observed(context, variable, elevation, covariates)
    shore = None if plot is None or coast is None else read_coast(coast, target, observed)
    prediction = model.predict(
        observed, target, model.columns, elevation, sys.stderr.isatty(), quantiles, samples, seed, covariates
    ).load()
    if "comment" in prediction.attrs:
        print(f"aenp: {prediction.attrs['comment']}", file=sys.stderr)
    print(write_prediction(prediction, out))
    if plot is not None:
        print(map_prediction(prediction, observed, plot, shore))


def suggest(
    context: Positional[Path],
    weights: str,
    candidates: str,
    number: Count = 5,
    target: Text = None,
    variable: Text = None,
    elevation: File = None,
    out: File = None,
    plot: File = None,
    coast: File = None,
    covariates: Files = (),
) -> None:
    """Find where the next stations would tell most, one after another.

    The table has a row for each, with the reduction: by about how many percent it and those above it reduce the sum of
    the predictive variances at the target.

    Example: aenp suggest stations.csv --weights era5-2d/pttnp-approx --candidates 36,47,6,19,1 --number 3
    --out places.csv --plot map.png

    Args:
        context: observations of a few typical times: a CSV table, or a file with a gridded field that is NaN where
            nothing was observed.
        weights: a model that `aenp fit` wrote, or its directory, or the name of a shipped one.
        candidates: where stations can be placed: a file with latitudes and longitudes, or south,north,west,east,step in
            degrees.
        number: how many to place.
        target: where predictions matter, as the candidates; by default there. Of more than 256 places, so many stand
            for all.
        variable: name of the values in the context; by default the name in training, or the only one.
        elevation: a topography in metres, for a model that sees elevation, where context or candidates have none.
        out: CSV file for the table of stations; by default none.
        plot: a map to draw, such as map.png; by default none.
        coast: a file with topography or a land–sea mask, for coastlines on the map that --plot draws.
        covariates: files of the model's covariates, where context or candidates have no column or variable of that
            name.
    """
    _check_table(out)
    files = {"context": context, "elevation": elevation}
    _check_paths(out, plot, coast, covariates, weights=weights, candidates=candidates, target=target, **files)
    table = field_model(weights).suggest(
        context, candidates, number, target, variable, elevation, plot, covariates, coast, sys.stderr.isatty()
    )
    print(table.round(3).to_string())
    if out is not None:
        with written_whole(out) as temporary:
            table.to_csv(temporary)
        print(out)
    if plot is not None:
        print(plot)


def validate(
    data: Positional[Path],
    weights: str,
    days: Annotated[Period | None, optional("FIRST LAST")] = None,
    region: Annotated[Region | None, optional("S N W E"), number(float, -360, 360, 4)] = None,
    stations: File = None,
    fraction: Annotated[float | None, optional("SHARE"), number(float, 0.001, 0.999)] = None,
    tasks: Count = 30,
    variable: Words = None,
    elevation: File = None,
    seed: Seed = 0,
    out: File = None,
    plot: File = None,
    covariates: Files = (),
) -> None:
    """Compare a model with climatology, inverse distances and kriging, at places and times that are held out.

    Example: aenp validate t2m.nc --weights runs/italy --days 2022-06-16 2022-06-30 --out table.csv --plot scores.png

    Args:
        data: a field or a table of stations, as for `aenp fit`; baselines learn from the model's training period in it.
        weights: a model that `aenp fit` wrote, or its directory, or the name of a shipped one.
        days: first and last date to predict; by default those after the model's training period.
        region: south, north, west, east in degrees; by default all of the data.
        stations: a table of places that the model has never seen, to predict; by default random ones.
        fraction: share of the places that is observed; by default 0.8 of stations, 0.1 of the cells of a grid.
        tasks: number of times to predict, spread over the days.
        variable: name of the values; by default the name in training, or the only one. Of a model of several variables,
            those to predict, such as t2m,u10; by default each in turn.
        elevation: a topography in metres, for kriging with elevation and models that see it, where data have none.
        seed: random seed of the places and times.
        out: CSV file for the table of scores; by default none.
        plot: a chart to draw, such as scores.png; by default none.
        covariates: files of the model's covariates, where the data have no column of that name.
    """
    _check_table(out)
    _check_paths(out, plot, None, covariates, weights=weights, data=data, stations=stations, elevation=elevation)
    model = field_model(weights)
    results = [
        model.validate(
            data,
            stations,
            days,
            sys.stderr.isatty(),
            region=region,
            fraction=fraction,
            tasks=tasks,
            variable=name,
            elevation=elevation,
            seed=seed,
            covariates=covariates,
        )
        for name in variable or (model.columns if model.frame.kinds else [None])
    ]
    print(*results, sep="\n\n")
    single = len(results) == 1
    if out is not None:
        with written_whole(out) as temporary:
            tables = {each.variable: each.table for each in results}
            (results[0].table if single else pd.concat(tables, names=["variable"])).to_csv(temporary)
        print(out)
    if plot is not None:
        for each in results:
            print(each.plot(plot if single else plot.with_stem(f"{plot.stem}-{each.variable}")))


def _check_paths(
    out: Path | None,
    plot: Path | None,
    coast: Path | None = None,
    covariates: Sequence[Path] = (),
    **inputs: str | Path | None,
) -> None:
    """Raises an error if an output would replace an input, or the picture cannot be written."""
    if coast is not None and plot is None:
        raise ValueError("--coast draws coastlines on a map, but there is none; add --plot, such as --plot map.png")
    layers = {f"covariates {path}": path for path in covariates}
    check_apart({**inputs, **layers, "coast": coast}, {"out": out, "plot": plot})
    if plot is not None:
        from aenp.evaluation.plots import picture_format

        check_place(plot)
        picture_format(plot)


def _check_table(file: Path | None) -> None:
    """Raises an error if no table can be written under this name."""
    if file is not None:
        check_place(file)
        if file.suffix != ".csv":
            raise ValueError(f"{file} is no name for a table; choose one that ends in .csv")


def field_model(weights: str) -> FieldModel:
    """The model in the file or of the name; an error if it has no physical units."""
    model = find_model(weights)
    if not isinstance(model, FieldModel):
        raise ValueError(
            f"{weights} does not predict a field in physical units; "
            "use an era5 model (`aenp models` lists them) or one from `aenp fit`"
        )
    return model
