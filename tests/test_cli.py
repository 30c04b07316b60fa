"""The command line: what it prints, what it writes, and its error messages."""

import json
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from aenp import cli
from aenp.experiments import experiments, key
from aenp.experiments.commands import GENERATED
from aenp.experiments.gp.experiment import Gibbs
from aenp.shipped import commands, shipped
from aenp.training.loop import Loop

TNP = ("train", "gp", "--model", "tnp", "--symmetry", "exact")


@pytest.fixture(autouse=True)
def few_validation_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation of the 1-D experiment on four tasks, because its oracles take long."""
    tasks = [Gibbs().source().batch(4, 0, seed=0)]
    monkeypatch.setattr(Gibbs, "validation", lambda self: (tasks, 0.0))


@pytest.fixture
def few_strata(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test tasks of the 1-D experiment with three sizes of context, because its oracles take long."""
    monkeypatch.setattr("aenp.experiments.gp.experiment.SIZES", (1, 5, 30))


@pytest.mark.parametrize("command", ["train", "evaluate", "plot", "reproduce"])
def test_help_has_an_example(command: str, call: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        call(command, "--help")
    assert stop.value.code == 0
    assert f"aenp {command} gp" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_has_no_leftovers_of_the_code(
    command: str, call: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as defaults that mean nothing to a user, and names of parameters as titles."""
    with pytest.raises(SystemExit, match="0"):
        call(command, "--help")
    told = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
    assert not re.search(r"default: (None|False)?\)|--no-|(config|choice|options) options", told)
    assert not re.search(r"--(seed|threads|num-nodes|learning-rate) [A-Z]+ (of|machines|the largest)\b", told)


@pytest.mark.parametrize("command", ["train", "evaluate", "plot", "reproduce", "ablate"])
def test_help_names_every_experiment(
    command: str, call: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        call(command, "--help")
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"one of {', '.join(experiments())}." in told


def test_help_of_data_names_the_experiments_that_make_them(
    call: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        call("data", "--help")
    assert GENERATED == ["smoke"] and "one of smoke." in capsys.readouterr().out


def test_models_lists_what_is_shipped(call: Callable[..., str]) -> None:
    assert "gp/tnp-approx" in call("models")


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_models_has_whole_names_and_aligned_numbers(
    columns: int, call: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", call("models")).splitlines()
    rows = {line.split()[0]: line for line in lines if "/" in line}
    assert list(rows) == list(shipped()) and max(map(len, lines)) <= max(columns, 80)
    end = max(line.find("parameters") for line in lines) + len("parameters")
    assert all(row[:end].split()[1] == f"{shipped()[name]['parameters']:,}" for name, row in rows.items())


@pytest.mark.usefixtures("few_strata")
def test_evaluate_as_json(call: Callable[..., str]) -> None:
    result = json.loads(call("evaluate", "gp", "--model", "tnp", "--symmetry", "approx", "--tasks", 8, "--json"))
    scores = result["models"]["tnp-approx"]
    for test in ("in distribution", "out of distribution"):
        assert result["tasks"][test] == 9
        assert set(scores[test]) >= {"loglik", "context_loglik", "crps", "coverage_50", "coverage_90", "coverage_95"}
        assert set(scores[test]["gap"]) == set(result["oracles"])
        assert set(scores[test]["loglik"]) == {"mean", "standard_error"}


@pytest.mark.usefixtures("few_strata")
def test_train_stop_and_evaluate_own_weights(call: Callable[..., str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    train = ("train", "gp", "--model", "tnp", "--symmetry", "exact", "--threads", 1, "--out", out)
    assert "Finished after 2 steps" in call(*train, "--steps", 2)
    assert "Finished after 3 steps" in call("train", "gp", "--out", out, "--resume", "--steps", 3)
    facts = json.loads((out / "model.json").read_text())
    assert (facts["name"], facts["steps"], facts["finished"]) == ("gp/tnp-exact", 3, True)
    first, second = facts["command"].split(" && ")
    assert first == "aenp train gp --model tnp --symmetry exact --steps 2 --threads 1"
    assert second == f"aenp train gp --out {out} --resume --steps 3"
    page = call("evaluate", "gp", "--weights", out / "model.safetensors", "--tasks", 6)
    assert "TNP (T)" in page and "Bayes-optimal" in page


def test_a_run_without_a_checkpoint_starts_again(
    call: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A run that ended before its first checkpoint can be started again, and resumed from nothing."""
    settings = {"experiment": "gp", "model": "tnp", "symmetry": "exact", "steps": 1, "threads": 1}
    (tmp_path / "run.json").write_text(json.dumps({"settings": settings, "commands": ["aenp train gp"]}))
    assert "Finished after 1 steps" in call("train", "gp", "--out", tmp_path, "--resume")
    assert (tmp_path / "model.safetensors").exists()
    with pytest.raises(SystemExit, match="2"):
        call("train", "gp", "--out", tmp_path, "--resume", "--model", "convcnp", "--symmetry", "exact")
    assert "has model=tnp; it cannot be resumed with model=convcnp" in capsys.readouterr().err
    (tmp_path / "run.json").write_text(json.dumps({"settings": settings | {"seed": 3}, "commands": ["aenp train gp"]}))
    for seed in (("--seed", "0"), ("--seed=0",)):
        with pytest.raises(SystemExit, match="2"):
            call("train", "gp", "--out", tmp_path, "--resume", *seed)
        assert "has seed=3; it cannot be resumed with seed=0" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        call(*TNP, "--out", tmp_path)
    assert "already holds a run" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_saves_and_prints_how_to_resume(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from aenp.cli import main; main()", *TNP, "--threads", "1", "--out", "my run"]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 600
    while not list(tmp_path.glob("my run/logs/tensorboard/events*")):
        assert run.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    run.send_signal(signal.SIGINT)
    printed, _ = run.communicate(timeout=600)
    assert run.returncode == 130
    assert "Resume with:\n  aenp train gp --out 'my run' --resume" in printed
    assert json.loads((tmp_path / "my run/model.json").read_text())["finished"] is False


def test_a_second_ctrl_c_tells_what_was_saved(
    call: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It stops within a step: at first there is nothing to continue, and later the state saved before."""

    def interrupted(self: Loop, *_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    words, message = (*TNP, "--threads", 1, "--out", tmp_path), "nothing was saved yet; start it again"
    for steps, further in ((2, ()), (3, ("--resume",))):
        with monkeypatch.context() as patch:
            patch.setattr(Loop, "training_step", interrupted)
            with pytest.raises(SystemExit, match="130"):
                call(*words, "--steps", steps, *further)
        assert capsys.readouterr().err.endswith(f"aenp: stopped at once: {message}\n")
        call(*words, "--steps", steps, *further)
        message = f"{tmp_path} has what was saved before; add --resume to continue from there"


def test_plot(call: Callable[..., str], tmp_path: Path) -> None:
    files = call("plot", "gp", "--weights", "gp/tnp-approx", "--out", tmp_path).split()
    assert [Path(file).name for file in files] == [
        "change_point.png",
        "short_lengthscale.png",
        "long_lengthscale.png",
    ]
    assert all(Path(file).stat().st_size > 20_000 for file in files)


@pytest.mark.usefixtures("few_strata")
def test_reproduce_writes_page_numbers_and_figures(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Gibbs, "models", (("tnp", "exact"), ("tnp", "approx"), ("convcnp", "approx")))
    page = call("reproduce", "gp", "--tasks", 6, "--out", tmp_path)
    assert (tmp_path / "README.md").read_text() == page.removesuffix("\n")
    assert list(json.loads((tmp_path / "results.json").read_text())["models"]) == [
        key(*model) for model in Gibbs.models
    ]
    for label in ("TNP (T~)", "ConvCNP (T~)", "ground truth"):
        assert f"| {label} |" in page
    assert "-0.406 ± 0.004" in page
    assert len(list(tmp_path.glob("*.png"))) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "gp"), "no model given; pass --model and --symmetry"),
        (("train", "gp", "--model", "cnp", "--symmetry", "none"), "gp has the models tnp-none"),
        (("train", "gp", "--model", "tnp", "--symmetry", "exact", "--resume"), "no run to resume"),
        ((*TNP, "--steps", "0"), "steps must be between 1 and 1e+09; got 0"),
        ((*TNP, "--minutes", "-1"), "minutes must be between 0.001 and 1e+06; got -1.0; see aenp train --help"),
        ((*TNP, "--steps", "1", "--minutes", "1"), "in steps or in minutes"),
        ((*TNP, "--threads", "1024"), "--oversubscribe allows it"),
        ((*TNP, "--devices", "0"), "devices must be between 1 and 65536; got 0"),
        ((*TNP, "--precision", "bf16-true"), "precision must be one of 32-true"),
        (("reproduce", "gp", "--tasks", "-7"), "--tasks: expected a whole number from 1"),
        (("data", "gp", "--num", "1", "--out", "x"), "gp has no data set to make; `aenp data --help` lists"),
        (("evaluate", "gp"), "no model given; pass --weights"),
        (("evaluate", "gp", "--weights", "nothing.safetensors"), "nothing.safetensors"),
        (("evaluate", "gp", "--model", "cnp", "--symmetry", "none"), "no model 'gp/cnp-none' is shipped"),
    ],
)
def test_errors_are_one_line(
    words: tuple[str, ...],
    message: str,
    call: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        call(*words)
    printed, error = capsys.readouterr()
    assert (stop.value.code, printed) == (2, "")
    assert error.startswith("aenp: ") and message in error and len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", "t.csv"), "t.csv has several columns of values, a, b; choose one with --variable\n"),
        (("fit", "t.csv", "--variable", "c"), "choose --variable from a, b\n"),
        (("fit", "t.csv", "--bounds", "0", "1"), "bounds are for --likelihood bounded; got"),
        (("fit", "t.csv", "--family", "convcnp", "--time", "2 days"), "needs --family pttnp or tnp; got"),
    ],
)
def test_errors_name_options_as_they_are_typed(
    words: tuple[str, ...],
    message: str,
    call: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("latitude,longitude,a,b\n1,2,3,4\n2,3,4,5\n3,2,4,5\n")
    with pytest.raises(SystemExit):
        call(*words)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("coloured", [False, True])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tran", "gp"), "unknown command 'tran'; choose from models, reproduce, evaluate, plot, train, ablate, data"),
        (("--tran",), "unknown command '--tran'"),
        (("plot", "gp", "--seeds", "1"), "aenp: unknown option --seeds; did you mean --seed? See aenp plot --help"),
        (("predict", "--weight", "x"), "aenp: unknown option --weight; did you mean --weights? See aenp predict"),
        (("fit", "x", "--minute=3"), "aenp: unknown option --minute; did you mean --minutes? See aenp fit --help"),
        (("plot", "gp", "--zzz"), "aenp: unknown option --zzz; see aenp plot --help"),
        ((*TNP, "--steps", "0"), "aenp: steps must be between 1 and 1e+09; got 0; see aenp train --help"),
        (("data", "smoke", "--num", "1"), "Missing from aenp data: --out PATH Zarr directory to write. (required)"),
        (
            ("data", "smoke", "--out", "x", "--num"),
            "Missing value for argument '--num'. Expected 1 values; see aenp data",
        ),
        (("train", "pg"), f"experiment must be one of {', '.join(experiments())}; got 'pg'"),
        (
            ("fit", "x", "--region", "1", "2", "3", "x"),
            "aenp: --region: expected 4 numbers from -360 to 360; got 1 2 3 x; see aenp fit --help",
        ),
        (
            ("fit", "x", "--region", "36", "47", "-6"),
            "aenp: --region: expected 4 numbers from -360 to 360; got 36 47 -6; see aenp fit --help",
        ),
        (("fit", "x", "--period", "2019"), "aenp: --period takes STR STR; got '2019'; see aenp fit --help"),
    ],
)
def test_parsing_errors_are_plain_text(
    words: tuple[str, ...],
    message: str,
    coloured: bool,
    call: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: coloured)
    with pytest.raises(SystemExit, match="2"):
        call(*words)
    printed = capsys.readouterr().err
    assert printed.startswith("aenp: ") and message in printed and len(printed.splitlines()) == 1
    assert "\033" not in printed and "\u2502" not in printed


@pytest.mark.parametrize(
    ("words", "out", "message"),
    [
        ("train gp --model none --symmetry exact", "file", "file is a file; choose another path"),
        ("plot gp --weights none", "file", "file is a file; choose another path"),
        ("reproduce gp --split none", "file/results", "file/results cannot be written: .*/file is a file; choose"),
        ("data smoke --num 1 --scheduler none", "file", "file is a file; choose another path"),
        ("fit none", "file", "file is a file; choose another path"),
        (
            "predict --weights none --context none --target none",
            "directory.zarr",
            "is not a Zarr store, so it is not repl",
        ),
        ("predict --weights none --context none --target none", "directory.nc", "directory.nc is a directory; choose"),
        ("predict --weights none --context none --target none --plot m.xyz", "p.nc", "m.xyz cannot be drawn; choose"),
    ],
)
def test_outputs_are_checked_before_any_work(
    words: str, out: str, message: str, call: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The other arguments are invalid too, but are checked later."""
    (tmp_path / "file").touch()
    for name in ("directory.zarr", "directory.nc"):
        (tmp_path / name).mkdir()
    with pytest.raises(SystemExit, match="2"):
        call(*words.split(), "--out", tmp_path / out)
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("words", [("--debug", "evaluate", "gp"), ("evaluate", "gp", "--debug")])
def test_debug_shows_the_traceback(words: tuple[str, ...], call: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match="no model given; pass --weights"):
        call(*words)


def test_bugs_are_not_reported_as_user_errors(call: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "shipped", lambda: 1 + "1")  # type: ignore[operator]
    with pytest.raises(TypeError):
        call("models")


def test_an_unexpected_error_names_its_location(
    call: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> dict[str, object]:
        return {"a": int("b")}

    monkeypatch.setattr(commands, "shipped", broken)
    with pytest.raises(SystemExit, match="2"):
        call("models")
    assert re.search(
        r"invalid literal .*'b' \(in commands\.py, line \d+; --debug shows more\)", capsys.readouterr().err
    )


def test_a_warning_is_one_line(call: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    call("models")
    assert warnings.formatwarning(UserWarning("told"), UserWarning, "file.py", 1) == "aenp: told\n"
