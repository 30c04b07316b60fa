"""Fitted models beside kriging on real data: `python -m benchmarks.validation --data DIR` writes `validation.md`.

Each case is `aenp fit` on a field or on stations, and `aenp validate` on days (and, of stations, places) that it has
not seen. Results are kept in `validation.json` beside this file under the case, the minutes and the seed.
"""

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import tyro

import aenp
from aenp.evaluation.tables import markdown_table
from benchmarks import unseen_places

HERE = Path(__file__).parent
ITALY = "era5_italy_0p25_3hourly_2022-05_06.nc"
UK = "era5_uk_0p25_hourly_2019-03.nc"
WFDE5 = "wfde5_uk_0p5_hourly_2017-01.nc"
TOPOGRAPHY = "itu1511v2_topo_1_12deg.nc"
METRICS = {"rmse": "RMSE [K]", "crps": "CRPS [K]", "loglik": "log-likelihood", "coverage": "coverage of 90 %"}


@dataclass(frozen=True)
class Case:
    """A model to fit and to validate.

    Args:
        file: what to fit; None for the stations.
        period: of the training.
        days: of the test.
        options: of `aenp.fit`.
        elevation: whether the model sees the elevation.
        test: what to predict; by default the same file.
    """

    file: str | None
    period: tuple[str, str]
    days: tuple[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    elevation: bool = False
    test: str | None = None


MAY, JUNE, MARCH = ("2022-05-01", "2022-06-15"), ("2022-06-16", "2022-06-30"), ("2019-03-01", "2019-03-31")
YEARS, LAST = ("2006-01-01", "2009-12-31"), ("2010-01-01", "2010-12-31")
ANOMALIES = {"anomalies": True}
CASES = {
    "Italy": Case(ITALY, MAY, JUNE),
    "Italy, anomalies": Case(ITALY, MAY, JUNE, ANOMALIES),
    "Italy, elevation": Case(ITALY, MAY, JUNE, {}, elevation=True),
    "WFDE5": Case(WFDE5, ("2017-01-01", "2017-01-21"), ("2017-01-22", "2017-01-31")),
    "WFDE5, anomalies": Case(WFDE5, ("2017-01-01", "2017-01-21"), ("2017-01-22", "2017-01-31"), ANOMALIES),
    "stations": Case(None, YEARS, LAST, {"family": "pttnp"}),
    "stations, anomalies": Case(None, YEARS, LAST, {"family": "pttnp"} | ANOMALIES),
}
CASES |= {
    f"Italy → UK, {symmetry}{', elevation' * elevation}": Case(
        ITALY, MAY, MARCH, {"symmetry": symmetry}, elevation, test=UK
    )
    for symmetry in ("exact", "approx")
    for elevation in (False, True)
}


def run(case: Case, data: Path, minutes: float, seed: int, tasks: int) -> dict[str, Any]:
    """Fits the model and scores it beside the baselines, with the slope of each one's errors over the elevation."""
    options = dict(case.options) | {"covariates": [data / TOPOGRAPHY] if case.elevation else []}
    if case.file is None:
        table = unseen_places.stations(data / unseen_places.FILE)
        places = table[unseen_places.PLACE].drop_duplicates().sample(frac=1, random_state=seed)
        unseen = places.iloc[: len(places) // 5]
        known = table.merge(unseen, "left", indicator="kept")["kept"].to_numpy() == "left_only"
        training, tested = table[known & table["time"].between(*case.period).to_numpy()], table
    else:
        training, tested, unseen = data / case.file, data / (case.test or case.file), None
        options["period"] = case.period
    model = aenp.fit(training, minutes=minutes, seed=seed, **options)
    known_there = {"covariates": options["covariates"], "elevation": data / TOPOGRAPHY}
    result = model.validate(tested, unseen, case.days, tasks=tasks, seed=seed, **known_there)
    return {
        "scores": result.table.to_dict("index"),
        "slopes": {method: slope(group) for method, group in result.predictions.groupby("method")},
        "verdict": result.verdict,
    }


def slope(predictions: pd.DataFrame) -> float:
    """What is left of the lapse rate, in K/km: of the errors over the elevation, on land."""
    land = predictions[predictions["elevation"] > 0]
    return float(1000 * np.polyfit(land["elevation"], land["value"] - land["mean"], 1)[0])


def main(
    data: Path,
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    minutes: float = 4.0,
    seed: int = 0,
    tasks: int = 60,
    out: Path = HERE,
) -> None:
    """Runs the cases whose names begin with one of `names`, and writes the table.

    Args:
        data: directory of the climate data.
        names: which cases; by default all.
        minutes: of training on one core.
        seed: of the training, and of the places and times of the test.
        tasks: times of the test, at most.
        out: directory of the results.
    """
    torch.set_num_threads(1)
    file = out / "validation.json"
    results = json.loads(file.read_text()) if file.exists() else []
    for name in (name for name in CASES if not names or name.startswith(names)):
        facts = {"case": name, "minutes": minutes, "seed": seed, "tasks": tasks}
        if not any(facts.items() <= result.items() for result in results):
            found = run(CASES[name], data, minutes, seed, tasks)
            results.append(facts | {"date": str(datetime.date.today())} | found)
            file.write_text(json.dumps(results, indent=1) + "\n")
    (out / "validation.md").write_text(page(results))


def page(results: list[dict[str, Any]]) -> str:
    rows = []
    for result in sorted(results, key=lambda result: (list(CASES).index(result["case"]), result["minutes"])):
        for method, scores in result["scores"].items():
            told = [f"{scores[metric]:.3f} ± {scores[f'{metric}_se']:.3f}" for metric in METRICS]
            rows.append([result["case"], f"{result['minutes']:g}", method, *told, f"{result['slopes'][method]:.2f}"])
    header = ["case", "minutes", "method", *METRICS.values(), "slope left [K/km]"]
    facts = "- {case}, {minutes:g} minutes, seed {seed}, {tasks} times, {date}: {verdict}"
    verdicts = "\n".join(facts.format(**result) for result in results)
    return f"""# Fitted models beside kriging

Written by `python -m benchmarks.validation --data DIR --minutes MINUTES`: `aenp.fit` for these minutes on one core, and
`validate` on days that it has not seen. Of a field, a tenth of the cells is observed. Of the stations, a random fifth,
which the model has not seen either, is predicted from all others. Baselines see the same, and learn from the training
period; for Italy → UK, where the model is fitted to Italy in summer, they learn from other days of the UK. Kriging has
a Matérn kernel fitted by maximum likelihood. The slope left is that of the errors over the elevation, on land. Standard
errors are over days.

{markdown_table(header, rows)}

{verdicts}
"""


if __name__ == "__main__":
    tyro.cli(main)
