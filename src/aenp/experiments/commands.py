"""The commands of the experiments: train, evaluate, plot, reproduce, data."""

import json as json_
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import Progress
from tyro.conf import Positional, arg

from aenp.arguments import Count, File, Flag, OptionalCount, Seed, SymmetryName, Text, check_place, optional
from aenp.experiments import Experiment, experiment_class, experiments, key
from aenp.experiments.comparison import Comparison
from aenp.experiments.experiment import process_of
from aenp.experiments.overview import write_overview
from aenp.experiments.report import write_report
from aenp.experiments.runs import ExperimentName, RunConfig, resumed, train_model
from aenp.shipped import find_model
from aenp.training.directory import MODEL, is_first_process, told_if_interrupted


@dataclass(frozen=True)
class Choice:
    """Which experiment, on which data.

    Args:
        experiment: name of the experiment.
        data: where its data are, if it needs any.
        split: how its data are split into training and test data, such as paper; by default as for the shipped models.
    """

    experiment: Positional[ExperimentName]
    data: File = None
    split: Text = None

    def declared(self) -> Experiment:
        return experiment_class(self.experiment)(self.data, self.split)


DataOptions = Annotated[Choice, arg(name="data")]
"The choice, under its title in the help."
OptionalName = Annotated[
    str | None,
    arg(
        metavar="EXPERIMENT",
        help_behavior_hint="",
        help=f"one of {', '.join(experiments())}. By default all, with one page of everything, report.html.",
    ),
]
GENERATED = [name for name, each in experiments().items() if "generate" in vars(each)]
GeneratedName = Annotated[str, arg(metavar="EXPERIMENT", help=f"one of {', '.join(GENERATED)}.")]


def train(
    config: Annotated[RunConfig, arg(name="training")],
    out: File = None,
    resume: Flag = False,
    oversubscribe: Flag = False,
) -> None:
    """Train a model of an experiment. Ctrl-C saves the run, and `--resume` continues it exactly.

    Example: aenp train gp --model convcnp --symmetry approx --minutes 10

    Args:
        out: directory of the run; by default runs/EXPERIMENT/MODEL-SYMMETRY.
        resume: continue the run in that directory; if another budget is given, the learning rate follows that one.
        oversubscribe: allow more devices or threads than this machine has.
    """
    out = out or Path("runs", config.experiment, config.name)
    check_place(out, is_directory=True)
    given = {word.partition("=")[0][2:].replace("-", "_") for word in sys.argv if word.startswith("--")}
    with told_if_interrupted(out):
        outcome = train_model(out, config, resume, oversubscribe, given)
    if not is_first_process():
        return
    config = resumed(out, config)[0]
    done = f"{outcome.steps} steps in {outcome.minutes:.1f} minutes"
    if not outcome.finished:
        print(f"Stopped after {done}. Resume with:")
        print("  " + shlex.join(["aenp", "train", config.experiment, "--out", str(out), "--resume"]))
        sys.exit(130)
    print(f"Finished after {done}; --resume with a larger --steps or --minutes trains further. Evaluate with:")
    where = [word for name in ("data", "split") if (value := getattr(config, name)) for word in (f"--{name}", value)]
    print("  " + shlex.join(["aenp", "evaluate", config.experiment, "--weights", str(out / MODEL), *where]))


def evaluate(
    choice: DataOptions,
    weights: Text = None,
    model: Text = None,
    symmetry: SymmetryName = None,
    tasks: Count = 4096,
    seed: Seed = 1,
    json: Flag = False,
) -> None:
    """Score one model on an experiment's test tasks, beside the oracles on the same tasks.

    Example: aenp evaluate gp --model tnp --symmetry approx --json

    Args:
        weights: a model that `aenp train` or `aenp.save` wrote, or a run's directory, or the name of a shipped one.
        model: family of a shipped model, such as tnp, in place of weights.
        symmetry: symmetry of that model.
        tasks: number of tasks in each test set, rounded up to whole strata.
        seed: random seed of the test tasks.
        json: print JSON.
    """
    declared = choice.declared()
    if weights is None:
        if model is None or symmetry is None:
            raise ValueError("no model given; pass --weights, or --model and --symmetry of a shipped one")
        declared.check_shipped()
        weights = f"{choice.experiment}/{key(model, symmetry)}"
    name = weights if model is None else weights.removeprefix(f"{choice.experiment}/")
    scored = Comparison(declared, {name: process_of(find_model(weights))}, tasks, seed)
    print(json_.dumps(scored.as_json(), indent=1) if json else scored.tables())


def plot(
    choice: DataOptions,
    weights: Annotated[tuple[str, ...], optional()] = (),
    out: Path = Path("figures"),
    seed: Seed = 1,
) -> None:
    """Draw an experiment's figures.

    Example: aenp plot gp --out figures

    Args:
        weights: models to draw: files, runs' directories or names; by default all that are shipped.
        out: directory of the figures.
        seed: random seed of the tasks in the figures.
    """
    check_place(out, is_directory=True)
    declared = choice.declared()
    models = {name: process_of(find_model(name)) for name in weights} or declared.shipped_models()
    for file in declared.figures(models, out, seed):
        print(file)


def reproduce(
    experiment: Positional[OptionalName] = None,
    data: File = None,
    split: Text = None,
    tasks: Count = 2048,
    seed: Seed = 1,
    out: File = None,
) -> None:
    """Evaluate the shipped models: the paper's tables with its numbers beside ours, and its figures.

    Stopped and started again, it continues where it left off.

    Example: aenp reproduce gp

    Args:
        experiment: name of the experiment; by default all.
        data: where the data are, for the experiments that need any; without it, they are skipped.
        split: how an experiment's data are split into training and test data; by default as for the shipped models.
        tasks: number of tasks in each test set, rounded up to whole strata.
        seed: random seed of the test tasks.
        out: directory for pages, figures and the numbers as JSON; by default results, or results/EXPERIMENT.
    """
    out = out or Path("results", experiment or "")
    check_place(out, is_directory=True)
    if experiment is not None:
        declared = experiment_class(experiment)(data, split)
        print(write_report(declared, declared.shipped_models(), out, tasks, seed).page)
        return
    if split is not None:
        raise ValueError(f"--split is for a single experiment, such as `aenp reproduce era5-2d`; got --split {split}")
    print(write_overview(data, out, tasks, seed))
    print(out / "report.html")


def data(
    experiment: Positional[GeneratedName],
    num: Count,
    out: Path,
    seed: Seed = 0,
    workers: OptionalCount = None,
    scheduler: Annotated[str | None, optional("ADDRESS")] = None,
) -> None:
    """Make an experiment's data set. Stopped and started again, it continues where it left off.

    Example: aenp data smoke --num 6000 --out smoke.zarr

    Args:
        experiment: name of the experiment.
        num: number of simulations; the paper has 25000.
        out: Zarr directory to write.
        seed: random seed of the initial conditions. The data do not depend on the number of workers.
        workers: processes on this machine; by default one for each core.
        scheduler: a Dask scheduler, such as tcp://10.0.0.1:8786, for workers that have aenp and the same file system.
    """
    declared = experiment_class(experiment)
    check_place(out, is_directory=True)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(f"{num} simulations", total=num)
        for done in declared.generate(out, num, seed, workers, scheduler):
            bar.update(line, completed=done)
    print(f"{out} has {num} simulations. Train on them with:")
    family, symmetry = min(declared.models)
    print(f"  aenp train {experiment} --data {shlex.quote(str(out))} --model {family} --symmetry {symmetry}")
