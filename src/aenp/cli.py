"""The command line."""

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import partial, wraps
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from tyro.conf import Positional, arg
from tyro.constructors import PrimitiveConstructorSpec
from tyro.extras import SubcommandApp

from aenp._version import __version__

DESCRIPTION = """Approximately equivariant neural processes.

Examples:
  aenp models                                                   what is shipped
  aenp reproduce gp                                             the paper's tables and figures, from shipped models
  aenp evaluate gp --model tnp --symmetry approx --json         one shipped model's scores
  aenp plot gp --out figures                                    what each model predicts
  aenp train gp --model convcnp --symmetry approx --minutes 10  a model of your own; Ctrl-C saves it
  aenp train gp --model convcnp --symmetry approx --resume      ... and this goes on
  aenp fit t2m.nc --minutes 20 --out runs/own                   a model of your own field or stations
  aenp predict --weights runs/own/model.safetensors --context stations.csv --target grid.nc --out prediction.nc
  aenp families                                                 every architecture, with its equivariance errors

What is wrong is told in one line; with --debug anywhere in the command, a traceback tells where it arose.
"""

ExperimentName = Literal["gp", "smoke", "era5-2d", "era5-points-2d", "era5-4d"]


def number(kind: type[int] | type[float], least: float, most: float, count: int = 1) -> PrimitiveConstructorSpec[Any]:
    """An option that takes so many numbers within these bounds."""

    def read(words: list[str]) -> Any:
        try:
            values = tuple(map(kind, words))
        except ValueError:
            values = ()
        if not values or not all(least <= value <= most for value in values):
            what = f"{count} numbers" if count > 1 else "a whole number" if kind is int else "a number"
            raise ValueError(f"expected {what} from {least} to {most}; got {shlex.join(words)}")
        return values if count > 1 else values[0]

    return PrimitiveConstructorSpec(count, kind.__name__.upper(), read, lambda _: True, lambda value: [str(value)])


SEED, MINUTES = number(int, 0, 2**63 - 1), number(float, 0.001, 10**6)
Seed = Annotated[int, SEED]
Count = Annotated[int, number(int, 1, 10**6)]
Steps = Annotated[int | None, arg(metavar="N"), number(int, 1, 10**9)]
Workers = Annotated[int | None, arg(metavar="N"), number(int, 1, 1024)]
Region = tuple[float, float, float, float]
Data = Annotated[Path | None, arg(metavar="PATH")]
Split = Annotated[str | None, arg(metavar="SPLIT")]
Family = Annotated[str | None, arg(metavar="FAMILY")]
SymmetryName = Annotated[Literal["none", "exact", "approx"] | None, arg(metavar="{none,exact,approx}")]

app = SubcommandApp()
commands: list[str] = []
Command = TypeVar("Command", bound=Callable[..., None])


def command(name: str) -> Callable[[Command], Command]:
    """Makes a function a subcommand; the app binds its arguments, and leaves the call to `main`."""

    def register(function: Command) -> Command:
        commands.append(name)
        app.command(name=name)(wraps(function)(lambda **arguments: partial(function, **arguments)))
        return function

    return register


