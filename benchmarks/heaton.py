"""The case study of Heaton et al. (JABES 2019): `python -m benchmarks.heaton DIR` writes `heaton.md`."""

import time
from bisect import bisect_left
from pathlib import Path

import numpy as np
import pandas as pd
import rdata
import torch
import tyro
from torch.distributions import Distribution
from tyro.conf import Positional

import aenp
from aenp.earth.interpolation import base_model
from aenp.evaluation.metrics import covered, crps
from aenp.evaluation.tables import markdown_table
from aenp.likelihoods import widened
from aenp.task import Task
from benchmarks.speed import machine

HERE = Path(__file__).parent
FILES = {"satellite": "AllSatelliteTemps.RData", "simulated": "AllSimulatedTemps.RData"}
PUBLISHED = {
    "satellite": {
        "SPDE": 1.53,
        "NNGP": 1.64,
        "LatticeKrig": 1.68,
        "periodic embedding": 1.79,
        "gapfill": 1.86,
        "local approximate GP": 2.08,
    },
    "simulated": {"SPDE, the best": 0.86, "the others, from": 0.87, "to": 1.11},
}
"The root mean square errors in their paper."
HEADER = ["method", "MAE", "RMSE", "CRPS", "95 %", "minutes of CPU"]
PAGE = """\
# Heaton et al.'s case study

Written by `python -m benchmarks.heaton DIR`, with `AllSatelliteTemps.RData` and `AllSimulatedTemps.RData` in DIR.
{machine}

Temperatures of 105,569 pixels of a satellite's image, 300 × 500 pixels, and a simulated twin of it; those behind clouds
are predicted. The base model, without any training, kriges each cell of the image from the {window} pixels nearest to
it. *Widened*: its deviations from the mean are scaled by the factor that brings 95 % of the values in gaps of our own
into its 95 % intervals: seen pixels that would be hidden if the clouds were turned by 180°, predicted from the other
seen ones. Hidden values are used for the scores alone. Errors in °C; *95 %*, the share of hidden values in the 95 %
intervals.

{tables}
"""


def read(file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The pixels that are seen and those that are hidden, as tables of x, y and the value."""
    table = next(iter(rdata.read_rda(file).values()))
    length = np.cos(np.radians(table["Lat"].mean()))
    table = table.assign(x=table["Lon"] * length, y=table["Lat"])
    hidden = table["MaskTemp"].isna() & table["TrueTemp"].notna()
    seen = table[table["MaskTemp"].notna()]
    return seen.assign(value=seen["MaskTemp"]), table[hidden].assign(value=table["TrueTemp"])


def turned(seen: pd.DataFrame, hidden: pd.DataFrame) -> np.ndarray:
    """Which of the pixels that are seen lie where some are hidden once the image is turned by 180°."""
    both = pd.concat([seen, hidden])
    rows, columns = (np.unique(both[axis], return_inverse=True)[1] for axis in ("y", "x"))
    clouds = np.zeros((rows.max() + 1, columns.max() + 1), dtype=bool)
    clouds[rows[len(seen) :], columns[len(seen) :]] = True
    return clouds[::-1, ::-1][rows[: len(seen)], columns[: len(seen)]]


def krige(seen: pd.DataFrame, hidden: pd.DataFrame) -> tuple[Distribution, torch.Tensor]:
    """The base model's prediction of hidden temperatures, and these."""
    xc, xt = (torch.tensor(table[["x", "y"]].to_numpy())[None] for table in (seen, hidden))
    yc, yt = (torch.tensor(table["value"].to_numpy())[None, :, None] for table in (seen, hidden))
    prediction = aenp.predict(base_model(), Task(xc, yc, xt), chunk=len(hidden))
    return prediction, yt.to(prediction.mean)


def factor(prediction: Distribution, y: torch.Tensor) -> float:
    """The smallest scale of deviations, in steps of a hundredth, at which 95 % intervals hold 95 % of the values."""
    scales = np.arange(0.5, 3.0, 0.01)
    found = bisect_left(scales, 0.95, key=lambda scale: _coverage(widened(prediction, float(scale)), y))
    return float(scales[found])


def _coverage(prediction: Distribution, y: torch.Tensor) -> float:
    return covered(prediction, y, 0.95).double().mean().item()


def scores(prediction: Distribution, y: torch.Tensor) -> list[float]:
    """Mean absolute and root mean square error, CRPS, and the share in 95 % intervals."""
    error = prediction.mean - y
    absolute, square = error.abs().mean().item(), error.square().mean().sqrt().item()
    return [absolute, square, crps(prediction, y).mean().item(), _coverage(prediction, y)]


def main(data: Positional[Path], out: Path = HERE) -> None:
    """Predicts the hidden pixels of both images.

    Args:
        data: directory with the two files.
        out: directory for `heaton.md`.
    """
    torch.set_num_threads(1)
    tables = []
    for name, file in FILES.items():
        seen, hidden = read(data / file)
        start = time.process_time()
        prediction, y = krige(seen, hidden)
        kriged = time.process_time()
        gaps = turned(seen, hidden)
        widen = factor(*krige(seen[~gaps], seen[gaps]))
        found = [
            ["base model", *scores(prediction, y), (kriged - start) / 60],
            [
                f"base model, widened by {widen:.2f}",
                *scores(widened(prediction, widen), y),
                (time.process_time() - start) / 60,
            ],
        ]
        rows = [[method, *(f"{value:.2f}" for value in values)] for method, *values in found]
        rows += [[f"*{other}*", "", f"{error:.2f}", "", "", ""] for other, error in PUBLISHED[name].items()]
        tables.append(f"## {name.capitalize()}\n\n{markdown_table(HEADER, rows)}")
        print(tables[-1], flush=True)
    page = PAGE.format(machine=machine(), window=base_model().window, tables="\n\n".join(tables))
    (out / "heaton.md").write_text(page)


if __name__ == "__main__":
    tyro.cli(main)
