"""What limits predictions at new stations given ERA5: `python -m benchmarks.station_limits --data DIR`.

The stations, days and parts left out are those of `benchmarks.stations_given_era5`; no network is trained. Kriging
predicts the stations left out, and its errors are taken apart: those of single stations, those that a station has on
all days, and the rest. Writes `station_limits.md`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import tyro

from aenp.earth.baselines import MAX_POINTS, MAX_TIMES, SLOPE, Kriging
from aenp.evaluation.tables import markdown_table
from benchmarks.speed import machine
from benchmarks.stations_given_era5 import stations
from benchmarks.unseen_places import FILE, PLACE, TEST, TRAINING, is_at, left_out

HERE = Path(__file__).parent
FAR = 10.0
"Kelvin from ERA5, on a day of the training years, that make the record of a station suspect."
ZERO = 273.15


class Limits(NamedTuple):
    """Errors at the stations left out, RMSE in K unless they are said to be something else."""

    era5: float
    kriging: float
    without_the_worst: float
    share_of_the_worst: float
    without_suspects: float
    suspects: int
    median_station: float
    without_own_mean: float
    era5_without_own_mean: float


HEADER = {
    "era5": "ERA5",
    "kriging": "kriging",
    "without_the_worst": "without the worst station",
    "share_of_the_worst": "its share of the squares",
    "without_suspects": "without suspects",
    "suspects": "suspects",
    "median_station": "median station",
    "without_own_mean": "own mean known",
    "era5_without_own_mean": "ERA5, own mean known",
}


def differences(file: Path) -> pd.DataFrame:
    """Each place and day once: the difference to ERA5 as `value`, the height above the cell of ERA5 as `elevation`."""
    table = stations(file).drop_duplicates(["time", *PLACE])
    value = table["tmean [degC]"] + ZERO - table["t2m_era5 [K]"]
    return table[["time", *PLACE]].assign(value=value, elevation=table["elevation"] - table["cell_elevation [m]"])


def limits(table: pd.DataFrame, seed: int) -> Limits:
    """What is left of the errors at a random fifth of the stations, which are predicted from the others."""
    hidden, rng = is_at(table, left_out(table, seed)), np.random.default_rng(seed)
    trained = table["time"].between(*TRAINING).to_numpy()
    days = rng.choice(np.unique(table["time"][trained]), MAX_TIMES, replace=False)
    some = [table[~hidden & (table["time"] == day).to_numpy()] for day in days]
    kriging = Kriging.fit([each.sample(min(len(each), MAX_POINTS), random_state=seed) for each in some], SLOPE)
    offset = table["value"][trained & ~hidden].mean()
    parts = []
    for _, day in table.assign(hidden=hidden)[table["time"].between(*TEST)].groupby("time"):
        context, target = day[~day["hidden"]], day[day["hidden"]]
        parts.append(target.assign(error=kriging.predict(context, target).mean - target["value"]))
    found = pd.concat(parts)
    before = table[trained & hidden].groupby(PLACE)["value"]
    own = before.agg(own="mean", furthest=lambda values: values.abs().max()).reset_index()
    found = found.merge(own, "left", on=PLACE)
    squares = found.groupby(PLACE)["error"].agg(lambda errors: (errors**2).sum())
    worst = is_at(found, squares.nlargest(1).reset_index())
    suspect = (found["furthest"] > FAR).to_numpy()
    by_station = found.groupby(PLACE)["error"]
    return Limits(
        _rmse(found["value"] - offset),
        _rmse(found["error"]),
        _rmse(found["error"][~worst]),
        float(squares.max() / squares.sum()),
        _rmse(found["error"][~suspect]),
        int(own["furthest"].gt(FAR).sum()),
        float(np.sqrt(by_station.agg(lambda errors: (errors**2).mean()).median())),
        _rmse(found["error"] - by_station.transform("mean")),
        _rmse((found["value"] - found["own"]).dropna()),
    )


def _rmse(errors: pd.Series) -> float:
    return float(np.sqrt((errors**2).mean()))


def main(data: Path, seeds: int = 5, out: Path = HERE) -> None:
    """Takes the errors of each split apart, and writes the table.

    Args:
        data: directory of the climate data.
        seeds: number of splits; those of the first are as in `stations_given_era5.md`.
        out: directory of the table.
    """
    table = differences(data / FILE)
    written = page([limits(table, seed) for seed in range(seeds)])
    (out / "station_limits.md").write_text(written)
    print(written)


def page(every: Sequence[Limits]) -> str:
    """The table, a row for each split and one for their means."""
    means = Limits(*np.mean(every, axis=0).tolist())
    named = {str(seed): each for seed, each in enumerate(every)} | {"mean": means}
    rows = [[name, *(_told(key, getattr(each, key)) for key in HEADER)] for name, each in named.items()]
    return f"""# What limits predictions at stations given ERA5

Written by `python -m benchmarks.station_limits --data DIR`: {machine()}.

The stations and days of [stations_given_era5.md](stations_given_era5.md), with several splits. *Kriging* is of the
differences to ERA5, with a trend in the station's height above its cell of ERA5. RMSE in K at the stations left out, on
days of 2010:

- *ERA5* without its mean error, and *kriging* as they are.
- *Without the worst station*: all but the one with the largest errors of kriging, which is chosen with hindsight.
- *Without suspects*: all but those that were further than {FAR:g} K from ERA5 on a day of 2006 to 2009, of which there
  are as many as *suspects* says. That needs a record of the station, but none of 2010.
- *Median station*: half of the stations have a smaller RMSE.
- *Own mean known*: what is left of the errors of kriging without the mean error of each station in 2010, which only
  observations of the station itself can tell; and of ERA5 without its mean error at the station in 2006 to 2009.

{markdown_table(["seed", *HEADER.values()], rows)}
"""


def _told(key: str, value: float) -> str:
    return f"{value:.0%}" if key.startswith("share") else f"{value:.0f}" if key == "suspects" else f"{value:.3f}"


if __name__ == "__main__":
    tyro.cli(main)
