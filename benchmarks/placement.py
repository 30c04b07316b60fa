"""Where the next stations go: `python -m benchmarks.placement --data DIR` writes `placement-MODEL.md` here.

Networks of random cells of ERA5 in Italy get further stations by each method, planned on two days after the training
period of a shipped model; all are scored on later days.
"""

from pathlib import Path

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
SUGGESTED, WIDEST, RANDOM = "`suggest`", "largest variance", "random"
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


def main(
    data: Path,
    model: str = "era5-2d/pttnp-approx",
    networks: int = 16,
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
    scores: dict[str, list[tuple[float, float]]] = {}
    for network in track(range(networks), "placing"):
        rng = np.random.default_rng((seed, network))
        own = rng.choice(cells.size, stations, replace=False)
        observed = at(planned, own)
        draws = [candidates.iloc[rng.choice(len(candidates), number, replace=False)] for _ in range(DRAWS)]
        places = {
            "none": [candidates[:0]],
            RANDOM: draws,
            WIDEST: [widest(process, observed, candidates, number)],
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
            scores.setdefault(method, []).append(tuple(np.mean(found, axis=0)))
    values = {method: torch.tensor(each) for method, each in scores.items()}
    rows = []
    for method, each in values.items():
        less = [str(Score.of(gain[None])) for gain in (values[SUGGESTED] - each).T] if method != SUGGESTED else ["", ""]
        rows.append([method, *(str(Score.of(score[None])) for score in each.T), *less])
    header = ["further stations", "RMSE [K]", "CRPS [K]", "RMSE of `suggest` less this", "CRPS of `suggest` less this"]
    page = f"""# Where the next stations go

Written by `python -m benchmarks.placement --data DIR --model {model} --networks {networks} --seed {seed}`: {machine()}.

{networks} networks of {stations} random cells of ERA5 in Italy. Each method adds {number}
of {len(candidates)} candidates, chosen on 16 and 17 June 2022, after the training period; all are scored on 19 to 30
June, {tested.sizes["time"]} times, at every second cell in each direction. *Random* is the mean over {DRAWS} choices.
The mean over networks, ± the standard error over these; all share the same days.

{markdown_table(header, rows)}
"""
    (out / f"placement-{Path(model).name}.md").write_text(page)
    print(page)


if __name__ == "__main__":
    tyro.cli(main)
