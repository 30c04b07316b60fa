"""Where the next stations go: `python -m benchmarks.placement --data DIR` writes `placement.md` here.

Networks of random cells of ERA5 in Italy get further stations by each method, planned on two days after the training
period of a shipped model; all are scored on later days. The runs are kept in `placement.json`.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import tyro
import xarray as xr
from rich.progress import track
from torch.distributions import Normal

import aenp
from aenp.earth.field_model import FieldModel
from aenp.earth.sources import open_dataset
from aenp.evaluation.metrics import crps
from aenp.evaluation.scores import Score
from aenp.evaluation.tables import markdown_table
from benchmarks.speed import machine
from benchmarks.validation import ITALY

HERE = Path(__file__).parent
PLANNED, TESTED = slice("2022-06-16", "2022-06-17"), slice("2022-06-19", "2022-06-30")
SUGGESTED, WIDEST, RANDOM, FARTHEST = "`suggest`", "largest variance", "random", "farthest"
DRAWS = 4
"Random choices for each network, of whose scores the mean counts."


def at(field: xr.DataArray, cells: np.ndarray) -> pd.DataFrame:
    """What stations in these cells would have observed."""
    some = field.stack(cell=("latitude", "longitude")).isel(cell=cells)
    return some.reset_index("cell").reset_coords().to_dataframe().reset_index(level="time").reset_index(drop=True)


def widest(model: FieldModel, observed: pd.DataFrame, candidates: pd.DataFrame, number: int) -> pd.DataFrame:
    """One after another, the candidate with the largest variance, which is taken to observe what is predicted there."""
    free, chosen = candidates, []
    for _ in range(number):
        prediction = model.predict(observed, free)
        best = int(np.argmax((prediction["std"] ** 2).sum("time").values))
        chosen.append(free.iloc[best])
        means = prediction["mean"].isel(index=best)
        further = {name: free.iloc[best][name] for name in ("latitude", "longitude")}
        new = pd.DataFrame({"time": means["time"].values, "t2m": means.values, **further})
        observed, free = pd.concat([observed, new], ignore_index=True), free.drop(index=free.index[best])
    return pd.DataFrame(chosen)


def farthest(observed: pd.DataFrame, candidates: pd.DataFrame, number: int) -> pd.DataFrame:
    """One after another, the candidate whose nearest station is farthest away."""
    length = np.array([1.0, np.cos(np.radians(candidates["latitude"].mean()))])
    places, known = (length * each[["latitude", "longitude"]].to_numpy() for each in (candidates, observed))
    chosen: list[int] = []
    for _ in range(number):
        known = np.concatenate([known, places[chosen[-1:]]])
        chosen.append(int(np.linalg.norm(places[:, None] - known, axis=2).min(axis=1).argmax()))
    return candidates.iloc[chosen]


def main(
    data: Path,
    model: str = "era5-2d/pttnp-approx",
    networks: int = 80,
    stations: int = 15,
    number: int = 5,
    seed: int = 0,
    out: Path = HERE,
) -> None:
    """Places stations by each method, and scores the predictions from all of them.

    Args:
        data: directory of the climate data.
        model: a shipped one.
        networks: how many random networks.
        stations: in each of them.
        number: further stations.
        seed: of the networks.
        out: directory for the page.
    """
    torch.set_num_threads(1)
    field, process = open_dataset(data / ITALY)["t2m"].load(), aenp.pretrained(model)
    planned, tested = (field.sel(time=days)[::4] for days in (PLANNED, TESTED))
    cells = np.arange(field[0].size).reshape(field[0].shape)
    candidates = at(field[:1], cells[2::4, 2::4].ravel())[["latitude", "longitude"]]
    targets = tested[:, ::2, ::2]
    scores: dict[str, list[list[float]]] = {}
    for network in track(range(networks), "placing"):
        rng = np.random.default_rng((seed, network))
        own = rng.choice(cells.size, stations, replace=False)
        observed = at(planned, own)
        draws = [candidates.iloc[rng.choice(len(candidates), number, replace=False)] for _ in range(DRAWS)]
        places = {
            "none": [candidates[:0]],
            RANDOM: draws,
            WIDEST: [widest(process, observed, candidates, number)],
            FARTHEST: [farthest(observed, candidates, number)],
            SUGGESTED: [process.suggest(observed, candidates, number)],
        }
        for method, choices in places.items():
            found = []
            for chosen in choices:
                rows, columns = (
                    field.get_index(name).get_indexer(chosen[name], method="nearest")
                    for name in ("latitude", "longitude")
                )
                context = at(tested, np.unique(np.concatenate([own, cells[rows, columns]])))
                predicted = process.predict(context, targets)
                normal = Normal(torch.tensor(predicted["mean"].values), torch.tensor(predicted["std"].values))
                y = torch.tensor(targets.values)
                found.append([(normal.mean - y).square().mean().sqrt().item(), crps(normal, y).mean().item()])
            scores.setdefault(method, []).append(np.mean(found, axis=0).tolist())
    facts = {"model": model, "stations": stations, "number": number, "seed": seed}
    file = out / "placement.json"
    others = [run for run in runs(file) if not (facts.items() <= run.items() and networks == size(run))]
    file.write_text(json.dumps([*others, facts | {"machine": machine(), "scores": scores}]) + "\n")
    (out / "placement.md").write_text(page(runs(file), len(candidates), tested.sizes["time"]))
    print((out / "placement.md").read_text())


def runs(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text()) if file.exists() else []


def size(run: dict[str, Any]) -> int:
    """The number of networks."""
    return len(run["scores"][SUGGESTED])


def page(runs: list[dict[str, Any]], candidates: int, times: int) -> str:
    """All runs in a table."""
    rows = []
    for run in runs:
        values = {method: torch.tensor(each) for method, each in run["scores"].items()}
        what = [run["model"], f"{run['stations']} + {run['number']}", str(run["seed"]), str(size(run))]
        for method, each in values.items():
            less = [str(Score.of(gain[None])) for gain in (values[SUGGESTED] - each).T] if method != SUGGESTED else []
            rows.append([*what, method, *(str(Score.of(score[None])) for score in each.T), *(less or ["", ""])])
    header = ["model", "stations", "seed", "networks", "further stations", "RMSE [K]", "CRPS [K]"]
    header += ["RMSE of `suggest` less this", "CRPS of `suggest` less this"]
    machines = "; ".join(dict.fromkeys(run["machine"] for run in runs))
    return f"""# Where the next stations go

Written by `python -m benchmarks.placement --data DIR --networks NUMBER`, with `--model`, `--stations`, `--number` and
`--seed` as in the table. {machines}.

Networks of random cells of ERA5 in Italy. Each method adds some of {candidates} candidates to the stations, chosen on
16 and 17 June 2022, after the training period; all are scored on 19 to 30 June, {times} times, at every second cell in
each direction. *Random* is the mean over {DRAWS} choices; *largest variance* takes a station to observe what is
predicted there; *farthest* is as far as possible from all others. The mean over networks, ± the standard error over
these; all share the same days. How `suggest` works was chosen among eight ways, with 5 to 30 other networks but on
these same days and the same PT-TNP, so the days are not blind to that choice; the ConvCNP was not looked at.

{markdown_table(header, rows)}
"""


if __name__ == "__main__":
    tyro.cli(main)
