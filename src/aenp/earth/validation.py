"""Validation: how well a model predicts places and times that it is not given, beside kriging on the same tasks."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import xarray as xr
from jaxtyping import Float
from numpy import ndarray
from numpy.random import Generator
from rich.console import Console
from rich.progress import Progress
from torch import Tensor
from torch.distributions import Distribution, Normal

from aenp import likelihoods
from aenp.distributions import CensoredNormal
from aenp.earth.adjustment import LEVEL, TAILS, depth
from aenp.earth.baselines import fit_baselines
from aenp.earth.climatology import PLACE
from aenp.earth.field_model import FieldModel
from aenp.earth.holdout import Choice, hold_out
from aenp.earth.points import PointsLike
from aenp.earth.reference import Given, Moments
from aenp.evaluation.metrics import crps
from aenp.evaluation.scores import Score

MODEL, EQUIVARIANT = "model", "equivariant part"
LOSES = "The model loses to"
SUSPECT = 5.0
"Times the median place's RMSE beyond which the observations of a place are suspect, if no method does better there."
FEW = 5
"The smallest number of predictions at a place that tell."
METRICS = ("rmse", "mae", "bias", "crps", "loglik", "coverage")


@dataclass(frozen=True)
class Validation:
    """Predictions of a model and of baselines for the same places and times, and what was observed there.

    Args:
        predictions: a row for each target and method: `time`, `latitude`, `longitude`, perhaps `elevation`, the
            observed `value`, the `method`, the `mean` and `std` that it predicts, and what `scores` returns.
        variable: the name of the values.
        units: their units.
        note: what to know about the times, if anything.
        hints: what to try where a baseline of this name beats the model.
    """

    predictions: pd.DataFrame
    variable: str
    units: str
    note: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Each metric of each method, and its standard error over days, under the metric's name with `_se`.

        Columns are `rmse`, `mae`, `bias` (mean minus observation) and `crps` in the units of the values, `loglik`, the
        log-likelihood per target, and `coverage`, the share of targets in the central 90 % interval.
        """
        rows = {}
        for method, values in self._by_time.groupby("method", sort=False):
            found = {name: self._score(values[name]) for name in values}
            square, rmse = found["square"], np.sqrt(found["square"].mean)
            found["rmse"] = Score(rmse, square.standard_error / (2 * rmse) if rmse else 0.0)
            rows[method] = {name: found[name].mean for name in METRICS}
            rows[method] |= {f"{name}_se": found[name].standard_error for name in METRICS}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")

    @cached_property
    def pit(self) -> pd.DataFrame:
        """The share of the targets in each tenth of the predicted probability, by method; 0.1 if calibrated."""
        tenth = self.predictions["pit"].mul(10).astype(int).clip(upper=9)
        return pd.crosstab(self.predictions["method"], tenth, normalize="index").reindex(
            index=self.table.index, columns=range(10), fill_value=0.0
        )

    def coverage(self, levels: Float[ndarray, " levels"]) -> pd.DataFrame:
        """The share of the targets in central intervals of these probabilities, by method."""
        depth = 2 * (self.predictions["pit"] - 0.5).abs()
        inside = pd.DataFrame({level: depth <= level for level in levels})
        return inside.groupby(self.predictions["method"]).mean().reindex(self.table.index)

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draws errors and CRPS of each method, the histogram of the PIT and the coverage of intervals."""
        from aenp.earth.charts import draw_validation

        return draw_validation(self, Path(path))

    @property
    def verdict(self) -> str:
        """How the model compares with the best baseline, in one sentence."""
        best = self._best
        difference = self._score(self._by_time.loc[MODEL, "crps"] - self._by_time.loc[best, "crps"])
        told = (
            f"CRPS {self.table.loc[MODEL, 'crps']:.3g} against {self.table.loc[best, 'crps']:.3g} {self.units}".rstrip()
        )
        error = f"difference {_with_error(difference.mean, difference.standard_error)}"
        if np.isnan(difference.standard_error):
            side = "worse" if difference.mean > 0 else "better"
            return f"On the one day predicted, too few to tell, the model is {side} than {best}: {told}, {error}."
        if difference.sign > 0:
            return f"{LOSES} {best}: {told}, {error}."
        if difference.sign < 0:
            return f"The model beats every baseline; the best of them is {best}: {told}, {error}."
        return f"The model is not clearly better or worse than {best}, the best baseline: {told}, {error}."

    @cached_property
    def suspects(self) -> pd.DataFrame:
        """Places where the model and the best baseline have an RMSE of over five times the median place's.

        There the observations, or the place or elevation that they are said to be of, may be wrong. Columns are
        `latitude`, `longitude`, the model's `rmse` and the `share` that the place has of the model's squared errors.
        Places with fewer than five predictions are left out.
        """
        squares = self.predictions.groupby(["method", *PLACE])["square"]
        both = squares.mean()[squares.size() >= FEW].unstack("method").reindex(columns=[MODEL, self._best])
        found = both[(both > SUSPECT**2 * both.median()).all(axis=1)]
        sums = squares.sum()[MODEL]
        facts = {"rmse": np.sqrt(found[MODEL]), "share": sums.reindex(found.index) / sums.sum()}
        return pd.DataFrame(facts).sort_values("share", ascending=False).reset_index()

    @property
    def _advice(self) -> str:
        """What to check, if any place is suspect."""
        if self.suspects.empty:
            return ""
        worst = self.suspects.iloc[0]
        where = "1 place" if len(self.suspects) == 1 else f"{len(self.suspects)} places"
        return (
            f"At {where} the errors of the model and of {self._best} are over {SUSPECT:g} times those of the median "
            f"place, {self.suspects['share'].sum():.0%} of all squared errors; check the observations there, first at "
            f"{worst['latitude']:.4f}, {worst['longitude']:.4f}."
        )

    @property
    def _best(self) -> str:
        """The baseline of the smallest CRPS."""
        return str(self.table.drop(index=[MODEL, EQUIVARIANT], errors="ignore")["crps"].idxmin())

    def __str__(self) -> str:
        times, targets = self.predictions["time"].nunique(), (self.predictions["method"] == MODEL).sum()
        shown = pd.DataFrame(index=self.table.index.rename(None))
        for name in METRICS:
            shown[name] = list(map(_with_error, self.table[name], self.table[f"{name}_se"]))
        units = self.units and f" [{self.units}]"
        title = f"{self.variable}{units}: {targets} targets at {times} times, with standard errors"
        hint = self.hints.get(self._best, "") if self.verdict.startswith(LOSES) else ""
        told = filter(None, [self.note, self._advice, self.verdict, hint])
        return "\n".join([title, shown.to_string(), *told])

    @cached_property
    def _by_time(self) -> pd.DataFrame:
        """Each metric at each time, the mean over its targets."""
        names = ["square", "mae", "bias", "crps", "loglik", "coverage"]
        return self.predictions.groupby(["method", "time"], sort=False)[names].mean()

    def _score(self, values: pd.Series) -> Score:
        """The mean over times, with its standard error over days; NaN for a single day."""
        days = torch.tensor(pd.factorize(values.index.get_level_values("time").floor("D"))[0]).unsqueeze(0)
        score = Score.of(torch.tensor(values.to_numpy(float)).unsqueeze(0), days)
        return score if days.max() > 0 else Score(score.mean, float("nan"))


def _with_error(value: float, error: float) -> str:
    return f"{value:.3g}" if np.isnan(error) else f"{value:.3g} ± {error:.2g}"


def scores(prediction: Moments, value: Float[ndarray, " points"]) -> dict[str, Float[ndarray, " points"]]:
    """Metrics at each place, of a Normal prediction."""
    normal, y = Normal(torch.tensor(prediction.mean), torch.tensor(prediction.std)), torch.tensor(value)
    error, pit = prediction.mean - value, normal.cdf(y)
    return {
        "square": error**2,
        "mae": np.abs(error),
        "bias": error,
        "crps": crps(normal, y).numpy(),
        "loglik": normal.log_prob(y).numpy(),
        "coverage": ((pit - 0.5).abs() <= LEVEL / 2).numpy().astype(float),
        "pit": pit.numpy(),
    }


def exact_scores(
    prediction: Distribution, y: Float[Tensor, "1 points 1"], scale: Float[Tensor, "1 points 1"], rng: Generator
) -> dict[str, Float[ndarray, " points"]]:
    """Metrics of any prediction that depend on more than its mean, of values y in units of `scale`.

    A bound with a probability of its own has the logarithm of that in place of a density's, and a PIT drawn at random
    from below to above it.
    """
    above = prediction.cdf(y)
    below = prediction.cdf_below(y) if isinstance(prediction, CensoredNormal) else above
    pit = below + torch.from_numpy(rng.random(y.shape)).to(y) * (above - below)
    density = prediction.log_prob(y) - torch.where(above > below, 0.0, scale.log())
    covered = ((pit - 0.5).abs() <= LEVEL / 2).double()
    found = {"crps": scale * crps(prediction, y), "loglik": density, "coverage": covered, "pit": pit}
    return {name: values.double().numpy().ravel() for name, values in found.items()}


def validate(model: FieldModel, data: PointsLike, choice: Choice, progress: bool = False) -> Validation:
    """The model, its equivariant part and every baseline on the same tasks."""
    tasks, number = hold_out(model, data, choice), _number(model, choice)
    own = {MODEL: partial(_scored, model, nullcontext, number)}
    if model.process.symmetry == "approx":
        own[EQUIVARIANT] = partial(_scored, model, model.process.equivariant, number)
    rows = []
    with Progress(console=Console(stderr=True), disable=not progress) as bar:
        line = bar.add_task("fitting baselines", total=len(tasks.splits))
        given = model.frame.reference if isinstance(model.frame.reference, Given) else None
        baselines = fit_baselines(tasks.history, tasks.rehearsals, given)
        bar.update(line, description="predicting")
        for split in tasks.splits:
            value, known = split.target["value"].to_numpy(float), split.context.dropna(subset="value")
            for name, each in own.items():
                rows.append(split.target.assign(method=name, **each(tasks.seen(split), split.target)))
            for name, baseline in baselines.items():
                moments = baseline.predict(known, split.target)
                rows.append(split.target.assign(method=name, **moments._asdict(), **scores(moments, value)))
            bar.advance(line)
    variable = model.frame.variables[number]
    return Validation(pd.concat(rows, ignore_index=True), variable.name, variable.units, tasks.note, _hints(model))


def _hints(model: FieldModel) -> dict[str, str]:
    """What the model was not fitted with, by the baseline that has it."""
    hints = {}
    if model.frame.reference is None and not model.frame.kinds and model.process.likelihood.relative:
        hints["kriging of anomalies"] = (
            "Within its own region, a model fitted with anomalies=True (--anomalies) would know the climatology of "
            "each place too."
        )
    if not model.frame.covariates and "elevation" not in model.frame.axes:
        hints["kriging with elevation"] = (
            "A model fitted with a topography among its covariates (--covariates) would know the elevation too."
        )
    return hints


def calibrate(model: FieldModel, data: PointsLike, choice: Choice, progress: bool = False) -> FieldModel:
    """The model with standard deviations scaled so that 90 % of the observations are in its 90 % intervals."""
    if not model.process.likelihood.relative:
        kind = type(model.process.likelihood).__name__
        raise ValueError(f"calibrate scales standard deviations, which a {kind} likelihood with bounds does not allow")
    every = model.columns if model.frame.kinds and choice.variable is None else [choice.variable]
    depths = []
    with Progress(console=Console(stderr=True), disable=not progress) as bar:
        for each in (replace(choice, variable=name) for name in every):
            tasks = hold_out(model, data, each)
            for split in bar.track(tasks.splits, description="calibrating"):
                result = model.predict(tasks.seen(split), split.target, model.columns, quantiles=TAILS)
                mean, ends = (_values(model, _number(model, each), result, name) for name in ("mean", "quantiles"))
                depths.append(depth(split.target["value"].to_numpy(), mean, *ends))
    spread = model.spread * float(np.quantile(np.concatenate(depths), LEVEL))
    return FieldModel(model.process, model.frame, spread, model.local_gain, model.centred, model.start).eval()


def _number(model: FieldModel, choice: Choice) -> int:
    """The number of the variable that is predicted."""
    return model.columns.index(str(choice.variable)) if model.frame.kinds else 0


def _predict(model: FieldModel, number: int, context: pd.DataFrame, target: pd.DataFrame) -> Moments:
    result = model.predict(context, target, model.columns)
    return Moments(*(_values(model, number, result, name) for name in ("mean", "std")))


def _values(model: FieldModel, number: int, result: xr.Dataset, name: str) -> Float[ndarray, "*labels points"]:
    """One of the outputs for a variable."""
    prefix = f"{model.columns[number]}_" if model.frame.kinds else ""
    return result[f"{prefix}{name}"].values.astype(float)


def _scored(
    model: FieldModel,
    part: Callable[[], AbstractContextManager[None]],
    number: int,
    context: pd.DataFrame,
    target: pd.DataFrame,
) -> dict[str, Float[ndarray, " points"]]:
    """The prediction of a model, or of part of it, and its scores."""
    value = target["value"].to_numpy(float)
    with part():
        moments = _predict(model, number, context, target)
        found = scores(moments, value) | moments._asdict()
        if isinstance(model.process.likelihood, likelihoods.Normal):
            return found
        y, rng = model.frame.y(value, target, number), np.random.default_rng(0)
        scale = np.broadcast_to(model.frame.units(target, number)[1], y.shape)
        for rows, prediction in model.distributions(context, target, number):
            at, unit = (torch.from_numpy(each[rows]).to(model.process.dtype).view(1, -1, 1) for each in (y, scale))
            for name, values in exact_scores(prediction, at, unit, rng).items():
                found[name][rows] = values
    return found
