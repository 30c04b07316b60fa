"""Fitted models beside kriging on real data: `python -m benchmarks.validation --data DIR` writes `validation.md`.

Each case is `aenp fit` on a field or on stations, and `aenp validate` on days (and, of stations, places) that it has
not seen. A case that is done is a line of `validation.jsonl` beside this file, and is not repeated.
"""

import datetime
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch
import tyro
from matplotlib import pyplot

from aenp.earth.charts import COLOURS
from aenp.earth.fitting import FitOptions, fit_in
from aenp.evaluation.plots import save_figure
from aenp.evaluation.tables import markdown_table
from benchmarks import unseen_places
from benchmarks.measure import own_time
from benchmarks.speed import machine

HERE = Path(__file__).parent
ITALY = "era5_italy_0p25_3hourly_2022-05_06.nc"
UK = "era5_uk_0p25_hourly_2019-03.nc"
WFDE5 = "wfde5_uk_0p5_hourly_2017-01.nc"
POINTS = unseen_places.FILE
TOPOGRAPHY = "itu1511v2_topo_1_12deg.nc"
METRICS = {"rmse": "RMSE [K]", "crps": "CRPS [K]", "loglik": "log-likelihood", "coverage": "coverage of 90 %"}


@dataclass(frozen=True)
class Case:
    """A model to fit and to validate.

    Args:
        file: what to fit.
        period: of the training.
        days: of the test; None for the last third of what there is.
        options: of `aenp.fit`.
        elevation: whether the model sees the elevation.
        test: what to predict; by default the same file.
        values: of points, which of `unseen_places.COORDINATES` to take.
        unseen: of points, whether a fifth of the places is left out of the training, and predicted from the others.
        fraction: the share of the places that is observed; by default that of `validate`.
    """

    file: str
    period: tuple[str, str]
    days: tuple[str, str] | None
    options: Mapping[str, Any] = field(default_factory=dict)
    elevation: bool = False
    test: str | None = None
    values: str | None = None
    unseen: bool = False
    fraction: float | None = None


MAY, JUNE = ("2022-05-01", "2022-06-15"), ("2022-06-16", "2022-06-30")
EARLY_MAY, SINCE = ("2022-05-01", "2022-05-15"), ("2022-05-16", "2022-06-30")
JANUARY, LATER = ("2017-01-01", "2017-01-21"), ("2017-01-22", "2017-01-31")
YEARS, LAST = unseen_places.TRAINING, unseen_places.TEST
ANOMALIES, PTTNP = {"anomalies": True}, {"family": "pttnp"}
CASES = {
    "Italy": Case(ITALY, MAY, JUNE),
    "Italy, anomalies": Case(ITALY, MAY, JUNE, ANOMALIES),
    "Italy, anomalies, PTTNP": Case(ITALY, MAY, JUNE, PTTNP | ANOMALIES),
    "Italy in May, anomalies, PTTNP": Case(ITALY, SINCE, EARLY_MAY, PTTNP | ANOMALIES),
    "Italy, elevation": Case(ITALY, MAY, JUNE, elevation=True),
    "WFDE5": Case(WFDE5, JANUARY, LATER),
    "WFDE5, anomalies": Case(WFDE5, JANUARY, LATER, ANOMALIES),
    "WFDE5, anomalies, PTTNP": Case(WFDE5, JANUARY, LATER, PTTNP | ANOMALIES),
    "stations": Case(POINTS, YEARS, LAST, values="tmean_gsod", unseen=True),
    "stations, elevation": Case(POINTS, YEARS, LAST, elevation=True, values="tmean_gsod", unseen=True),
    "stations, elevation, Normal": Case(
        POINTS, YEARS, LAST, {"likelihood": "normal"}, elevation=True, values="tmean_gsod", unseen=True
    ),
    "2010": Case(POINTS, YEARS, LAST, values="t2m_era5", fraction=0.1),
    "2010, anomalies": Case(POINTS, YEARS, LAST, ANOMALIES, values="t2m_era5", fraction=0.1),
    "2010, two days": Case(POINTS, YEARS, LAST, {"time": "2 days"}, values="t2m_era5", fraction=0.1),
}
CASES |= {
    f"Italy → UK, {symmetry}{', elevation' * elevation}": Case(
        ITALY, MAY, None, {"symmetry": symmetry}, elevation, test=UK
    )
    for symmetry in ("exact", "approx")
    for elevation in (False, True)
}


def run(case: Case, data: Path, minutes: float, seed: int, tasks: int) -> dict[str, Any]:
    """Fits the model and scores it beside the baselines, with the slope of each one's errors over the elevation."""
    options, unseen = dict(case.options), None
    training, tested = data / case.file, data / (case.test or case.file)
    if case.values is None:
        options["period"] = case.period
    else:
        tested = training = unseen_places.stations(data / case.file, case.values)
        if case.unseen:
            unseen = unseen_places.left_out(tested, seed)
            training = tested[~unseen_places.is_at(tested, unseen)]
        training = training[training["time"].between(*case.period)]
    covariates = [data / TOPOGRAPHY] if case.elevation else []
    with TemporaryDirectory() as out, own_time():
        model, outcome = fit_in(out, training, FitOptions(minutes=minutes, seed=seed, **options), False, covariates)
    if not outcome.finished:
        raise SystemExit("stopped; the same command continues with this case")
    start, known = time.monotonic(), {"covariates": covariates, "elevation": data / TOPOGRAPHY}
    result = model.validate(tested, unseen, case.days, tasks=tasks, seed=seed, fraction=case.fraction, **known)
    return {
        "steps": outcome.steps,
        "validation_minutes": (time.monotonic() - start) / 60,
        "scores": result.table.to_dict("index"),
        "slopes": {method: slope(group) for method, group in result.predictions.groupby("method")},
        "verdict": result.verdict,
    }


