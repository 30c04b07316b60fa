"""fit: a model of a scientist's own field or stations, with settings that suit most."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray as xr

from aenp.data import Source as Tasks
from aenp.data.gridded import open_gridded
from aenp.data.patches import Patches
from aenp.data.points import Source, is_scattered, open_points
from aenp.data.sources import Period, Region
from aenp.data.windows import Windows
from aenp.fields import FieldModel, Frame
from aenp.fixed_inputs import FixedInputs
from aenp.functions import points_per_unit, wavelengths
from aenp.models import make
from aenp.process import NeuralProcess, Symmetry
from aenp.recipe import Recipe
from aenp.task import Task
from aenp.training import Outcome, train

IN_MEMORY = 2**30
"Bytes up to which a field is read as a whole."
CELLS_PER_UNIT = 16
POINTS_IN_WINDOW = 128
PLACE = ("latitude", "longitude")
OPTIONS: dict[str, dict[str, Any]] = {
    "tnp": {"attention": "spectral", "dim": 64, "heads": 4, "layers": 4},
    "pttnp": {"attention": "spectral", "pseudo_tokens": 64, "pseudo_spread": 0.7, "dim": 64, "heads": 4, "layers": 4},
    "convcnp": {"channels": 32, "layers": 7},
    "relaxedconvcnp": {"channels": 32, "layers": 7},
    "equivcnp": {"group": "C8", "channels": 32, "layers": 5},
}


@dataclass(frozen=True)
class Data:
    """Tasks in a model's units, for training and for validation, and the frame that these units are of."""

    source: Tasks
    validation: list[Task]
    frame: Frame


