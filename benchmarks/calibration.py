"""The base model's intervals by points, nugget and design: `python -m benchmarks.calibration` writes a page."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import tyro

import aenp
from aenp.data.random_fields import RandomFields, clustered, gridded, scattered
from aenp.evaluation.scores import Score
from aenp.evaluation.tables import markdown_table
from aenp.shipped import base_model
from aenp.task import Task
from benchmarks.expected import Case, expected_share, normal
from benchmarks.speed import machine

HERE = Path(__file__).parent
SEED = 2**35
TARGETS = 64
NUGGETS = {"no nugget": 0.0, "10 %": 1 / 9, "50 %": 1.0}
DESIGNS = {"scattered": scattered, "clustered": clustered, "gridded": gridded}
PAGE = """\
# The base model's intervals

Written by `python -m benchmarks.calibration --tasks {tasks}`. {machine}

The share of targets in the base model's 95 % intervals, in percent, on random fields as in training with the nugget's
share of the variance and the design at the head of the column, ± its standard error over tasks. It is what is to be
expected given the points: the intervals' probability for one who knows the field's law. Last, the median width of the
intervals relative to those of that one: they are wider where the points leave the law open. {tasks} tasks of {targets}
targets for each number, fewer with more than 300 points.

{table}
"""


def tasks_of(
    make: Callable[[np.random.Generator, int], np.ndarray], nugget: float, count: int, number: int
) -> list[Case]:
    """Tasks of one design, nugget and size."""
    tasks = []
    for index in range(number):
        rng = np.random.default_rng((SEED, count, index))
        field = RandomFields().field(rng)._replace(nugget=nugget)
        x = torch.from_numpy(rng.permutation(make(rng, count + TARGETS))[: count + TARGETS])
        y = field.draw(rng, x).float()[:, None]
        (xc, xt), (yc, yt) = (each[None].split([count, TARGETS], dim=1) for each in (x, y))
        tasks.append(Case(Task(xc, yc, xt, yt), normal(*field.predict(xc[0], yc[0, :, 0], xt[0]))))
    return tasks


def main(points: tuple[int, ...] = (3, 10, 30, 100, 300, 1000, 3000), tasks: int = 120, out: Path = HERE) -> None:
    """Counts how many targets are within the intervals.

    Args:
        points: numbers of context points.
        tasks: number of tasks of each kind; fewer where there are more than 300 points.
        out: directory for `calibration.md`.
    """
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    model, rows = base_model(), []
    for count in points:
        number, shares, widths = max(2, round(tasks * min(1, 300 / count))), [], []
        for nugget in NUGGETS.values():
            for make in DESIGNS.values():
                inside = []
                for task, truth in tasks_of(make, nugget, count, number):
                    prediction = aenp.predict(model, task)
                    inside.append(expected_share(prediction, truth))
                    widths.append((prediction.stddev.mean() / truth.stddev.mean()).item())
                share = Score.of(100 * torch.tensor(inside)[None])
                shares.append(f"{share.mean:.1f} ± {share.standard_error:.1f}")
        rows.append([f"{count:,}", *shares, f"{np.median(widths):.2f}"])
        print(" | ".join(rows[-1]), flush=True)
    header = ["points", *(f"{nugget}, {design}" for nugget in NUGGETS for design in DESIGNS), "width"]
    page = PAGE.format(tasks=tasks, machine=machine(), targets=TARGETS, table=markdown_table(header, rows))
    (out / "calibration.md").write_text(page)


if __name__ == "__main__":
    tyro.cli(main)
