"""How the symmetry test's effect grows with the truth, and how often it is wrong: `python -m benchmarks.breaking`.

It writes `breaking.md`. What is done is kept in `breaking.json`, and not done again.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import tyro
from rich.progress import track

import aenp
from aenp.data import GibbsTasks
from aenp.earth.breaking import Block, Gain, SymmetryTest, measure
from aenp.evaluation.tables import markdown_table
from aenp.experiments.gp import oracles
from aenp.process import Symmetry
from aenp.saving import written_whole
from aenp.training import Recipe, train

HERE = Path(__file__).parent
STRENGTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
GAINS = ("place", "equivariant", "exact")
TASKS, SEED, REPEATED = 8, 2**33, 2**34
"Tasks of a day, and the seeds of the test tasks."
PAGE = """\
# The symmetry test

Written by `python -m benchmarks.breaking{options}`.
Tasks are like those of the experiment `gp`, near x = 0, where the lengthscale changes by a factor of 40^strength: with
strength 0 not at all, with strength 1 as in the experiment. The *shipped* models, an approximate and an exact TNP, were
trained on strength 1 and expect a change wherever they are tested; *trained* ones are small TNPs trained on the tasks
of each strength. Each row is a test on {days} days of {tasks} tasks. Gains are in nats per target, with 95 % intervals.
The *truth* is the gain of the best possible predictor over the best equivariant one.

{table}

## False alarms

The models of strength 0 are tested on {repeats} further sets of {few} days, in which no place differs from another
either. The share in which each interval lies above zero, which should be at most 0.05:

{alarms}

Only the exchange of places has a mean of zero for every model. A model may be better or worse than its equivariant
part, or than another model, for reasons that have nothing to do with places, such as how often each was trained.
"""


def graded(strength: float) -> GibbsTasks:
    """Tasks whose lengthscale changes at x = 0 by a factor of 40^strength."""
    middle, factor = math.sqrt(0.1 * 4.0), 40 ** (strength / 2)
    return GibbsTasks((-3.0, 3.0), num_context=(1, 32), num_targets=32, lengthscales=(middle / factor, middle * factor))


def draw(source: GibbsTasks, days: int, seed: int) -> Iterator[Block]:
    """Independent tasks, in blocks that are called days."""
    for day in range(days):
        task = source.batch(TASKS, day, seed)
        yield Block(task, (task.xt.amin(dim=1) + task.xt.amax(dim=1)) / 2, day)


def small(symmetry: Symmetry, seed: int) -> aenp.TNP:
    """An untrained TNP."""
    torch.manual_seed(seed)
    fixed = None
    if symmetry == "approx":
        fixed = aenp.FixedInputs(1, num=16, domain=[(-6.0, 6.0)], dropout=0.1, fourier=4)
    options = {"attention": "spectral", "wavelengths": (0.1, 14.0), "dim": 32, "heads": 2, "layers": 2}
    return aenp.TNP(1, 1, fixed_inputs=fixed, fixed_at_targets=fixed is not None, **options)


def truth(source: GibbsTasks, days: int) -> float:
    """What the place is worth to the best possible predictor."""
    gains = []
    for block in draw(source, days, SEED):
        y = block.task.yt.double()
        best, equivariant = oracles.bayes(source, block.task), oracles.equivariant(source, block.task)
        gains.append((best.log_prob(y) - equivariant.log_prob(y)).mean())
    return torch.stack(gains).mean().item()


def pair(name: str, source: GibbsTasks, seed: int, steps: int) -> list[aenp.NeuralProcess]:
    """The shipped approximate and exact TNP, or two small ones trained on these tasks."""
    if name == "shipped":
        return [aenp.pretrained(f"gp/tnp-{symmetry}") for symmetry in ("approx", "exact")]
    models: list[aenp.NeuralProcess] = [small(symmetry, seed) for symmetry in ("approx", "exact")]
    for model in models:
        with TemporaryDirectory() as out:
            train(model, source, Recipe(steps=steps, learning_rate=2e-3), out, seed=seed)
    return models


def trial(
    source: GibbsTasks, approximate: aenp.NeuralProcess, exact: aenp.NeuralProcess, days: int, repeats: int, few: int
) -> dict[str, Any]:
    """The test of two models, and `repeats` further ones of a few days."""
    result = measure(approximate, list(draw(source, days, SEED)), exact)
    tests = [
        _gains(measure(approximate, list(draw(source, few, REPEATED + number)), exact))
        for number in track(range(repeats), "false alarms", transient=True)
    ]
    alarms = {name: sum(gains[name].low > 0 for gains in tests) / repeats for name in _gains(result) if repeats}
    return {"truth": truth(source, days), "broken": result.broken, **_gains(result), "alarms": alarms}


def _gains(result: SymmetryTest) -> dict[str, Gain]:
    assert result.exact is not None
    return {"place": result.place, "equivariant": result.equivariant, "exact": result.exact}


def main(steps: int = 3000, seeds: int = 2, days: int = 64, repeats: int = 200, few: int = 8, out: Path = HERE) -> None:
    """Tests data with a known breaking of the symmetry, from none to that of the experiment `gp`.

    Args:
        steps: training steps of each small model.
        seeds: how many pairs of small models to train for each strength, beside the shipped pair.
        days: days of each test.
        repeats: further tests without breaking, for each pair.
        few: days of each of these.
        out: directory for `breaking.md` and `breaking.json`.
    """
    torch.set_num_threads(1)
    options = f" --steps {steps} --seeds {seeds} --days {days} --repeats {repeats} --few {few}"
    file = out / "breaking.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    results = known if known.get("options") == options else {"options": options, "rows": []}
    for name in ("shipped", *(f"trained, seed {seed}" for seed in range(seeds))):
        for strength in STRENGTHS:
            if not any((row["models"], row["strength"]) == (name, strength) for row in results["rows"]):
                source = graded(strength)
                models = pair(name, source, int(name.split()[-1]) if name != "shipped" else 0, steps)
                found = trial(source, *models, days, 0 if strength else repeats, few)
                results["rows"].append({"models": name, "strength": strength} | found)
                written = {
                    file: json.dumps(results, indent=1) + "\n",
                    out / "breaking.md": page(results, days, repeats, few),
                }
                for path, text in written.items():
                    with written_whole(path) as temporary:
                        temporary.write_text(text)


def page(results: dict[str, Any], days: int, repeats: int, few: int) -> str:
    """The results so far, as tables."""
    header = [
        "models",
        "strength",
        "truth",
        "right places over others",
        "over own equivariant part",
        "over exact",
        "found",
    ]
    table = [
        [
            row["models"],
            f"{row['strength']:g}",
            f"{row['truth']:.4f}",
            *(str(Gain(*row[name])) for name in GAINS),
            "broken" if row["broken"] else "no sign",
        ]
        for row in results["rows"]
    ]
    alarms = [
        [row["models"], *(f"{row['alarms'][name]:.3f}" for name in GAINS)] for row in results["rows"] if row["alarms"]
    ]
    return PAGE.format(
        options=results["options"],
        days=days,
        tasks=TASKS,
        repeats=repeats,
        few=few,
        table=markdown_table(header, table),
        alarms=markdown_table([header[0], *header[3:6]], alarms),
    )


if __name__ == "__main__":
    tyro.cli(main)