def slope(predictions: pd.DataFrame) -> tuple[float, float]:
    """What is left of the lapse rate, in K/km: of the errors over the elevation, on land, and its error over days."""
    land = predictions[predictions["elevation"] > 0]
    days = land.assign(error=land["value"] - land["mean"]).groupby(land["time"].dt.floor("D"))
    slopes = pd.Series([1000 * np.polyfit(day["elevation"], day["error"], 1)[0] for _, day in days if len(day) > 2])
    return slopes.mean(), slopes.sem()


def main(
    data: Path,
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    minutes: float = 4.0,
    seed: int = 0,
    tasks: int = 60,
    out: Path = HERE,
) -> None:
    """Runs the cases whose names begin with one of `names` and are not done, and writes the table.

    Args:
        data: directory of the climate data.
        names: which cases; by default all.
        minutes: of training: the time that one core has computed.
        seed: of the training, and of the places and times of the test.
        tasks: times of the test, at most.
        out: directory of the results.
    """
    torch.set_num_threads(1)
    file = out / "validation.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    chosen = [name for name in CASES if not names or name.startswith(names)]
    for number, name in enumerate(chosen, 1):
        facts = {"case": name, "minutes": minutes, "seed": seed, "tasks": tasks}
        if any(facts.items() <= result.items() for result in results):
            continue
        print(f"{datetime.datetime.now():%H:%M} {number} of {len(chosen)}: {name}", flush=True)
        results.append(facts | {"machine": machine()} | run(CASES[name], data, minutes, seed, tasks))
        with file.open("a") as lines:
            lines.write(json.dumps(results[-1]) + "\n")
        print("  {steps} steps, validated in {validation_minutes:.1f} minutes. {verdict}".format(**results[-1]))
        write(results, out)
    write(results, out)


def write(results: Sequence[Mapping[str, Any]], out: Path) -> None:
    """The page and the picture of what is done so far."""
    ordered = sorted(results, key=lambda result: (list(CASES).index(result["case"]), result["minutes"], result["seed"]))
    (out / "validation.md").write_text(page(ordered))
    if ordered:
        draw(ordered, out / "validation.png")


def page(results: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for result in results:
        for method, scores in result["scores"].items():
            told = [f"{scores[metric]:.3f} ± {scores[f'{metric}_se']:.3f}" for metric in METRICS]
            left = "{:.2f} ± {:.2f}".format(*result["slopes"][method])
            rows.append([result["case"], f"{result['minutes']:g}", str(result["seed"]), method, *told, left])
    header = ["case", "minutes", "seed", "method", *METRICS.values(), "slope left [K/km]"]
    facts = "- {case}, {minutes:g} minutes ({steps} steps), seed {seed}, {tasks} times: {verdict} {machine}."
    verdicts = "\n".join(facts.format(**result) for result in results)
    return f"""# Fitted models beside kriging

Written by `python -m benchmarks.validation --data DIR --minutes MINUTES`: `aenp.fit` for these minutes of one core's
own time, and `validate` on days that it has not seen. Of a field, a tenth of the cells is observed. Of the *stations*,
a random fifth, which the model has not seen either, is predicted from all others. *Italy in May* predicts the first
half of May, fitted to the time after it. *2010* is ERA5 at points, fitted to 2006 to 2009: a tenth of the points is
observed, on the day or, with windows of *two days*, on the days beside it too, and local effects see the season as
periodic inputs. Baselines see what is observed on the day, and learn from the training period; for Italy → UK, where
the model is fitted to Italy in summer and predicts the last third of March in the UK, they learn from the days before.
Their climatology there is hence the UK's own, which the model has not seen.
Kriging has a Matérn kernel fitted by maximum likelihood. The slope left is that of the errors over the elevation, on
land. Standard errors are over days.

![CRPS of every method in every case](validation.png)

{markdown_table(header, rows)}

{verdicts}
"""


def draw(results: Sequence[Mapping[str, Any]], file: Path) -> None:
    """The CRPS of every method in every case, with two standard errors."""
    methods = list(dict.fromkeys(method for result in results for method in result["scores"]))
    figure, axis = pyplot.subplots(figsize=(8, 1.2 + 0.35 * len(results)), layout="constrained")
    others = iter(("0.75", "0.55", "tab:orange", "tab:red", "tab:brown"))
    for method in methods:
        rows = [number for number, result in enumerate(results) if method in result["scores"]]
        scores = [results[number]["scores"][method] for number in rows]
        errors = [2 * score["crps_se"] for score in scores]
        colour = COLOURS.get(method) or next(others)
        above = 3 if method == "model" else 2
        x = [score["crps"] for score in scores]
        axis.errorbar(x, rows, xerr=errors, fmt="o", color=colour, label=method, zorder=above)
    axis.set_yticks(
        range(len(results)), ["{case}, {minutes:g} min, seed {seed}".format(**result) for result in results]
    )
    axis.invert_yaxis()
    axis.set(xlabel="CRPS [K], ± 2 standard errors")
    axis.grid(axis="x", color="0.9")
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    save_figure(figure, file)


if __name__ == "__main__":
    tyro.cli(main)
