"""The case study of Heaton et al. (JABES 2019): `python -m benchmarks.heaton DIR` writes `heaton.md`."""

import time
from pathlib import Path

import numpy as np
import pandas as pd
import rdata
import torch
import tyro
from tyro.conf import Positional

import aenp
from aenp.evaluation.metrics import covered, crps
from aenp.evaluation.tables import markdown_table
from aenp.shipped import base_model
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
PAGE = """\
# Heaton et al.'s case study

Written by `python -m benchmarks.heaton DIR`, with `AllSatelliteTemps.RData` and `AllSimulatedTemps.RData` in DIR.
{machine}

Temperatures of 105,569 pixels of a satellite's image, 300 × 500 pixels, and a simulated twin of it; those behind clouds
are predicted. The base model, without any training, kriges each cell of the image from the {window} pixels nearest to
it, for three divisions of the image into cells, whose predictions it mixes. Hidden values are used for the scores
alone; that mixing helps was seen on pixels held out of the seen ones (`--turned`). Errors in °C; *95 %*, the share of
hidden values in the 95 % intervals.

{tables}
"""


def read(file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The pixels that are seen and those that are hidden, as tables of x, y and a temperature."""
    table = next(iter(rdata.read_rda(file).values()))
    length = np.cos(np.radians(table["Lat"].mean()))
    table = table.assign(x=table["Lon"] * length, y=table["Lat"])
    hidden = table["MaskTemp"].isna() & table["TrueTemp"].notna()
    return table[table["MaskTemp"].notna()], table[hidden]


def held_out(seen: pd.DataFrame, hidden: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same of the seen pixels alone: the clouds are turned by 180°."""
    every = pd.concat([seen, hidden])[["x", "y"]]
    clouds = (every.min() + every.max() - hidden[["x", "y"]]).round(4).assign(cloud=True)
    cloud = seen[["x", "y"]].round(4).merge(clouds, "left")["cloud"].notna().to_numpy()
    return seen[~cloud], seen[cloud].assign(TrueTemp=seen["MaskTemp"])


def scores(seen: pd.DataFrame, hidden: pd.DataFrame) -> dict[str, float]:
    """The base model's scores, and its minutes of CPU."""
    y = seen["MaskTemp"].to_numpy()
    shift, scale = y.mean(), y.std()
    xc, xt = (torch.tensor(table[["x", "y"]].to_numpy())[None] for table in (seen, hidden))
    yc, yt = (torch.tensor((values - shift) / scale)[None, :, None] for values in (y, hidden["TrueTemp"].to_numpy()))
    start = time.process_time()
    prediction = aenp.predict(base_model(), Task(xc, yc, xt), chunk=len(hidden))
    minutes = (time.process_time() - start) / 60
    yt = yt.to(prediction.mean)
    error = scale * (prediction.mean - yt)
    return {
        "MAE": error.abs().mean().item(),
        "RMSE": error.square().mean().sqrt().item(),
        "CRPS": scale * crps(prediction, yt).mean().item(),
        "95 %": covered(prediction, yt, 0.95).double().mean().item(),
        "minutes": minutes,
    }


def main(data: Positional[Path], turned: bool = False, out: Path = HERE) -> None:
    """Predicts the hidden pixels of both images.

    Args:
        data: directory with the two files.
        turned: predict seen pixels in place of the hidden ones, those behind the clouds if these are turned by 180°;
            prints the scores only.
        out: directory for `heaton.md`.
    """
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tables = []
    for name, file in FILES.items():
        pixels = read(data / file)
        found = scores(*(held_out(*pixels) if turned else pixels))
        told = [f"{value:.{2 if metric == 'minutes' else 3}f}" for metric, value in found.items()]
        rows = [["base model", *told]]
        published = {} if turned else PUBLISHED[name]
        rows += [[f"*{other}*", "", f"{error:.2f}", "", "", ""] for other, error in published.items()]
        tables.append(f"## {name.capitalize()}\n\n{markdown_table(['method', *found], rows)}")
        print(tables[-1], flush=True)
    if not turned:
        page = PAGE.format(machine=machine(), window=base_model().window, tables="\n\n".join(tables))
        (out / "heaton.md").write_text(page)


if __name__ == "__main__":
    tyro.cli(main)
