"""The gain from breaking the symmetry with each seed, from the runs of `aenp ablate symmetry`."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from aenp.evaluation.tables import markdown_table
from aenp.experiments.experiment import exact_counterpart, key
from aenp.experiments.kept import PACKAGE

Line = Mapping[str, Any]
"What is known of a run of an ablation: its settings and its scores."

SECTION = """
### With other seeds

Pairs of models trained for {steps} by `aenp ablate symmetry {experiment}`, {budget}:
the mean over {number} seeds, ± the standard deviation between them, and each. On about {tasks:,} tasks in each test
set.

{table}
"""


def lines_of(file: Path) -> list[dict[str, Any]]:
    """The runs of an ablation that a file of its results holds; none if there is no such file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def common(line: Line, *varied: str) -> str:
    """What a run shares with others of its ablation: the test tasks, and the settings that are not varied."""
    settings = {name: value for name, value in line["settings"].items() if name not in ("symmetry", "seed", *varied)}
    tests = [line.get(name) for name in ("tasks", "test_seed", "test_key")]
    return json.dumps([tests, settings], sort_keys=True)


def ablations_folder(results: Path) -> Path:
    """Where the ablations are: beside the pages or, if none are there and this is a checkout, among its results."""
    here, committed = results / "ablations", PACKAGE.parents[1] / "results" / "ablations"
    return committed if committed.exists() and not here.exists() else here


def pairs_of(results: Path, experiment: str) -> list[dict[str, Any]]:
    """The runs of the pairs that `aenp ablate symmetry` has trained last with one budget."""
    file = ablations_folder(results) / f"{experiment}-symmetry" / "results.jsonl"
    lines = [line for line in lines_of(file) if line["settings"]]
    return [line for line in lines if common(line, "model") == common(lines[-1], "model")]


def seeds_section(results: Path, experiment: str, label: Callable[[str], str]) -> str:
    """A table of the pairs of models with several seeds; nothing if there are none.

    Args:
        results: the directory of all results.
        experiment: name of the experiment.
        label: how a model such as tnp-approx is called in the table.
    """
    lines = pairs_of(results, experiment)
    runs = {_which(line): line["scores"] for line in lines}
    tests = list(lines[-1]["scores"]) if lines else []
    rows = []
    for name in dict.fromkeys(name for name, _ in runs if exact_counterpart(name) != name):
        seeds = [seed for other, seed in runs if other == name and (exact_counterpart(name), seed) in runs]
        if len(seeds) < 2:
            continue
        row = [label(name)]
        for test in tests:
            ours = _logliks((runs[name, seed] for seed in seeds), test)
            exact = _logliks((runs[exact_counterpart(name), seed] for seed in seeds), test)
            own = _logliks((runs[name, seed] for seed in seeds), test, "equivariant_loglik")
            row += [_spread(ours), _spread(_less(ours, exact)), _spread(_less(ours, own))]
        rows.append(row)
    if not rows:
        return ""
    columns = ["{}: log-likelihood", "{}: Δ vs exact", "{}: Δ vs own equivariant part"]
    header = ["model", *(column.format(test) for test in tests for column in columns)]
    steps = sorted({line["steps"] for line in lines})
    as_shipped = lines[-1]["settings"].keys() <= {"model", "symmetry", "seed", "data"}
    return SECTION.format(
        steps=" to ".join(f"{each:,}" for each in (steps[0], steps[-1])[: len(steps)]) + " steps",
        experiment=experiment,
        budget="as the shipped ones" if as_shipped else "**a smaller budget** than that of the shipped ones",
        number=len({seed for _, seed in runs}),
        tasks=lines[-1]["tasks"],
        table=markdown_table(header, rows),
    )


def _which(line: Line) -> tuple[str, int]:
    """The model and the seed of a run."""
    settings = line["settings"]
    return key(settings["model"], settings["symmetry"]), settings.get("seed", 0)


def _logliks(scores: Iterable[Line], test: str, metric: str = "loglik") -> list[float]:
    return [each[test][metric]["mean"] for each in scores]


def _less(ours: Iterable[float], theirs: Iterable[float]) -> list[float]:
    return [one - other for one, other in zip(ours, theirs, strict=True)]


def _spread(values: Sequence[float]) -> str:
    each = ", ".join(f"{value:.4f}" for value in values)
    return f"{mean(values):.4f} ± {stdev(values):.4f} ({each})"
