"""Ablations: models that differ in one choice, each trained with several seeds, beside the paper's scores."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any, Literal, NamedTuple

from rich.console import Console
from tyro.conf import Positional

from aenp._version import __version__
from aenp.arguments import Count, File, Seed, Text, check_place, numbers, optional, words
from aenp.evaluation.scores import Stratum, blocks_of, model_values, oracle_values, summary
from aenp.evaluation.tables import markdown_table
from aenp.experiments import Experiment, experiment_class
from aenp.experiments.experiment import exact_counterpart, key, process_of
from aenp.experiments.kept import tasks_key
from aenp.experiments.runs import ExperimentName, RunConfig, WholeNumber, train_model
from aenp.process import NeuralProcess
from aenp.saving import load, written_whole
from aenp.training.directory import MODEL

What = Literal["symmetry", "fixed-inputs", "dropout", "border"]
Value = int | float | str
FAMILIES = ("tnp", "convcnp")
"The families of the paper's ablations."
PAIRED = ("tnp", "pttnp", "convcnp")
"The families whose gain from breaking the symmetry is repeated with other seeds."
NUM, DROPOUT, BORDERS, SYMMETRIES = (0, 1, 2, 4, 8, 16), (0.0, 0.1, 0.5), ("ours", "paper"), ("exact", "approx")
UNTOLD = ("experiment", "threads")
"Settings that do not tell two runs of an ablation apart."

TITLES = {
    "symmetry": "symmetry",
    "fixed-inputs": "number of fixed inputs",
    "dropout": "dropout of the fixed inputs",
    "border": "border",
}
SYMBOLS = {"symmetry": "symmetry", "fixed-inputs": "B", "dropout": "p", "border": "border"}
NOTES = {
    "symmetry": """\
Is the gain from breaking the symmetry more than luck? Both models of a pair are trained alike, but for the fixed inputs
and what their recipe says of them.""",
    "fixed-inputs": """\
B fixed inputs are mapped linearly to the channels of the network; with B = 0 the model is exactly equivariant. For the
TNP, the paper calls its number of Fourier coefficients B too; ours has the same Fourier features at every B.""",
    "dropout": """\
p is the probability that the fixed inputs are zero for a whole task in training. With p = 0 the network without them is
trained only where the domain of the fixed inputs is left.""",
    "border": """\
Outside their domain the fixed inputs are zero. The paper's domain is the whole training region, so that a model without
them is only ever trained by dropout. Ours is smaller: near its edge the model sees in training what is beyond.""",
}
PAGE = """\
# Ablation in `{name}`: {title}{border}

Written by `{command}`, aenp {version}.
{budget} for each run, where the paper has 500,000 steps on a GPU.
Compare the rows with each other, not our scores with the paper's.

Log-likelihoods are in nats per target point: the mean over seeds {seeds}, ± the standard deviation between them.
All are of the same test tasks: {tasks}. *Gain* is that over the same model's
equivariant part.

{note}

{table}
{oracles}
![{title}](scores.png)
"""


@dataclass(frozen=True)
class TestSets:
    """An experiment's test tasks, made when they are needed.

    Args:
        experiment: what is tested.
        tasks: about how many tasks each test set has.
        seed: random seed of the tasks.
    """

    experiment: Experiment
    tasks: int
    seed: int

    @cached_property
    def strata(self) -> dict[str, list[Stratum]]:
        return self.experiment.tests(self.tasks, self.seed)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What tells scores on these tasks from others: their number and seed, and a hash of them and of our code."""
        every = [stratum for strata in self.strata.values() for stratum in strata]
        digest = tasks_key(every, experiment=self.experiment.name, norm=self.experiment.norm)
        return {"tasks": self.tasks, "test_seed": self.seed, "test_key": digest}

    def scores(self, model: NeuralProcess) -> dict[str, Any]:
        """The model's scores on each test set, as JSON values."""
        norm = self.experiment.norm
        return {
            test: summary(model_values(model, strata, norm), None, blocks_of(strata))
            for test, strata in self.strata.items()
        }

    def oracles(self) -> dict[str, Any]:
        """The oracles' scores on each test set, as JSON values."""
        return {
            test: {oracle: summary(values) for oracle, values in oracle_values(strata).items()}
            for test, strata in self.strata.items()
        }


