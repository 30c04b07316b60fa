"""The Makefile: what each target would run."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from functools import wraps
from pathlib import Path

import pytest
import tyro

from aenp.cli import parse
from aenp.experiments.shipping import train_and_ship

ROOT = Path(__file__).parents[1]
INSTALL = [
    "test -x .venv/bin/python || python3 -m venv .venv",
    ".venv/bin/python -m pip install -q -c constraints.txt -e '.[all]'",
    "touch .venv/installed",
]
SMOKE = ".venv/bin/aenp data smoke --num 6000 --out smoke.zarr"
SHIP = ".venv/bin/python -m aenp.experiments.shipping"
COMMANDS = {
    "reproduce": [".venv/bin/aenp reproduce"],
    "reproduce DATA=climate": [".venv/bin/aenp reproduce --data climate"],
    "test": ['.venv/bin/python -m pytest -q -n 2 --dist worksteal -m "not slow"'],
    "test-slow": ["JAXTYPING_DISABLE=1 .venv/bin/python -m pytest -q -n 2 --dist worksteal -m slow"],
    "lint": [".venv/bin/ruff check .", ".venv/bin/ruff format --check .", ".venv/bin/mypy"],
    "docs": [".venv/bin/python -m sphinx -q -W --keep-going docs docs/_build/html"],
    "families": [".venv/bin/aenp families > docs/models.md"],
    "benchmark": [".venv/bin/python -m benchmarks"],
    "weights": [SMOKE, SHIP],
    "weights DATA=climate": [SMOKE, f"{SHIP} --data climate"],
    "clean": [
        "rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache docs/_build docs/generated"
    ],
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing is installed."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "src/aenp/nn/kernels.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def dry_run(folder: Path, target: str) -> list[str]:
    """The commands that `make` would run, whatever variables of make the tests themselves run with."""
    clean = {k: v for k, v in os.environ.items() if k not in ("DATA", "PYTHON", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "-n", *target.split()]
    result = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=600)
    assert result.returncode == 0, result.stderr
    return [line.strip() for line in result.stdout.splitlines()]


def test_every_target_is_tested() -> None:
    rules = re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(rules) == {target.split()[0] for target in COMMANDS}


@pytest.mark.parametrize("target", COMMANDS)
def test_targets_install_first_and_run_their_commands(target: str, checkout: Path) -> None:
    assert dry_run(checkout, target) == (COMMANDS[target] if target == "clean" else INSTALL + COMMANDS[target])


def test_an_installation_is_not_repeated(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "installed").touch()
    assert dry_run(checkout, "reproduce") == COMMANDS["reproduce"]
    newer = (checkout / ".venv" / "installed").stat().st_mtime + 10
    os.utime(checkout / "constraints.txt", (newer, newer))
    assert dry_run(checkout, "reproduce") == INSTALL + COMMANDS["reproduce"]


@pytest.mark.parametrize("command", dict.fromkeys(command for commands in COMMANDS.values() for command in commands))
def test_commands_have_valid_options(command: str) -> None:
    program, *words = shlex.split(command.split(" > ")[0])
    if program == ".venv/bin/aenp":
        parse(words)
    elif words[:1] == ["-m"]:
        assert importlib.util.find_spec(words[1])
    if command.startswith(SHIP):
        tyro.cli(wraps(train_and_ship)(lambda **_: None), args=words[2:])