@command("train")
def train(
    experiment: Positional[ExperimentName],
    model: Family = None,
    symmetry: SymmetryName = None,
    preset: Annotated[Literal["cpu", "paper"] | None, arg(metavar="{cpu,paper}")] = None,
    data: Data = None,
    split: Split = None,
    steps: Steps = None,
    minutes: Annotated[float | None, arg(metavar="MINUTES"), MINUTES] = None,
    out: Annotated[Path | None, arg(metavar="PATH")] = None,
    resume: bool = False,
    learning_rate: Annotated[float | None, arg(metavar="RATE"), number(float, 1e-9, 1000)] = None,
    seed: Annotated[int | None, arg(metavar="SEED"), SEED] = None,
    threads: Workers = None,
    devices: Workers = None,
    num_nodes: Workers = None,
    precision: Annotated[str | None, arg(metavar="PRECISION")] = None,
    oversubscribe: bool = False,
) -> None:
    """Train a model of an experiment. Ctrl-C saves the run, and `--resume` goes on exactly where it was.

    Example: aenp train gp --model convcnp --symmetry approx --minutes 10

    Args:
        experiment: which one.
        model: family of the model, such as tnp or convcnp.
        symmetry: none, exact or approx.
        preset: cpu, small and quick (the default), or paper, its sizes and schedule, for a GPU.
        data: where the experiment's data are, if it needs any.
        split: how its data are split into training and test data, such as paper, if there is a choice.
        steps: budget in steps; by default the preset's.
        minutes: budget in minutes, in place of steps; the learning rate then follows the clock.
        out: directory of the run; by default runs/EXPERIMENT/MODEL-SYMMETRY.
        resume: go on with the run in that directory. Another budget may be given; the learning rate then jumps to
            where it is at that share of the new one.
        learning_rate: by default the preset's.
        seed: of parameters, tasks and dropout; by default 0.
        threads: of each process; by default one for each core.
        devices: processes or GPUs on this machine, which share the work by DDP; by default 1.
        num_nodes: machines; by default 1.
        precision: 32-true (the default), 64-true, 16-mixed or bf16-mixed, as Lightning has them.
        oversubscribe: allow more threads or devices than the machine has cores or GPUs.
    """
    from aenp.runs import key, run
    from aenp.training import is_first_process

    if (model is None or symmetry is None) and not (resume and out is not None):
        raise ValueError("which model? Give --model and --symmetry, such as --model tnp --symmetry approx")
    out = out or Path("runs", experiment, key(str(model), str(symmetry)))
    _check_place(out, is_directory=True)
    asked = {
        "experiment": experiment,
        "model": model,
        "symmetry": symmetry,
        "preset": preset,
        "data": None if data is None else str(data),
        "split": split,
        "steps": steps,
        "minutes": minutes,
        "learning_rate": learning_rate,
        "seed": seed,
        "threads": threads,
        "devices": devices,
        "num_nodes": num_nodes,
        "precision": precision,
    }
    outcome = run(out, {name: value for name, value in asked.items() if value is not None}, resume, oversubscribe)
    if not is_first_process():
        return
    done = f"{outcome.steps} steps in {outcome.minutes:.1f} minutes"
    if outcome.finished:
        print(f"Finished after {done}; --resume with a larger --steps or --minutes trains on. See the model by")
        where = [word for name, value in (("--data", data), ("--split", split)) if value for word in (name, str(value))]
        print("  " + shlex.join(["aenp", "evaluate", experiment, "--weights", str(out / "model.safetensors"), *where]))
    else:
        print(f"Stopped after {done}. This goes on:")
        print("  " + shlex.join(["aenp", "train", experiment, "--out", str(out), "--resume"]))
        sys.exit(130)


@command("evaluate")
def evaluate(
    experiment: Positional[ExperimentName],
    weights: Annotated[Path | None, arg(metavar="PATH")] = None,
    model: Family = None,
    symmetry: SymmetryName = None,
    tasks: Count = 4096,
    seed: Seed = 1,
    data: Data = None,
    split: Split = None,
    json: bool = False,
) -> None:
    """Score one model on an experiment's test tasks, beside the oracles on the same tasks.

    Example: aenp evaluate gp --model tnp --symmetry approx --json

    Args:
        experiment: which one.
        weights: a model that `aenp train` or `aenp.save` wrote; or else
        model: family of a shipped model, such as tnp, and
        symmetry: its symmetry.
        tasks: number of tasks in each test set, rounded up to whole strata.
        seed: of the test tasks.
        data: where the experiment's data are, if it needs any.
        split: how its data are split into training and test data, such as paper, if there is a choice.
        json: print JSON.
    """
    from json import dumps

    from aenp.experiments import EXPERIMENTS, key
    from aenp.reproduction import Evaluation
    from aenp.saving import load
    from aenp.shipped import pretrained

    declared = EXPERIMENTS[experiment](data, split)
    if weights is not None:
        name, loaded = str(weights), load(weights)
    elif model is not None and symmetry is not None:
        declared.check_shipped()
        name = key(model, symmetry)
        loaded = pretrained(f"{experiment}/{name}")
    else:
        raise ValueError("which model? Give --weights, or --model and --symmetry of a shipped one")
    evaluation = Evaluation(declared, {name: loaded}, tasks, seed)
    print(dumps(evaluation.as_json(), indent=1) if json else evaluation.tables())


@command("plot")
def plot(
    experiment: Positional[ExperimentName],
    weights: tuple[Path, ...] = (),
    out: Path = Path("figures"),
    seed: Seed = 1,
    data: Data = None,
    split: Split = None,
) -> None:
    """Draw an experiment's figures.

    Example: aenp plot gp --out figures

    Args:
        experiment: which one.
        weights: models to draw; by default all that are shipped.
        out: directory of the figures.
        seed: of the tasks that are drawn.
        data: where the experiment's data are, if it needs any.
        split: how its data are split into training and test data, such as paper, if there is a choice.
    """
    from aenp.experiments import EXPERIMENTS, shipped_models
    from aenp.saving import load

    _check_place(out, is_directory=True)
    declared = EXPERIMENTS[experiment](data, split)
    models = {str(path): load(path) for path in weights} or shipped_models(declared)
    for file in declared.figures(models, out, seed):
        print(file)


