"""The command line."""

import errno
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from functools import partial, wraps
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from aenp._version import __version__

COMMANDS = {
    "models": ("aenp.shipped.commands", "list the shipped models"),
    "reproduce": ("aenp.experiments.commands", "the paper's tables and figures, from shipped models; all in one page"),
    "evaluate": ("aenp.experiments.commands", "score one model"),
    "plot": ("aenp.experiments.commands", "draw an experiment's figures"),
    "train": ("aenp.experiments.commands", "train a model of an experiment; Ctrl-C saves it, --resume continues it"),
    "ablate": ("aenp.experiments.ablation", "train and score models that differ in one choice"),
    "data": ("aenp.experiments.commands", "make an experiment's data set"),
    "interpolate": ("aenp.earth.commands", "predict a field from observations alone, without training"),
    "fit": ("aenp.earth.training_commands", "train a model on your own field or stations"),
    "predict": ("aenp.earth.commands", "predict a field from observations"),
    "suggest": ("aenp.earth.commands", "find where the next stations would tell most"),
    "validate": ("aenp.earth.commands", "compare a model with kriging on data that are held out"),
    "test-symmetry": ("aenp.earth.training_commands", "test whether places differ in your data"),
    "families": ("aenp.evaluation.families", "every architecture, with its equivariance errors"),
    "theory": ("aenp.theory.commands", "the theorems' constructions, with their errors and bounds"),
    "demo": ("aenp.demo.commands", "a page on which you move observations and shipped models answer in the browser"),
}
"The module of each command, imported when the command is called, and what the command does."

PHRASES = {
    r"^Error parsing ([a-z]\w*: )?": "",
    r"^(--\S+): no type matching \{(.*)\} could be instantiated from \[(.*)\]": r"\1 takes \2; got \3",
    r"^invalid choice ('.*') for argument '(.*)'\. Expected one of \((.*?),?\)$": r"\2 must be one of \3; got \1",
}
"What tyro writes about its own matters, and what is meant."

ARGUMENT = re.compile(r"`(\w+)`|\b(\w+)=('[^']*'(?: or '[^']*')*)")
"How messages name an argument in Python, and what it is to be."

HELP = """\
usage: aenp COMMAND [OPTIONS]

Approximately equivariant neural processes.

{commands}

Examples:
  aenp models
  aenp interpolate stations.csv --plot map.png
  aenp demo --open
  aenp predict --weights era5-2d/pttnp-approx --context stations.csv --target 36,47,6,19,0.25 --out p.nc --plot map.png
  aenp fit t2m.nc --minutes 20 --out runs/own
  aenp validate t2m.nc --weights runs/own
  aenp reproduce gp
  aenp train gp --model convcnp --symmetry approx --minutes 10
  aenp train gp --model convcnp --symmetry approx --resume

`aenp COMMAND --help` lists the options of a command, `aenp --version` prints the version. Errors are printed on one
line; add --debug anywhere in the command for a traceback."""


