"""What tests of fits share: the quick ones score fewer held-out tasks, which takes a quarter less time."""

from dataclasses import replace
from typing import Any

import pytest

from aenp.earth import fitting
from aenp.earth.training_data import Data


@pytest.fixture(autouse=True)
def fewer_tasks_held_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = fitting.prepare

    def prepared(*given: Any, **options: Any) -> Data:
        data = prepare(*given, **options)
        return replace(data, validation=data.validation[:1])

    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(fitting, "prepare", prepared)
