"""Ablations: models that differ in one choice, each trained with several seeds, beside the paper's scores."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console
from tyro.conf import Positional

from aenp.arguments import Count, File, Seed, Text, check_place, numbers, optional, words
from aenp.experiments import Experiment, experiment_class
from aenp.experiments.ablation_page import Page
from aenp.experiments.ablation_results import Results, Run, TestSets, Value, What, settings_of
from aenp.experiments.experiment import exact_counterpart, key, process_of
from aenp.experiments.runs import ExperimentName, RunConfig, WholeNumber, train_model
from aenp.saving import load, written_whole
from aenp.shipped import pretrained, shipped
from aenp.training.directory import MODEL
from aenp.training.recipe import Recipe

FAMILIES = ("tnp", "convcnp")
"The families of the paper's ablations."
PAIRED = ("tnp", "pttnp", "convcnp")
"The families whose gain from breaking the symmetry is repeated with other seeds."
NUM, DROPOUT, BORDERS, SYMMETRIES = (0, 1, 2, 4, 8, 16), (0.0, 0.1, 0.5), ("ours", "paper"), ("exact", "approx")


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

    A shipped model with the same settings, seed and steps is scored as it is.

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
        if results.of(settings_of(config)) is None:
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


def _name(config: RunConfig) -> str:
    """The name of a run's directory, which tells all its settings."""
    others = {name: value for name, value in settings_of(config).items() if name not in ("model", "symmetry")}
    return "_".join([config.name, *(f"{name.replace('_', '-')}-{value}" for name, value in others.items())])


def is_shipped(config: RunConfig) -> bool:
    """Whether a run with these settings has made the shipped model, so that it need not be trained again."""
    facts = shipped().get(f"{config.experiment}/{config.name}")
    as_shipped = {"experiment", "model", "symmetry", "data", "threads"} >= config.changed().keys()
    needs_data = experiment_class(config.experiment).needs_data  # which may be others than those of the shipped model
    if facts is None or needs_data or not as_shipped or facts["seed"] != config.seed:
        return False
    ours, theirs = config.recipe(), Recipe(**facts["recipe"])
    if config.symmetry != "approx":  # without fixed inputs there is no other part to train first
        ours, theirs = (replace(recipe, exact_first=0.0) for recipe in (ours, theirs))
    return ours == theirs and facts["steps"] == ours.steps


def _train_and_score(run: Path, config: RunConfig, results: Results) -> None:
    """Trains a model to the end, unless that is done, and adds its scores; ends the program if it is interrupted."""
    shipped_name = f"{config.experiment}/{config.name}"
    if is_shipped(config):
        known, model = shipped()[shipped_name], pretrained(shipped_name)
    else:
        facts = run / "model.json"
        if not (facts.exists() and json.loads(facts.read_text())["finished"]):
            outcome = train_model(run, config, resume=(run / "run.json").exists())
            if not outcome.finished:
                print("Stopped. The same command continues.")
                sys.exit(130)
        known, model = json.loads(facts.read_text()), load(run / MODEL)
    known["command"] = re.sub(r"--data \S+", "--data DIR", known["command"])
    scores = results.tests.scores(process_of(model))
    results.add(
        settings_of(config),
        {name: known[name] for name in ("command", "steps", "minutes", "parameters")} | {"scores": scores},
    )