class Results:
    """What is known so far, one line of JSON for each run and one for the oracles; each is computed once.

    Args:
        file: where the lines are.
        tests: the test tasks; lines of others are left alone, and those that other code has scored are replaced.
    """

    def __init__(self, file: Path, tests: TestSets) -> None:
        self.file, self.tests = file, tests
        self.lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def of(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """The line of a run with these settings, or of the oracles, which have none."""
        same = {"settings": dict(settings), **self.tests.facts}
        return next((line for line in self.lines if same.items() <= line.items()), None)

    def add(self, settings: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Writes a line, and returns it."""
        line = {"settings": dict(settings), **self.tests.facts, **facts}
        others = [
            old for old in self.lines if any(old[name] != line[name] for name in ("settings", "tasks", "test_seed"))
        ]
        self.lines = [*others, line]
        with written_whole(self.file) as temporary:
            temporary.write_text("".join(json.dumps(each) + "\n" for each in self.lines))
        return line


class Run(NamedTuple):
    """A run in an ablation: the family that it stands for, the value that it has, and what is trained."""

    family: str
    value: Value
    config: RunConfig


def ablate(
    what: Positional[What],
    experiment: Positional[ExperimentName],
    models: Annotated[tuple[str, ...], optional(), words()] = (),
    num: Annotated[tuple[int, ...], optional(), numbers(int, 0, 10**4)] = (),
    dropout: Annotated[tuple[float, ...], optional(), numbers(float, 0, 1)] = (),
    border: Annotated[Literal["ours", "paper"] | None, optional("{ours,paper}")] = None,
    seeds: Annotated[tuple[int, ...], numbers(int, 0, 2**31)] = (0, 1, 2),
    steps: WholeNumber = None,
    minutes: Annotated[float | None, optional("MINUTES")] = None,
    threads: WholeNumber = None,
    data: Annotated[str | None, optional("PATH")] = None,
    split: Text = None,
    tasks: Count = 2048,
    test_seed: Seed = 1,
    out: File = None,
    runs: Path = Path("runs/ablations"),
) -> None:
    """Train and score models that differ in one choice. After Ctrl-C, the same command continues.

    Example: aenp ablate fixed-inputs gp --models tnp,convcnp --num 0,1,2,4,8,16 --minutes 1

    Args:
        what: symmetry, exact or approximate; fixed-inputs, their number; dropout, how often they are dropped in
            training; border, where they end.
        experiment: name of the experiment.
        models: families, such as tnp,convcnp; by default those of the paper's ablations.
        num: numbers of fixed inputs for `fixed-inputs`, by default 0,1,2,4,8,16; 0 is the exactly equivariant model.
        dropout: probabilities for `dropout`, by default 0,0.1,0.5.
        border: for `fixed-inputs` and `dropout`, where the fixed inputs end: ours or the paper's; by default ours.
        seeds: random seeds of the runs.
        steps: budget of each run in steps; by default the preset's.
        minutes: budget of each run in minutes, in place of steps.
        threads: threads of a run; by default one for each core.
        data: where the experiment's data are, if it needs any.
        split: how its data are split into training and test data; by default as for the shipped models.
        tasks: number of tasks in each test set, rounded up to whole strata.
        test_seed: random seed of the test tasks.
        out: directory of the page, the scores and their plot; by default results/ablations/EXPERIMENT-WHAT.
        runs: directory of the runs.
    """
    out = out or Path("results", "ablations", "-".join(filter(None, [experiment, what, border])))
    check_place(out, is_directory=True)
    check_place(runs, is_directory=True)
    declared = experiment_class(experiment)(None if data is None else Path(data), split)
    known = [family for family, symmetry in declared.models if symmetry == "approx"]
    if not known:
        raise ValueError(f"{experiment} has no approximate models, which alone have fixed inputs; choose another")
    if unknown := set(models) - set(known):
        raise ValueError(f"{experiment} has approximate models of {', '.join(known)}; got {', '.join(unknown)}")
    usual = PAIRED if what == "symmetry" else FAMILIES
    families = models or tuple(family for family in usual if family in known) or tuple(known)
    if what == "border" or border == "paper":
        _check_border(declared, families)
    values = _values(what, num, dropout, border)
    common: dict[str, Any] = {"data": data, "split": split, "steps": steps, "minutes": minutes, "threads": threads}
    if border is not None:
        common["border"] = border
    every = [
        Run(family, value, RunConfig(experiment, seed=seed, **common | _choice(what, family, value)))
        for seed in seeds
        for family in families
        for value in values
    ]
    results = Results(out / "results.jsonl", TestSets(declared, tasks, test_seed))
    for number, (_, _, config) in enumerate(every, start=1):
        if results.of(_settings(config)) is None:
            Console(stderr=True).print(f"run {number} of {len(every)}: {_name(config)}")
            _train_and_score(runs / experiment / _name(config), config, results)
    if results.of({}) is None:
        results.add({}, {"scores": results.tests.oracles()})
    page = Page(what, every, results)
    page.draw(out / "scores.png")
    varied = {"models": models, "num": num, "dropout": dropout, "seeds": seeds}
    options = {**varied, **common, "tasks": tasks, "test_seed": test_seed}
    with written_whole(out / "README.md") as temporary:
        temporary.write_text(page.text(_command(what, experiment, options)))
    print(page.table())
    print(out / "README.md")


def _values(what: What, num: tuple[int, ...], dropout: tuple[float, ...], border: str | None) -> Sequence[Value]:
    """The values that are varied; an error if others are given."""
    given = {"num": num, "dropout": dropout, "border": border}
    uses = {"num": ("fixed-inputs",), "dropout": ("dropout",), "border": ("fixed-inputs", "dropout")}
    for name, only in uses.items():
        if given[name] and what not in only:
            raise ValueError(f"--{name} is for `aenp ablate {' or '.join(only)}`; leave it out of `aenp ablate {what}`")
    values: dict[str, Sequence[Value]] = {
        "symmetry": SYMMETRIES,
        "fixed-inputs": num or NUM,
        "dropout": dropout or DROPOUT,
        "border": BORDERS,
    }
    return values[what]


def _check_border(experiment: Experiment, families: Sequence[str]) -> None:
    """Raises an error if the fixed inputs of a family cannot end both at the paper's border and at another."""
    for family in families:
        fixed_inputs = experiment.setups["cpu"][family].fixed_inputs
        if "domain" not in fixed_inputs or "periods" in fixed_inputs:
            raise ValueError(
                f"the fixed inputs of {family} in {experiment.name} have one border only; "
                "vary their number or their dropout, without --border"
            )


def _choice(what: What, family: str, value: Any) -> dict[str, Any]:
    """The settings of a run with this value."""
    if (what == "fixed-inputs" and not value) or value == "exact":
        exact, _, symmetry = exact_counterpart(key(family, "approx")).rpartition("-")
        return {"model": exact, "symmetry": symmetry, "border": "ours"}
    setting = {"fixed-inputs": "num_fixed"}.get(what, what)
    return {"model": family, "symmetry": "approx"} | {setting: value}


def _command(what: What, experiment: str, options: Mapping[str, Any]) -> str:
    """The command with these options, where they are given; where the data are is nobody else's business."""
    words = ["aenp", "ablate", what, experiment]
    for name, value in options.items():
        if value not in (None, ()):
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [f"--{name.replace('_', '-')}", "DIR" if name == "data" else text]
    return shlex.join(words)


def _settings(config: RunConfig) -> dict[str, Any]:
    """The settings that tell a run from others, with a hash of where its data are."""
    settings = {name: value for name, value in config.changed().items() if name not in UNTOLD}
    if config.data is not None:
        settings["data"] = sha256(str(Path(config.data).resolve()).encode()).hexdigest()[:8]
    return settings


def _name(config: RunConfig) -> str:
    """The name of a run's directory, which tells all its settings."""
    others = {name: value for name, value in _settings(config).items() if name not in ("model", "symmetry")}
    return "_".join([config.name, *(f"{name.replace('_', '-')}-{value}" for name, value in others.items())])


def _train_and_score(run: Path, config: RunConfig, results: Results) -> None:
    """Trains a model to the end, unless that is done, and adds its scores; ends the program if it is interrupted."""
    facts = run / "model.json"
    if not (facts.exists() and json.loads(facts.read_text())["finished"]):
        outcome = train_model(run, config, resume=(run / "run.json").exists())
        if not outcome.finished:
            print("Stopped. The same command continues.")
            sys.exit(130)
    known = json.loads(facts.read_text())
    known["command"] = re.sub(r"--data \S+", "--data DIR", known["command"])
    scores = results.tests.scores(process_of(load(run / MODEL)))
    results.add(
        _settings(config),
        {name: known[name] for name in ("command", "steps", "minutes", "parameters")} | {"scores": scores},
    )


class Page:
    """An ablation's scores as a table, a plot and a page.

    Args:
        what: what is varied.
        runs: what was trained.
        results: their scores.
    """

    def __init__(self, what: What, runs: Sequence[Run], results: Results) -> None:
        self.what, self.results, self.experiment = what, results, results.tests.experiment
        self.runs: dict[str, dict[Value, list[dict[str, Any]]]] = {}
        for family, value, config in runs:
            line = results.of(_settings(config))
            assert line is not None
            self.runs.setdefault(family, {}).setdefault(value, []).append(line)
        self.config, self.seeds = runs[0].config, list(dict.fromkeys(run.config.seed for run in runs))
        self.papers_border = what != "border" and any(run.config.border == "paper" for run in runs)
        self.oracles = (results.of({}) or {})["scores"]
        self.tests = list(self.oracles)

    def paper(self, test: str, family: str) -> Mapping[Any, float]:
        """The paper's scores by the value that is varied."""
        return self.experiment.paper_ablations.get(self.what, {}).get(test, {}).get(family, {})

    def table(self) -> str:
        header = ["model", SYMBOLS[self.what], "steps"]
        for test in self.tests:
            header += [test, "gain"]
            if self.experiment.paper_ablations.get(self.what, {}).get(test):
                other = self.experiment.paper_tests.get(test)
                header.append(f"paper, {other}" if other else "paper")
        rows = []
        for family, values in self.runs.items():
            for value, lines in values.items():
                row = [family, _shown(value), f"{mean(line['steps'] for line in lines):,.0f}"]
                for test in self.tests:
                    row += [_spread(_logliks(lines, test)), _spread(_gains(lines, test))]
                    if self.experiment.paper_ablations.get(self.what, {}).get(test):
                        score = self.paper(test, family).get(value)
                        row.append("" if score is None else f"{score:g}")
                rows.append(row)
        return markdown_table(header, rows)

    def oracle_table(self) -> str:
        """The oracles on the same tasks, where there are any."""
        rows = [
            [oracle, *(f"{self.oracles[test][oracle]['loglik']['mean']:.3f}" for test in self.tests)]
            for oracle in self.oracles[self.tests[0]]
        ]
        return f"\n{markdown_table(['oracle', *self.tests], rows)}\n" if rows else ""

    def text(self, command: str) -> str:
        config = self.config
        budget = f"{config.steps:,} steps" if config.steps else f"{config.minutes} minutes" if config.minutes else None
        counts = {test: sum(len(each.task) for each in strata) for test, strata in self.results.tests.strata.items()}
        return PAGE.format(
            name=self.experiment.name,
            title=TITLES[self.what],
            border=", with the paper's border" if self.papers_border else "",
            command=command,
            version=__version__,
            budget=f"**A small budget**: {budget}" if budget else "The preset's number of steps",
            seeds=", ".join(map(str, self.seeds)),
            tasks=", ".join(f"{count:,} {test}" for test, count in counts.items()),
            note=NOTES[self.what],
            table=self.table(),
            oracles=self.oracle_table(),
        )

    def draw(self, file: Path) -> Path:
        """Scores against the value that is varied: a line through the means, a dot for each seed."""
        from aenp.evaluation.plots import pyplot, save_figure

        size = (5.2 * len(self.tests), 4)
        figure, axes = pyplot.subplots(1, len(self.tests), figsize=size, squeeze=False, layout="constrained")
        for axis, test in zip(axes.flat, self.tests, strict=True):
            for number, (family, values) in enumerate(self.runs.items()):
                colour, places = f"C{number}", range(len(values))
                scores = [_logliks(lines, test) for lines in values.values()]
                axis.plot(places, list(map(mean, scores)), "-", color=colour, label=family)
                for place, each in zip(places, scores, strict=True):
                    axis.plot([place] * len(each), each, "o", color=colour, markersize=4, alpha=0.6)
                paper = self.paper(test, family)
                known = [(place, paper[value]) for place, value in enumerate(values) if value in paper]
                if known:
                    axis.plot(*zip(*known, strict=True), "s--", color=colour, markersize=3, label=f"{family}, paper")
            for oracle, style in zip(_ceilings(self.oracles[test]), ("-.", ":"), strict=False):
                level = self.oracles[test][oracle]["loglik"]["mean"]
                axis.axhline(level, color="0.4", linestyle=style, linewidth=1, label=f"{oracle} (oracle)")
            labels = [_shown(value) for value in next(iter(self.runs.values()))]
            axis.set_xticks(list(range(len(labels))), labels)
            axis.set(title=test, xlabel=f"{SYMBOLS[self.what]}: {TITLES[self.what]}", ylabel="log-likelihood")
            axis.grid(alpha=0.25)
            axis.legend(fontsize=8)
        return save_figure(figure, file)


def _logliks(lines: Sequence[Mapping[str, Any]], test: str) -> list[float]:
    return [line["scores"][test]["loglik"]["mean"] for line in lines]


def _gains(lines: Sequence[Mapping[str, Any]], test: str) -> list[float]:
    """The gain over the equivariant part; none for an exact model."""
    scores = [line["scores"][test] for line in lines]
    return [
        each["loglik"]["mean"] - each["equivariant_loglik"]["mean"] for each in scores if "equivariant_loglik" in each
    ]


def _ceilings(oracles: Mapping[str, Any]) -> list[str]:
    """The oracles for models with a Normal likelihood, such as ours, or else all."""
    return [name for name in oracles if name.endswith("Normal")] or list(oracles)


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "".join(f"{value:.3f}" for value in values)
    return f"{mean(values):.3f} ± {stdev(values):.3f}"


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"
