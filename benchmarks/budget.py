"""What the training of the shipped models costs: `python -m benchmarks.budget --data DIR` writes `budget.md` here."""

import tempfile
import time
from pathlib import Path

import torch
import tyro
from rich.progress import track

from aenp.evaluation.tables import markdown_table
from aenp.experiments import experiment_class, experiments, key
from aenp.experiments.runs import RunConfig, train_model
from aenp.shipped import shipped
from benchmarks.measure import in_new_process
from benchmarks.speed import machine

HERE = Path(__file__).parent
PAGE = """\
# The cost of the shipped models

{machine}

Written by `python -m benchmarks.budget --data DIR --smoke DIR --steps {short} {long}`. Each model is trained for two
small numbers of steps on one thread; the difference in processor time, divided by that in steps, is the time of a step.
*Core-minutes* is that times the steps of the shipped model. *Clock* is how long its training took on machines that did
other work too.

{table}

In all {hours:.1f} core-hours, of which the longest training takes {longest:.0f} minutes.
"""


def seconds_of(config: RunConfig, steps: int) -> float:
    """The processor time of a run with this number of steps."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        train_model(Path(folder) / "run", RunConfig(**vars(config) | {"steps": steps}), resume=False)
        return time.process_time() - start


def main(data: Path, smoke: Path = Path("smoke.zarr"), steps: tuple[int, int] = (20, 80), out: Path = HERE) -> None:
    """Measures the time of a step for each shipped model.

    Args:
        data: directory with the temperatures.
        smoke: simulations, as `aenp data smoke` writes them.
        steps: the two numbers of steps.
        out: directory for `budget.md`.
    """
    places = {
        name: data if each.needs_data else smoke if name == "smoke" else None for name, each in experiments().items()
    }
    models = [
        (name, model, symmetry)
        for name in places
        for model, symmetry in experiment_class(name).models
        if f"{name}/{key(model, symmetry)}" in shipped()
    ]
    rows, minutes = [], []
    for name, family, symmetry in track(models, "training"):
        config = RunConfig(name, family, symmetry, data=str(places[name]) if places[name] else None, threads=1)
        few, many = (in_new_process(seconds_of, config, each) for each in steps)
        facts, step = shipped()[f"{name}/{key(family, symmetry)}"], (many - few) / (steps[1] - steps[0])
        minutes.append(step * facts["steps"] / 60)
        rows.append(
            [
                name,
                key(family, symmetry),
                f"{facts['steps']:,}",
                f"{1000 * step:.0f}",
                f"{minutes[-1]:.0f}",
                f"{facts['minutes']:.0f}",
            ]
        )
    header = ["experiment", "model", "steps", "ms a step", "core-minutes", "clock"]
    page = PAGE.format(
        machine=machine(),
        short=steps[0],
        long=steps[1],
        table=markdown_table(header, rows),
        hours=sum(minutes) / 60,
        longest=max(minutes),
    )
    (out / "budget.md").write_text(page)
    print(page)


if __name__ == "__main__":
    tyro.cli(main)
