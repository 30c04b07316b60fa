"""What all tests share. Shapes and types in signatures are checked in tests only."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import config as checks
from jaxtyping import install_import_hook

install_import_hook("aenp", "typechecker.check")
THREADS = os.environ.get("AENP_TEST_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", THREADS)  # of the programs that tests start
torch.set_num_threads(int(THREADS))

import tiny  # noqa: E402
from aenp import cli  # noqa: E402
from skips import pytest_make_collect_report, pytest_runtest_makereport  # noqa: E402, F401

SOURCES = {"tiny": None} | ({} if (real := tiny.real_data()) is None else {"real": real})
"Sources of the climate data of a test; the real data are used if available."
UNCHECKED, NOWHERE = pytest.StashKey[bool](), checks.jaxtyping_disable
"Whether signatures are not checked in a test, or in none."


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Chooses where signatures are checked, which takes a third of the time.

    That is in each test's first case, and where a file has a case, such as a model, for the first time.
    """
    known = set[str]()
    for item in items:
        test, _, case = item.nodeid.partition("[")
        met = {test, f"{item.path}[{case}"}
        item.stash[UNCHECKED] = NOWHERE or met <= known
        known |= met


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    checks.update("jaxtyping_disable", item.stash[UNCHECKED])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells what passed tests have measured."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")


@pytest.fixture(scope="session", params=SOURCES)
def climate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the experiments read: tiny ones and, if available, the real ones."""
    directory = SOURCES[request.param]
    if directory is None:
        tiny.write_all(directory := tmp_path_factory.mktemp("climate"))
    return directory


@pytest.fixture(autouse=True)
def fewer_tasks_held_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick tests of fits score fewer held-out tasks, which takes a quarter less time."""
    if request.path.parent.name != "earth" or request.node.get_closest_marker("slow") is not None:
        return
    from aenp.earth import fitting

    prepare = fitting.prepare

    def prepared(*given: Any, **options: Any) -> Any:
        data = prepare(*given, **options)
        return replace(data, validation=data.validation[:1])

    monkeypatch.setattr(fitting, "prepare", prepared)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the command line with the given words, and returns what it prints."""

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["aenp", *map(str, words)])
        cli.main()
        return capsys.readouterr().out

    return run