def fit(
    data: Source,
    family: str = "convcnp",
    symmetry: Symmetry = "approx",
    minutes: float = 20.0,
    variable: str | None = None,
    region: Region | None = None,
    period: Period | None = None,
    steps: int | None = None,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> FieldModel:
    """A model trained on the fields or stations in `data`: given a few observations, it predicts all of a field.

    Ctrl-C ends the training early; the model is then as good as it has become.

    Args:
        data: a field `(time, latitude, longitude)` as xarray has it, or a table with time, latitude, longitude and a
            value, or a file of either kind.
        family: convcnp, pttnp, relaxedconvcnp, equivcnp or tnp.
        symmetry: `approx` learns local effects too; `exact` is the same everywhere; `none` knows no symmetry.
        minutes: how long to train.
        variable: the name of the values, where there are several.
        region: south, north, west, east in degrees; by default all of `data`.
        period: first and last date.
        steps: a number of training steps in place of `minutes`.
        seed: of parameters, tasks and dropout.
        out: directory for the model, logs and what is needed to go on; by default none is kept.
        resume: go on with the training in `out`.
    """
    if resume and out is None:
        raise ValueError("what is to be resumed? Give `out`")
    with TemporaryDirectory() as temporary:
        where = temporary if out is None else out
        return fit_in(where, data, family, symmetry, minutes, variable, region, period, steps, seed, resume)[0]


def fit_in(
    out: str | os.PathLike[str],
    data: Source,
    family: str,
    symmetry: Symmetry,
    minutes: float,
    variable: str | None,
    region: Region | None,
    period: Period | None,
    steps: int | None,
    seed: int,
    resume: bool,
) -> tuple[FieldModel, Outcome]:
    """As `fit`, in a directory; tells also how far the training came."""
    if family not in OPTIONS:
        raise ValueError(f"family must be one of {', '.join(OPTIONS)}; got {family!r}")
    own = prepare(data, variable, region, period)
    model = FieldModel(_model(family, symmetry, own, seed), own.frame)
    recipe = Recipe(steps=1 if steps is None else steps, learning_rate=1e-3)
    budget = minutes if steps is None else None
    outcome = train(model.process, own.source, recipe, out, budget, seed, own.validation, resume=resume)
    model.save(Path(out) / "model.safetensors")
    return model.eval(), outcome


def prepare(
    data: Source,
    variable: str | None = None,
    region: Region | None = None,
    period: Period | None = None,
) -> Data:
    """The data as tasks: the first nine tenths of the dates for training, the others for validation."""
    if is_scattered(data):
        return _from_points(open_points(data, variable, region, period))
    return _from_field(open_gridded(data, variable, region, period))


def _from_field(field: xr.DataArray) -> Data:
    """Patches of the field; a unit of x is so many cells."""
    latitude, longitude = field.latitude.values, field.longitude.values
    if min(len(latitude), len(longitude)) < 4:
        raise ValueError(f"a field needs at least 4 × 4 points to learn from; got {field.shape[1]} × {field.shape[2]}")
    if field.nbytes <= IN_MEMORY:
        field = field.load()
    step = max(np.median(np.diff(values)) for values in (latitude, longitude))
    box = (latitude.min(), latitude.max(), longitude.min(), longitude.max())
    frame = _frame(box, CELLS_PER_UNIT * step, float(field.mean()), float(field.std()), str(field.name), field)
    values = ((field - frame.mean) / frame.std).astype(np.float32).data
    axes = frame.x(latitude, longitude[0])[:, 0], frame.x(latitude[0], longitude)[:, 1]

    def patches(values: Any) -> Patches:
        return Patches(values, axes, min(32, *field.shape[1:]), (0.01, 1 / 3), equal_sizes=True, num_targets=256)

    return _data(patches, values, frame)


def _from_points(table: pd.DataFrame) -> Data:
    """Windows with about so many stations; a unit of x is half their side."""
    table = table if "time" in table else table.assign(time=pd.Timestamp(0))
    wide = table.pivot_table(index="time", columns=["latitude", "longitude"], values="value")
    latitude, longitude = (wide.columns.get_level_values(name).to_numpy(float) for name in PLACE)
    box = (latitude.min(), latitude.max(), longitude.min(), longitude.max())
    area = max((box[1] - box[0]) * (box[3] - box[2]), 1e-6)
    degrees = math.sqrt(area * min(1.0, POINTS_IN_WINDOW / len(latitude))) / 2
    mean, std = float(table["value"].mean()), float(table["value"].std())
    frame = _frame(box, degrees, mean, std, table.attrs.get("name", "value"), table)
    places = frame.x(latitude, longitude)
    values = ((wide.to_numpy() - frame.mean) / frame.std).astype(np.float32)
    return _data(lambda values: Windows(values, places, extent=2.0), values, frame)


def _frame(
    box: Sequence[float], degrees: float, mean: float, std: float, name: str, data: xr.DataArray | pd.DataFrame
) -> Frame:
    units, long_name = (str(data.attrs.get(name, "")) for name in ("units", "long_name"))
    return Frame([float(bound) for bound in box], float(degrees), mean, std, name, units, long_name)


def _data(make: Callable[[Any], Tasks], values: Any, frame: Frame) -> Data:
    held_out = len(values) // 10
    validation = [make(values[-held_out:]).batch(16, index, seed=0) for index in range(4)] if held_out else []
    return Data(make(values[: len(values) - held_out]), validation, frame)


def _model(family: str, symmetry: Symmetry, data: Data, seed: int) -> NeuralProcess:
    """An untrained model with sizes and scales that suit the data."""
    tasks = [data.source.batch(16, index, seed=0) for index in range(4)]
    options = dict(OPTIONS[family])
    if "attention" in options:
        options["wavelengths"] = wavelengths(tasks)
    else:
        options["points_per_unit"] = points_per_unit(tasks)
    torch.manual_seed(seed)
    fixed_inputs = None
    if symmetry == "approx":
        fixed_inputs = FixedInputs(2, num=32, domain=data.frame.domain, dropout=0.1, fourier=4)
    return make(family, symmetry, 2, 1, fixed_inputs, **options)