@command("reproduce")
def reproduce(
    experiment: Positional[ExperimentName],
    tasks: Count = 2048,
    seed: Seed = 1,
    out: Annotated[Path | None, arg(metavar="PATH")] = None,
    data: Data = None,
    split: Split = None,
) -> None:
    """Evaluate the shipped models: the paper's tables with its numbers beside ours, and its figures.

    Example: aenp reproduce gp

    Args:
        experiment: which one.
        tasks: number of tasks in each test set, rounded up to whole strata.
        seed: of the test tasks.
        out: directory for the page, its figures and the numbers as JSON; by default results/EXPERIMENT.
        data: where the experiment's data are, if it needs any.
        split: how its data are split into training and test data, such as paper, if there is a choice.
    """
    from aenp.experiments import EXPERIMENTS, shipped_models
    from aenp.reproduction import write

    out = out or Path("results", experiment)
    _check_place(out, is_directory=True)
    declared = EXPERIMENTS[experiment](data, split)
    print(write(declared, shipped_models(declared), out, tasks, seed))


@command("data")
def make_data(
    which: Positional[Literal["smoke"]],
    num: Count,
    out: Path,
    seed: Seed = 0,
    workers: Workers = None,
    scheduler: Annotated[str | None, arg(metavar="ADDRESS")] = None,
) -> None:
    """Make an experiment's data set. Stopped and started again, it goes on where it was.

    Example: aenp data smoke --num 6000 --out smoke.zarr

    Args:
        which: smoke, simulated plumes.
        num: number of simulations; the paper has 25000.
        out: Zarr directory to write.
        seed: of the initial conditions. The data do not depend on the number of workers.
        workers: processes on this machine; by default one for each core.
        scheduler: address of a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers, which
            need aenp and the same file system, are to do the work instead.
    """
    from rich.console import Console
    from rich.progress import Progress

    from aenp.data.smoke_store import generate

    _check_place(out, is_directory=True)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        line = bar.add_task(f"{num} simulations", total=num)
        for done in generate(out, num, seed, workers=workers, scheduler=scheduler):
            bar.update(line, completed=done)
    print(f"{out} has {num} simulations. Train on them by")
    print(f"  aenp train {which} --data {shlex.quote(str(out))} --model convcnp --symmetry approx")


@command("fit")
def fit(
    data: Positional[Path],
    family: str = "convcnp",
    symmetry: Annotated[Literal["none", "exact", "approx"], arg(metavar="{none,exact,approx}")] = "approx",
    minutes: Annotated[float, MINUTES] = 20.0,
    variable: Annotated[str | None, arg(metavar="NAME")] = None,
    region: Annotated[Region | None, arg(metavar="S N W E"), number(float, -360, 360, count=4)] = None,
    period: Annotated[tuple[str, str] | None, arg(metavar="FIRST LAST")] = None,
    steps: Steps = None,
    seed: Seed = 0,
    out: Path = Path("runs/fit"),
    resume: bool = False,
) -> None:
    """Train a model on your own field or stations. Ctrl-C saves it, and `--resume` goes on.

    Example: aenp fit t2m.nc --region 36 47 6 19 --minutes 20 --out runs/italy

    Args:
        data: a field in NetCDF, GRIB or Zarr, or a CSV table of stations with time, latitude, longitude and a value.
        family: convcnp, pttnp, relaxedconvcnp, equivcnp or tnp.
        symmetry: approx learns local effects too, exact is the same everywhere, none knows no symmetry.
        minutes: how long to train.
        variable: name of the values, where there are several.
        region: south, north, west, east in degrees; by default all of the data.
        period: first and last date, such as 2019-03-01 2019-03-15.
        steps: a number of training steps, in place of minutes.
        seed: of parameters, tasks and dropout.
        out: directory for the model, logs and checkpoints.
        resume: go on with the training in that directory, with the same arguments; minutes or steps may be more.
    """
    from aenp.fitting import fit_in

    _check_place(out, is_directory=True)
    outcome = fit_in(out, data, family, symmetry, minutes, variable, region, period, steps, seed, resume)[1]
    done = f"{outcome.steps} steps in {outcome.minutes:.1f} minutes"
    if not outcome.finished:
        again = [word for word in sys.argv[1:] if word != "--resume"]
        print(f"Stopped after {done}. This goes on:\n  {shlex.join(['aenp', *again, '--resume'])}")
        sys.exit(130)
    weights = shlex.quote(str(out / "model.safetensors"))
    print(f"Finished after {done}. Predict by")
    print(f"  aenp predict --weights {weights} --context stations.csv --target grid.nc --out prediction.nc")