def main() -> None:
    """Runs a command; an error is printed on one line, or with --debug as a traceback."""
    words = [word for word in sys.argv[1:] if word != "--debug"]
    if not words or words[0] in ("-h", "--help"):
        print(HELP.format(commands="\n".join(f"  {name:<13} {what}" for name, (_, what) in COMMANDS.items())))
        return
    if words == ["--version"]:
        print(f"aenp {__version__}")
        return
    warnings.formatwarning = lambda message, *_, **__: f"aenp: {message}\n"
    os.environ.setdefault("MPLBACKEND", "Agg")  # commands draw to files, and may have no screen
    logging.getLogger("cfgrib").setLevel(logging.CRITICAL)  # it logs tracebacks of errors that it also raises
    try:
        parse(words)()
    except KeyboardInterrupt as stop:
        if stop.args:
            print(f"aenp: {stop}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
    except (ValueError, OSError, EOFError, ArithmeticError, MemoryError, ModuleNotFoundError, RuntimeError) as error:
        if "--debug" in sys.argv:
            raise
        print(f"aenp: {_as_typed(_message(error), words[0])}", file=sys.stderr)
        sys.exit(2)


def parse(words: list[str]) -> Callable[[], None]:
    """The command with its arguments; raises an error where tyro would print a box."""
    name, *options = words
    if name not in COMMANDS:
        raise ValueError(f"unknown command {name!r}; choose from {', '.join(COMMANDS)}; see aenp --help")
    read, box = _reader(name), StringIO()
    try:
        with redirect_stderr(box):
            bound: Callable[[], None] = read(args=options)
            return bound
    except SystemExit as stop:
        if stop.code != 2:
            raise
        told = _sentence(box.getvalue(), read)
        raise ValueError(f"{told}{' See' if told.endswith('?') else '; see'} aenp {name} --help") from None


def _reader(name: str) -> Callable[..., Any]:
    """What reads the arguments of a command and returns it with them."""
    import tyro

    function = getattr(import_module(COMMANDS[name][0]), name.replace("-", "_"))
    bind: Callable[..., Any] = wraps(function)(lambda **arguments: partial(function, **arguments))
    markers = tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone
    return partial(tyro.cli, bind, prog=f"aenp {name}", config=markers)


def _sentence(box: str, read: Callable[..., Any]) -> str:
    """What a box says up to its first rule or empty line, in plain words; an unknown option comes first."""
    rows = [row.strip(" │╭╮╰╯─") for row in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]]
    text = "\n".join("" if set(row) <= {"-"} else row for row in rows)
    if unknown := re.search(r"Unrecognized options:\s+(--[\w-]+)", text):
        alike = get_close_matches(unknown[1], _options(read), n=1)
        return f"unknown option {unknown[1]}" + "".join(f"; did you mean {option}?" for option in alike)
    first = " ".join(text.strip().split("\n\n")[0].split()).rstrip(".")
    for theirs, ours in PHRASES.items():
        first = re.sub(theirs, ours, first)
    return first


def _options(read: Callable[..., Any]) -> list[str]:
    """The options on a command's page of help."""
    page = StringIO()
    with redirect_stdout(page), suppress(SystemExit):
        read(args=["--help"])
    return re.findall(r"--[\w-]+", page.getvalue())


def _as_typed(text: str, command: str) -> str:
    """The message with a command's own options where it names arguments of Python: `variable`, likelihood='normal'."""
    if command not in COMMANDS or not ARGUMENT.search(text):
        return text
    known = _options(_reader(command))

    def option(found: re.Match[str]) -> str:
        name = f"--{found[1] or found[2]}".replace("_", "-")
        if name not in known:
            return found[0]
        return name if found[1] else f"{name} {found[3]}".replace("'", "")

    return ARGUMENT.sub(option, text)


def _message(error: Exception) -> str:
    """The error's message on one line."""
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}. Install the optional parts: pip install 'aenp[all]'"
    if isinstance(error, MemoryError):
        return f"there is not enough memory; use less data at a time. {error}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full: {error.strerror}. Free some space, or choose another path"
    text = " ".join(line.strip() for line in str(error).splitlines()) or type(error).__name__
    return text if isinstance(error, OSError) or _is_ours(error) else f"{text} ({_place(error)}; --debug shows more)"


def _is_ours(error: Exception) -> bool:
    """Whether this package raised the error itself, with a message that explains it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return Path(__file__).parent in Path(last.filename).parents and (last.line or "").startswith("raise")


def _place(error: Exception) -> str:
    """The line of this package where an unexpected error occurred, as from a bug or a damaged file."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(__file__).parent in Path(frame.filename).parents]
    return f"in {Path((own or frames)[-1].filename).name}, line {(own or frames)[-1].lineno}"


if __name__ == "__main__":
    main()
