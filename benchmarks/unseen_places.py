"""How right `aenp.fit` is at places it has not seen: `python -m benchmarks.unseen_places --data DIR`.

Stations of GSOD in Europe, of which a random half is left out. A model is fitted to the daily means of the others from
2006 to 2009 and predicts days of 2010 from some of these: at the other stations of that half, and at those left out.
Rows are kept in `unseen_places.json` beside this file under the name of the run, and shown in `unseen_places.md`.
"""

import datetime
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
import tyro

from aenp.earth.fitting import FitOptions, fit_in
from aenp.earth.sources import open_dataset
from aenp.evaluation.tables import markdown_table
from aenp.experiments.temperature.points import FILE
from benchmarks.measure import own_time

HERE = Path(__file__).parent
BOX = (35.0, 60.0, 10.0, 45.0)
TRAINING, TEST = ("2006-01-01", "2009-12-31"), ("2010-01-01", "2010-12-31")
OBSERVED = 0.11
"The share of the stations in training that is observed on a day of the test, about sixty."
HISTORY = 15
"Kriging learns from every so many days of the years before."
HEADER = ["run", "model", "seed", "stations", "part", "RMSE [K]", "CRPS [K]", "log-likelihood", "coverage of 90 %"]
PLACE = ["latitude", "longitude"]
COORDINATES = {"tmean_gsod": ("lat", "lon"), "t2m_era5": ("era_lat", "era_lon")}
"Where the values of each variable are."


def stations(file: Path, variable: str = "tmean_gsod") -> pd.DataFrame:
    """The daily means in the box, a row for each observation: of stations or, of ERA5, of the nodes nearest to them."""
    data, (latitude, longitude) = open_dataset(file), COORDINATES[variable]
    south, north, west, east = BOX
    y, x = data[latitude], data[longitude]
    inside = (y >= south) & (y <= north) & (x >= west) & (x <= east)
    values = data[variable].isel(point=np.flatnonzero(inside)).transpose("time", "point")
    day, point = np.nonzero(np.isfinite(values.values))
    where = {"latitude": values[latitude].values[point], "longitude": values[longitude].values[point]}
    return pd.DataFrame({"time": values["time"].values[day], **where, "t": values.values[day, point]})


def left_out(table: pd.DataFrame, seed: int, parts: int = 5) -> pd.DataFrame:
    """A random part of the places, by default a fifth."""
    places = table[PLACE].drop_duplicates().sample(frac=1, random_state=seed)
    return places.iloc[: len(places) // parts]


def is_at(table: pd.DataFrame, places: pd.DataFrame) -> np.ndarray:
    """Which rows of the table are at these places."""
    return table[PLACE].merge(places[PLACE].drop_duplicates(), "left", indicator="found")["found"].to_numpy() == "both"


def main(
    data: Path,
    minutes: float = 12.0,
    name: str = "fit",
    family: str = "tnp",
    tasks: int = 60,
    seed: int = 0,
    out: Path = HERE,
) -> None:
    """Fit a model to half of the stations, and score it at both halves.

    Args:
        data: directory of the climate data.
        minutes: of training: the time that one core has computed.
        name: of the run, in the table.
        family: of the model.
        tasks: days of the test.
        seed: of the choice of stations and days, and of the training.
        out: directory of the table.
    """
    torch.set_num_threads(1)
    table = stations(data / FILE)
    in_training, in_test = (table["time"].between(*period) for period in (TRAINING, TEST))
    hidden = left_out(table[in_training], seed, parts=2)
    days = table[in_test].groupby(PLACE)["time"].nunique()
    steady = days[days > days.max() / 2].reset_index()[PLACE]
    known = is_at(table, table[in_training]) & ~is_at(table, hidden)
    training, unseen = table[known & in_training], hidden.merge(steady)
    is_target = is_at(table, unseen)
    with TemporaryDirectory() as folder, own_time():
        model, outcome = fit_in(folder, training, FitOptions(family, "approx", minutes, seed=seed), resume=False)
    if not outcome.finished:
        raise SystemExit("stopped")
    facts = {"name": name, "family": family, "steps": outcome.steps, "minutes": outcome.minutes}
    facts |= {"gain": model.local_gain} | {
        "seed": seed,
        "tasks": tasks,
        "spread": model.spread,
        "date": str(datetime.date.today()),
    }
    some = in_test | in_training & (table["time"].dt.day_of_year % HISTORY == 0)
    tests = {"in training": (table[some & known], None), "left out": (table[some & (known | is_target)], unseen)}
    scores = {}
    for where, (observed, named) in tests.items():
        result = model.validate(observed, named, TEST, fraction=OBSERVED, tasks=tasks, seed=seed)
        scores[where] = result.table.to_dict("index")
    file = out / "unseen_places.json"
    rows = json.loads(file.read_text()) if file.exists() else []
    rows = [row for row in rows if (row["name"], row["family"], row["seed"]) != (name, family, seed)]
    file.write_text(json.dumps([*rows, facts | {"scores": scores}], indent=1) + "\n")
    write(out)


def write(out: Path) -> None:
    """The table of all runs."""
    rows = []
    for run in json.loads((out / "unseen_places.json").read_text()):
        for where, methods in run["scores"].items():
            for method in ("model", "equivariant part", "kriging"):
                told = [_with_error(methods[method], metric) for metric in ("rmse", "crps", "loglik", "coverage")]
                rows.append([run["name"], run["family"], str(run["seed"]), where, method, *told])
    runs = json.loads((out / "unseen_places.json").read_text())
    described = "\n".join(
        f"- {run['name']}: {run['steps']} steps in {run['minutes']:.1f} minutes of one core, seed {run['seed']}, "
        f"{run['tasks']} days of 2010, standard deviations × {run['spread']:.2f}, {run['date']}."
        for run in runs
    )
    page = f"""# At places that `fit` has not seen

Written by `python -m benchmarks.unseen_places --data DIR`, with `--name`, `--family` and `--seed` as in the table.
Daily means of temperature at stations of GSOD in 35–60° N, 10–45° E, fitted to a random half of the stations in 2006 to
2009. On each day {OBSERVED:.0%} of these are observed, about sixty stations; the others of that half, or those left
out that report on most days, are predicted. Standard errors are over days. Kriging learns from every {HISTORY}th day
of the same stations and years. The run *before* is of the last version of `fit` that held out dates alone.

{markdown_table(HEADER, rows)}

{described}
"""
    (out / "unseen_places.md").write_text(page)
    print(page)


def _with_error(scores: dict[str, float], metric: str) -> str:
    return f"{scores[metric]:.3f} ± {scores[f'{metric}_se']:.3f}"


if __name__ == "__main__":
    tyro.cli(main)
