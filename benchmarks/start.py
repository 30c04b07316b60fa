"""A fit from the base model and one from nothing: `python -m benchmarks.start --data DIR` writes `start.md`.

Both are trained for the same minutes of one core's own time, whatever else it is doing, and scored on days (and, of
stations, places) that they have not seen. Results are kept in `start.jsonl`, a line for each run; what is done is not
done again.
"""

import datetime
import json
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import tyro

from aenp.earth.fitting import FitOptions, fit_in
from aenp.earth.starting import STARTS
from aenp.evaluation.tables import markdown_table
from benchmarks import unseen_places
from benchmarks.measure import own_time
from benchmarks.validation import ITALY, JUNE, LAST, MAY, TOPOGRAPHY, YEARS

HERE = Path(__file__).parent
CASES = {"Italy": "pttnp", "stations": "tnp", "stations, elevation": "tnp"}
"The family of each case."
METRICS = {"loglik": "log-likelihood", "crps": "CRPS [K]"}


def run(case: str, start: str, data: Path, minutes: float, seed: int, tasks: int) -> dict[str, Any]:
    """Fits a model and scores it: its scores and those of the baselines, and its own on each day."""
    tested: Any = data / ITALY
    training, unseen, period, days, covariates = tested, None, MAY, JUNE, []
    if case.startswith("stations"):
        tested = unseen_places.stations(data / unseen_places.FILE)
        unseen, period, days = unseen_places.left_out(tested, seed), YEARS, LAST
        training = tested[~unseen_places.is_at(tested, unseen)]
        covariates = [data / TOPOGRAPHY] if case.endswith("elevation") else []
    options = FitOptions(CASES[case], "approx", minutes, period=period, seed=seed, start=start)
    with TemporaryDirectory() as out, own_time():
        model, outcome = fit_in(out, training, options, False, covariates)
    if not outcome.finished:
        raise SystemExit("stopped; the same command continues with this run")
    result = model.validate(tested, unseen, days, tasks=tasks, seed=seed, covariates=covariates)
    own = result.predictions[result.predictions["method"] == "model"]
    by_time = own.groupby("time")[list(METRICS)].mean()
    by_day = by_time.groupby(by_time.index.floor("D")).mean()
    return {
        "steps": outcome.steps,
        "scores": result.table.to_dict("index"),
        "days": {str(day)[:10]: values for day, values in by_day.to_dict("index").items()},
    }


def main(
    data: Path,
    names: tyro.conf.Positional[tuple[str, ...]] = (),
    minutes: str = "1,5,20",
    seeds: str = "0",
    tasks: int = 60,
    threads: int = 1,
    out: Path = HERE,
) -> None:
    """Runs the cases of these names, and writes the table.

    Args:
        data: directory of the climate data.
        names: which cases; by default all.
        minutes: of training, such as 1,5,20: the time that all threads have computed.
        seeds: of the training, and of the places and times of the test, such as 0,1.
        tasks: times of the test, at most.
        threads: of the training.
        out: directory of the results.
    """
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(threads)
    file = out / "start.jsonl"
    cases = [case for case in CASES if not names or case in names]
    budgets, numbers = map(float, minutes.split(",")), map(int, seeds.split(","))
    for budget, seed, case, start in product(budgets, numbers, cases, STARTS):
        facts = {"case": case, "family": CASES[case], "start": start, "minutes": budget, "seed": seed}
        facts |= {"tasks": tasks, "threads": threads}
        if not any(facts.items() <= line.items() for line in lines(file)):
            found = run(case, start, data, budget, seed, tasks)
            with file.open("a") as appended:
                appended.write(json.dumps(facts | {"date": str(datetime.date.today())} | found) + "\n")
            (out / "start.md").write_text(page(lines(file)))


def lines(file: Path) -> list[dict[str, Any]]:
    """The runs that are done."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def page(runs: list[dict[str, Any]]) -> str:
    """The table of all pairs of runs, and what each took."""
    keys = ("case", "minutes", "seed", "tasks", "threads")
    pairs: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in runs:
        pairs.setdefault(tuple(each[key] for key in keys), {})[each["start"]] = each
    rows = []
    for (case, minutes, seed, *_), pair in sorted(pairs.items()):
        if len(pair) == len(STARTS):
            row = [case, f"{minutes:g}", str(seed), *(f"{pair[start]['steps']:,}" for start in STARTS)]
            for metric in METRICS:
                row += [told(*mean_and_error(scores_of(pair[start], metric))) for start in STARTS]
                base, nothing = (scores_of(pair[start], metric) for start in STARTS)
                row.append(told(*mean_and_error(base - nothing)))
            rows.append(row)
    header = ["case", "minutes", "seed", *(f"steps, {start}" for start in STARTS)]
    header += [f"{name}, {kind}" for name in METRICS.values() for kind in (*STARTS, "difference")]
    dates = sorted({each["date"] for each in runs})
    return f"""# A fit from the base model and from nothing

Written by `python -m benchmarks.start --data DIR`, {" to ".join(dict.fromkeys((dates[0], dates[-1])))}: `aenp.fit`
with `start="base"` and with `start="nothing"`, for the same minutes of one core's own time. Italy, a PT-TNP: 2 m
temperature of ERA5 until 15 June 2022; a tenth of the cells on later days is observed, and the others are predicted.
Stations, a TNP: daily means of GSOD in Europe, 2006 to 2009; a fifth of the stations, not seen in training, is
predicted from all others on days of 2010; with *elevation*, the model sees that of every station. Scores are means over
days, the log-likelihood in nats for each target, with standard errors over days; differences, base less nothing, are of
the same days. More log-likelihood and less CRPS are better. A fit from the base model ends with a search for weights
near it, of some seconds, which come on top of the minutes.

{markdown_table(header, rows)}
"""


def scores_of(line: dict[str, Any], metric: str) -> np.ndarray:
    """A run's score on each day."""
    return np.array([line["days"][day][metric] for day in sorted(line["days"])])


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean over days, and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def told(mean: float, error: float) -> str:
    return f"{mean:.3f} ± {error:.3f}"


if __name__ == "__main__":
    tyro.cli(main)
