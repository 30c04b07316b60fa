"""Intervals out of region: `python -m benchmarks.recalibration --data DIR` writes `recalibration.md` here.

Shipped models of Italy predict the UK, as they are and with standard deviations scaled by `calibrate` on days before.
"""

from pathlib import Path

import torch
import tyro

import aenp
from aenp.evaluation.tables import markdown_table
from benchmarks.speed import machine
from benchmarks.validation import UK

HERE = Path(__file__).parent
MODELS = ("era5-2d/pttnp-approx", "era5-2d/convcnp-approx", "era5-2d/equivcnp-approx")
LEARNED, TESTED = ("2019-03-01", "2019-03-15"), ("2019-03-17", "2019-03-31")
FRACTIONS = (0.02, 0.1, 0.3)


def main(data: Path, tasks: int = 45, seed: int = 0, out: Path = HERE) -> None:
    """Coverage of 90 % intervals before and after, for several shares of the cells that are observed.

    Args:
        data: directory of the climate data.
        tasks: times of the calibration, and of the test, at most.
        seed: of the times and of the cells.
        out: directory for `recalibration.md`.
    """
    torch.set_num_threads(1)
    rows = []
    for name in MODELS:
        model = aenp.pretrained(name)
        for fraction in FRACTIONS:
            chosen = {"tasks": tasks, "fraction": fraction, "seed": seed}
            calibrated = model.calibrate(data / UK, days=LEARNED, **chosen)
            tables = [each.validate(data / UK, days=TESTED, **chosen).table for each in (model, calibrated)]
            row = [name, f"{100 * fraction:g} %", f"{calibrated.spread / model.spread:.2f}"]
            for metric in ("coverage", "crps", "loglik"):
                row += [
                    f"{table.loc['model', metric]:.3f} ± {table.loc['model', f'{metric}_se']:.3f}" for table in tables
                ]
            rows.append(row)
    header = ["model", "observed", "factor"]
    header += [f"{what}, {when}" for what in ("coverage", "CRPS [K]", "log-likelihood") for when in ("before", "after")]
    page = f"""# Intervals out of region

Written by `python -m benchmarks.recalibration --data DIR --tasks {tasks} --seed {seed}`: {machine()}.

Models of Italy in summer predict ERA5 in the UK in March 2019 from a share of its cells. `calibrate` scales their
standard deviations by a factor from {tasks} times of 1 to 15 March; *before* and *after* are of {tasks} times of 17 to
31 March. Coverage is that of 90 % intervals; standard errors are over days.

{markdown_table(header, rows)}
"""
    (out / "recalibration.md").write_text(page)
    print(page)


if __name__ == "__main__":
    tyro.cli(main)
