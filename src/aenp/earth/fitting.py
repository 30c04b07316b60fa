"""fit: a model of a scientist's own field or stations, with settings that suit most."""

import os
import sys
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch

from aenp.arguments import Flag, Text, check_limits, number, optional, words
from aenp.data.elsewhere import reaches
from aenp.data.kinds import CountedFromLevels
from aenp.data.patches import Patches
from aenp.data.stream import TaskSource
from aenp.earth.adjustment import adjust
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Frame
from aenp.earth.points import PointsLike, is_scattered
from aenp.earth.regions import Period, Region
from aenp.earth.sources import FieldLike
from aenp.earth.starting import STARTS, record, recorded, start_at_base, stay_near
from aenp.earth.training_data import Data, prepare
from aenp.fixed_inputs import FixedInputs
from aenp.likelihoods import Bounded, Likelihood, NonNegative, Normal, Robust
from aenp.models import make
from aenp.models.scales import points_per_unit, relative_values, wavelengths
from aenp.nn.coordinates import box_of
from aenp.process import NeuralProcess, Symmetry
from aenp.shipped import shipped
from aenp.training.directory import CHECKPOINT
from aenp.training.loop import Outcome, train
from aenp.training.recipe import Recipe

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "normal": Normal,
    "robust": Robust,
    "precipitation": NonNegative,
    "bounded": Bounded,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "tnp": {"attention": "spectral", "dim": 64, "heads": 4, "layers": 4},
    "pttnp": {"attention": "spectral", "pseudo_tokens": 64, "pseudo_spread": 0.7, "dim": 64, "heads": 4, "layers": 4},
    "convcnp": {"channels": 32, "layers": 7, "kernel": 5, "margin": 0},
    "relaxedconvcnp": {"channels": 32, "layers": 7, "kernel": 5, "margin": 0},
    "equivcnp": {"group": "C4", "network": "unet", "channels": 32, "layers": 5, "kernel": 5, "margin": 0},
}
RECIPES: dict[str, dict[str, Any]] = {
    "tnp": {"batch_size": 8},
    "pttnp": {"batch_size": 8},
    "convcnp": {"batch_size": 4, "optimiser": "muon"},
    "relaxedconvcnp": {"batch_size": 4, "optimiser": "muon"},
    "equivcnp": {"batch_size": 4},
}
LEARNING_RATE = 2e-3


@dataclass(frozen=True)
class FitOptions:
    """What to train on which part of the data, and for how long.

    Args:
        family: convcnp, pttnp, relaxedconvcnp, equivcnp or tnp; by default tnp for stations, convcnp for fields, and
            pttnp for fields with `time`.
        symmetry: approx learns local effects too; exact is the same everywhere; none has no symmetry.
        minutes: how long to train.
        variable: name of the values, or names of several variables to learn together; needed where there are several.
        region: south, north, west, east in degrees; by default all of the data.
        period: first and last date, such as 2019-03-01 2019-03-15; by default all of the data.
        steps: a number of training steps, in place of minutes.
        seed: random seed of parameters, tasks and dropout.
        likelihood: normal; robust, for measurements of which some are faulty; precipitation, for what is never negative
            and often zero; bounded, for what has two bounds. By default robust for stations and normal for fields.
        bounds: smallest and largest value of a bounded variable; by default those of its units, % or 1.
        anomalies: learn deviations from the climatology of each place, its mean and yearly and daily cycle.
        given: name of a covariate that is a first guess of the values, such as a reanalysis: learn differences to it.
        time: length of a window, such as "2 days": a prediction uses observations up to half of it before and after.
        start: base, at the weights of a model trained on random fields, or nothing; by default base if there is one.
    """

    family: Text = None
    symmetry: Symmetry = "approx"
    minutes: float = 20.0
    variable: Annotated[str | Sequence[str] | None, optional("NAME,..."), words()] = None
    region: Annotated[Region | None, optional("S N W E"), number(float, -360, 360, 4)] = None
    period: Annotated[Period | None, optional("FIRST LAST")] = None
    steps: Annotated[int | None, optional("N")] = None
    seed: int = 0
    likelihood: Text = None
    bounds: Annotated[tuple[float, float] | None, optional("LOW HIGH")] = None
    anomalies: Flag = False
    given: Text = None
    time: Annotated[str | None, optional("LENGTH")] = None
    start: Annotated[str | None, optional("{base,nothing}")] = None

    def __post_init__(self) -> None:
        if self.family is not None and self.family not in OPTIONS:
            raise ValueError(f"family must be one of {', '.join(OPTIONS)}; got {self.family!r}")
        if self.time is not None and self.family is not None and "attention" not in OPTIONS[self.family]:
            raise ValueError(f"a window of time needs family='pttnp' or 'tnp'; got {self.family!r}")
        check_limits(self)
        if self.start is not None and self.start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}; got {self.start!r}")
        if self.likelihood is not None and self.likelihood not in LIKELIHOODS:
            raise ValueError(f"likelihood must be one of {', '.join(LIKELIHOODS)}; got {self.likelihood!r}")
        if self.bounds is not None and self.likelihood != "bounded":
            raise ValueError(f"bounds are for likelihood='bounded'; got {self.likelihood!r}")
        relative = self.likelihood is None or LIKELIHOODS[self.likelihood].relative
        if (self.anomalies or self.given is not None) and not relative:
            what = "anomalies are deviations" if self.anomalies else "differences to what is given are"
            raise ValueError(f"{what} of either sign, for likelihood='normal' or 'robust'; got {self.likelihood!r}")
        if self.anomalies and self.given is not None:
            raise ValueError("values are deviations from the climatology or from what is given; leave one of them out")
        if self.region is not None and not all(-360 <= bound <= 360 for bound in self.region):
            raise ValueError(f"region must be south, north, west, east in degrees; got {self.region}")

    def suited_to(self, scattered: bool) -> "FitOptions":
        """The same, with what is not chosen as it suits stations, or fields."""
        family, likelihood = ("tnp", "robust") if scattered else ("convcnp" if self.time is None else "pttnp", "normal")
        return replace(self, family=self.family or family, likelihood=self.likelihood or likelihood)


