"""What all tests share. Shapes and types in signatures are checked in every test, and only there."""

import os
import sys
from collections.abc import Callable

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook("aenp", "typechecker.check")
torch.set_num_threads(int(os.environ.get("AENP_TEST_THREADS", "1")))

from aenp import cli  # noqa: E402


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the command line with the given words, and gives what it prints."""

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["aenp", *map(str, words)])
        cli.main()
        return capsys.readouterr().out

    return run
