"""The tutorials run from top to bottom, trained for a few steps, and leave labelled figures for the gallery."""

import os
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from aenp.experiments import Experiment
from aenp.process import NeuralProcess

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.py"))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A budget of a few steps, an empty directory, and no trace of the classes that a tutorial defines."""
    monkeypatch.setenv("AENP_TUTORIAL_STEPS", "3")
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("Agg")
    pyplot.close("all")
    yield
    pyplot.close("all")
    for registry in (NeuralProcess.families, Experiment.known):
        for name in [name for name, kind in registry.items() if kind.__module__ == "__main__"]:
            del registry[name]


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_a_tutorial_runs_and_labels_its_figures(
    script: Path, short: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out, "a tutorial prints what comes out"
    assert not os.listdir(), "it leaves no files behind"
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
    assert figures, "its figures stay open"
    for figure in figures:
        for axis in filter(Axes.get_visible, figure.axes):
            assert is_labelled(axis), f"axes without labels: {axis.get_title()}"


def is_labelled(axis: Axes) -> bool:
    """Whether both axes have labels, their own or those of the axes that they are shared with; a colour bar has one."""
    if hasattr(axis, "_colorbar"):
        return bool(axis.get_ylabel() or axis.get_xlabel())
    across = axis.get_shared_x_axes().get_siblings(axis)
    along = axis.get_shared_y_axes().get_siblings(axis)
    return any(each.get_xlabel() for each in across) and any(each.get_ylabel() for each in along)


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_a_tutorial_begins_with_its_title(script: Path) -> None:
    title, line, *_ = script.read_text().removeprefix('"""\n').splitlines()
    assert line == "=" * len(title)