def fit(
    data: PointsLike,
    family: str | None = None,
    symmetry: Symmetry = "approx",
    minutes: float = 20.0,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    covariates: Sequence[FieldLike] = (),
    **options: Any,
) -> FieldModel:
    """A model trained on the fields or stations in `data`: given a few observations, it predicts a whole field.

    Ctrl-C ends the training early and returns the model trained so far.

    A fifth of the stations, in small networks up to a quarter, is never trained on. In the end `fit` prints what local
    effects are worth at these, which `local_gain` of the model keeps, weakens or switches off effects that do not hold
    there, and scales standard deviations so that 90 % intervals are right there.

    Args:
        data: a field `(time, latitude, longitude)` in xarray, or a table with time, latitude, longitude and a
            value, or a file of either kind. A curved grid is taken as points. Of a single field with gaps, such as a
            cloudy image, the model learns to fill these. Several variables, all those of a data set or those that
            `variable` names, are learned together; any of them may be missing anywhere.
        family: convcnp, pttnp, relaxedconvcnp, equivcnp or tnp; by default tnp for stations, convcnp for fields, and
            pttnp for fields with `time`.
        symmetry: `approx` learns local effects too; `exact` is the same everywhere; `none` has no symmetry.
        minutes: how long to train.
        out: directory for the model, logs and checkpoints; by default none is kept.
        resume: continue the training in `out`.
        covariates: what is known wherever the model is used, such as a topography: fields or files, with time or
            without, or names of columns or variables of `data`. Local effects are then what these do not explain.
        options: `variable`, `region`, `period`, `steps`, `seed`, `likelihood`, `bounds`, `anomalies`, `given`, `time`
            and `start`, as in `FitOptions`.

    Example:
        >>> import numpy as np
        >>> import pandas as pd
        >>> import xarray as xr
        >>> import aenp
        >>> coords = {"time": pd.date_range("2020-06-01", periods=12)}
        >>> coords |= {"latitude": np.arange(44, 52, 0.25), "longitude": np.arange(2, 10, 0.25)}
        >>> values = np.random.default_rng(0).normal(288, 3, (12, 32, 32))
        >>> field = xr.DataArray(values, coords, name="t2m", attrs={"units": "K"})
        >>> model = aenp.fit(field, symmetry="exact", steps=1)  # a real training takes minutes
        >>> dict(model.predict(field[-1:], "45,46,3,4,0.5").sizes)
        {'time': 1, 'latitude': 3, 'longitude': 3}
    """
    if resume and out is None:
        raise ValueError("resume needs `out`, the directory of the run")
    chosen = FitOptions(family, symmetry, minutes, **options)
    with TemporaryDirectory() as temporary:
        return fit_in(temporary if out is None else out, data, chosen, resume, covariates)[0]