@command("predict")
def predict_field(
    weights: Path,
    context: Path,
    target: str,
    out: Path,
    variable: Annotated[str | None, arg(metavar="NAME")] = None,
    plot: Annotated[Path | None, arg(metavar="PNG")] = None,
    coast: Annotated[Path | None, arg(metavar="PATH")] = None,
) -> None:
    """Predict a field from observations, with a model of `aenp fit`: mean, std, the equivariant part, local effects.

    Example: aenp predict --weights runs/fit/model.safetensors --context stations.csv --target 36,47,6,19,0.25
    --out prediction.nc --plot map.png

    Args:
        weights: the model.
        context: observations: a CSV table, or a file with a gridded field that is NaN where nothing was observed.
        target: where to predict: a file with latitudes and longitudes, or south,north,west,east,step in degrees.
        out: NetCDF file to write; a name that ends in .csv makes a table, in .zarr a Zarr directory.
        variable: name of the values in the context; by default that in training, or the only one.
        plot: a map to draw.
        coast: a file with topography or a land–sea mask, for coastlines on the map.
    """
    from aenp.fields import FieldModel, check_replaceable, write

    _check_place(out, is_directory=out.suffix == ".zarr")
    if out.suffix == ".zarr":
        check_replaceable(out)
    if plot is not None:
        _check_place(plot)
    model = FieldModel.load(weights)
    observed = model.observed(context, variable)
    prediction = model.predict(observed, target, "value", progress=sys.stderr.isatty()).load()
    written = []
    if plot is not None:
        from aenp.mapping import map_prediction

        written = [map_prediction(prediction, observed, plot, coast)]
    print(*[write(prediction, out), *written], sep="\n")


@command("models")
def models() -> None:
    """List the shipped models: size, training and scores. `aenp.pretrained(name)` loads one."""
    from aenp.shipped import table

    print(table())


@command("families")
def families(seed: Seed = 0, tasks: Count = 4) -> None:
    """Print every model family at every symmetry, with parameter counts and measured equivariance errors.

    Args:
        seed: of the random parameters and tasks.
        tasks: number of tasks that the errors are measured on.
    """
    from aenp.report import families_page

    print(families_page(seed, tasks))


def main() -> None:
    """Runs a command; what is wrong with it is told in one line, or with --debug by a traceback."""
    words = [word for word in sys.argv[1:] if word != "--debug"]
    if words == ["--version"]:
        print(f"aenp {__version__}")
        return
    try:
        parse(words)()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError, EOFError, ArithmeticError, MemoryError, ModuleNotFoundError, RuntimeError) as error:
        if "--debug" in sys.argv:
            raise
        print(f"aenp: {_message(error)}", file=sys.stderr)
        sys.exit(2)


def parse(words: list[str]) -> Callable[[], None]:
    """The command with its arguments; an error in place of the boxes in which tyro tells what is wrong."""
    asked = [word for word in words[:1] if word in commands]
    if words and not asked and not words[0].startswith("-"):
        raise ValueError(f"there is no command {words[0]!r}; there are {', '.join(commands)}; see aenp --help")
    box = StringIO()
    try:
        with redirect_stderr(box):
            bound: Callable[[], None] = app.cli(prog="aenp", description=DESCRIPTION, args=words)
            return bound
    except SystemExit as stop:
        if stop.code != 2:
            raise
        raise ValueError(f"{_first_paragraph(box.getvalue())}; see {shlex.join(['aenp', *asked, '--help'])}") from None


def _check_place(path: Path, is_directory: bool = False) -> None:
    """An error if no such file or directory can be written, before any work is done."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if there == path and path.is_dir() != is_directory:
        raise OSError(f"{path} is a {'file' if is_directory else 'directory'}; choose another place to write to")
    if there != path and not there.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {there} is a file; choose another place")
    directory = there if there.is_dir() else there.parent
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{path} cannot be written: {directory} is read-only; choose another place")


def _first_paragraph(box: str) -> str:
    """What stands between a box's title and its first rule or empty line."""
    rows = [row.strip(" │╭╮╰╯─") for row in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]]
    text = "\n".join("" if set(row) <= {"-"} else row for row in rows)
    return text.strip().split("\n\n")[0].rstrip(".")


def _message(error: Exception) -> str:
    """What the error says, in one line."""
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}. Install the optional parts: pip install 'aenp[all]'"
    if isinstance(error, MemoryError):
        return f"there is not enough memory; ask for less at a time. {error}"
    text = " ".join(line.strip() for line in str(error).splitlines()) or type(error).__name__
    # What libraries raise when they fail, as on damaged data, and which may not name the file.
    return f"{text}. Is a file damaged? --debug tells where" if isinstance(error, RuntimeError | EOFError) else text