def fit_in(
    out: str | os.PathLike[str],
    data: PointsLike,
    options: FitOptions,
    resume: bool,
    covariates: Sequence[FieldLike] = (),
) -> tuple[FieldModel, Outcome]:
    """As `fit`, in a directory; also returns the outcome of the training."""
    options = options.suited_to(is_scattered(data))
    family, likelihood = str(options.family), str(options.likelihood)
    own = prepare(
        data,
        options.variable,
        options.region,
        options.period,
        likelihood,
        options.bounds,
        covariates,
        options.anomalies,
        options.given,
        options.time,
    )
    saved = Path(out) / "model.safetensors"
    former = FieldModel.load(saved) if resume and saved.exists() else None
    if former is not None and former.frame.configuration() != own.frame.configuration():
        raise ValueError(
            f"the run in {out} was fitted to other data; resume it with the same data, variable, region, period, "
            "covariates, anomalies, given, time, likelihood and bounds"
        )
    process = _model(family, options.symmetry, own, options.seed, LIKELIHOODS[likelihood]())
    known = bool(own.frame.covariates)
    if resume:
        start = recorded(out, asdict(options), None if former is None else former.start)
        is_at_start = start is not None and start_at_base(process, known) == start
    else:
        start = None if options.start == "nothing" else start_at_base(process, known)
        is_at_start = start is not None
        if start is None and options.start != "nothing":
            _tell_of_nothing(options)
        if not (Path(out) / CHECKPOINT).exists():  # that of another run, which `train` refuses to overwrite
            record(out, asdict(options), start)
    begun = deepcopy(process.state_dict())
    recipe = _recipe(1 if options.steps is None else options.steps, family, own, start)

    def framed(process: NeuralProcess) -> FieldModel:
        return FieldModel(process, own.frame, centred=own.centred, start=start)

    source = own.source
    if "attention" not in OPTIONS[family]:
        source = with_all_targets(source)  # on its grid a convolution has computed them all
    outcome = train(
        process,
        source,
        recipe,
        out,
        options.minutes if options.steps is None else None,
        options.seed,
        own.validation,
        resume=resume,
        wrap=framed,
        keep_best=True,
    )
    if is_at_start and own.validation:
        share = stay_near(process, begun, own.validation)
        if share < 1:
            way = f"{100 * share:.0f} % of the way from {start} to the trained weights"
            print(f"aenp: held-out tasks are predicted best {way}", file=sys.stderr)
    if not own.new_places:
        model = framed(process).eval()
        model.save(saved)
        return model, outcome
    found = adjust(process, own.validation, own.doubt)
    gain = (found.gain.mean, found.gain.standard_error) if options.symmetry == "approx" else None
    model = FieldModel(process, own.frame, found.spread, gain, own.centred, start).eval()
    model.save(saved)
    if gain is not None:
        print(f"aenp: {found}", file=sys.stderr)
    return model, outcome


def _tell_of_nothing(options: FitOptions) -> None:
    """An error if a base model was asked for; one line if the family has one, which does not suit."""
    what = f"a {options.family} with symmetry={options.symmetry!r} and likelihood={options.likelihood!r}"
    if options.start == "base":
        raise ValueError(f"there is no base model for {what}; leave `start` out, or choose another family")
    if any(name.startswith(f"base/{options.family}-") for name in shipped("base")):
        print(f"aenp: training starts from nothing, as there is no base model for {what}", file=sys.stderr)


def with_all_targets(source: TaskSource) -> TaskSource:
    """The same tasks, with every target of a patch."""
    if isinstance(source, CountedFromLevels):
        return replace(source, source=with_all_targets(source.source))
    return replace(source, num_targets=None) if isinstance(source, Patches) else source


def _recipe(steps: int, family: str, data: Data, start: str | None) -> Recipe:
    """How to train: half of the time as if elsewhere, and from nothing without the places first."""
    elsewhere = 0.0 if reaches(box_of(data.frame.domain, len(data.frame.axes))) else 0.5
    exact_first = 0.25 if start is None else 0.0
    return Recipe(steps, learning_rate=LEARNING_RATE, exact_first=exact_first, elsewhere=elsewhere, **RECIPES[family])


def _model(family: str, symmetry: Symmetry, data: Data, seed: int, likelihood: Likelihood) -> NeuralProcess:
    """An untrained model with sizes and scales that suit the data."""
    tasks = [data.source.batch(16, index, seed=0) for index in range(4)]
    values = relative_values(tasks) if likelihood.relative and not data.frame.kinds else "raw"
    options = OPTIONS[family] | {"values": values, "likelihood": likelihood}
    options["dim_covariates"] = len(data.frame.covariates) + data.frame.kinds
    if "attention" in options:
        options["wavelengths"] = wavelengths(tasks)
    else:
        options["points_per_unit"] = points_per_unit(tasks)
    torch.manual_seed(seed)
    fixed_inputs, axes, domain = None, data.frame.axes, data.frame.domain
    if symmetry == "approx":
        dropout = 0.25 if "attention" in options or data.spacing else 0.5
        fourier = 8 if data.spacing else 16
        periods = [_phases(axis, data.cycles) for axis in axes.values()]
        fixed_inputs = FixedInputs(len(axes), 32, domain, dropout, fourier, jitter=data.spacing, periods=periods)
        if "attention" in options:
            options["fixed_at_targets"] = True
    if symmetry == "none":
        options |= {"domain": [each or _covered(data.frame) for each in domain], "fourier": 16}
    return make(family, symmetry, len(axes), 1, fixed_inputs, **options)


def _phases(axis: Axis, cycles: Sequence[float]) -> list[float] | None:
    """The cycles of time in the axis's unit: local effects repeat themselves, and so hold at times never seen."""
    return [cycle / axis.unit for cycle in cycles] if axis.name == "time" else None


def _covered(frame: Frame) -> tuple[float, float]:
    """The training period in the model's unit."""
    first, last = frame.axes["time"].x(np.array(frame.period, "datetime64[D]")).tolist()
    return first, last
