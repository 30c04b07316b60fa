"""Shipping: finished runs are scored and shipped, stopped ones are resumed, and others are refused."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import aenp
from aenp.experiments import Experiment, shipping
from aenp.experiments.shipping import ship, train_and_ship

TOY = '''
import signal

from aenp.data import GibbsTasks
from aenp.evaluation.scores import Stratum
from aenp.experiments.experiment import Experiment, FamilySetup
from aenp.training.recipe import Recipe

class Tasks(GibbsTasks):
    """Tasks of which the second batch stops the run once, if there is a file that says so."""

    def batch(self, size, index, seed):
        if index == 1 and STOP.exists():
            STOP.unlink()
            signal.raise_signal(signal.SIGINT)
        return super().batch(size, index, seed)

class Shipped(Experiment):
    """An experiment from outside the package."""

    name, title, dim_x, norm, domain = "toy_shipped", "A toy", 1, 1, ((-1.0, 1.0),)
    models = (("cnp", "none"),)
    setups = {"cpu": {"cnp": FamilySetup(Recipe(steps=4, batch_size=2), {"dim": 4})}}
    paper, needs_data = {}, True

    def source(self):
        global STOP
        STOP = self.file("stop").parent / "stop now"
        return Tasks(num_context=(1, 4), num_targets=4)

    def validation(self):
        return [], None

    def tests(self, tasks, seed):
        return {"near": [Stratum(self.source().batch(2, number, seed)) for number in range(2, 4)]}

    def figures(self, models, out, seed):
        return []
'''
ENTRY = "[aenp.experiments]\ntoy = toy_shipped\n"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with an experiment, its data, and an empty place for weights; returns the data's path."""
    package = tmp_path / "package"
    facts = package / "toy_shipped-1.0.dist-info"
    facts.mkdir(parents=True)
    (package / "toy_shipped.py").write_text(TOY)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-shipped\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(ENTRY)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stop").touch()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(package)
    monkeypatch.setattr(shipping, "WEIGHTS", tmp_path / "weights")
    import_module("toy_shipped")
    yield tmp_path / "data"
    del Experiment.known["toy_shipped"], sys.modules["toy_shipped"]


def facts_of(run: Path, **changes: object) -> Path:
    """A run whose facts are those of a finished one, except for the changes."""
    run.mkdir(parents=True)
    facts = {"name": "gp/tnp-none", "finished": True, "command": "aenp train gp", "seed": 0} | changes
    (run / "model.json").write_text(json.dumps(facts))
    return run


@pytest.mark.slow
def test_a_stopped_run_is_resumed_and_shipped_when_it_is_finished(toy: Path, tmp_path: Path) -> None:
    """The child process knows the experiment by the package's entry point alone."""
    (toy / "stop now").touch()
    run, weights = tmp_path / "runs/toy_shipped/cnp-none", tmp_path / "weights"
    with pytest.raises(subprocess.CalledProcessError):
        train_and_ship(("toy_shipped",), toy, tmp_path / "runs", jobs=1, tasks=4)
    stopped = json.loads((run / "model.json").read_text())
    assert stopped["steps"] < 4 and not stopped["finished"] and not weights.exists()
    train_and_ship(("toy_shipped/cnp-none",), toy, tmp_path / "runs", tasks=4, seed=3)
    facts = json.loads((weights / "toy_shipped/cnp-none.json").read_text())
    assert (facts["steps"], facts["finished"], facts["threads"], facts["test_seed"]) == (4, True, 1, 3)
    assert "--data DIR" in facts["command"] and str(tmp_path) not in json.dumps(facts)
    assert "&&" not in facts["command"]
    shipped, trained = (
        aenp.load(file) for file in (weights / "toy_shipped/cnp-none.safetensors", run / "model.safetensors")
    )
    for one, other in zip(shipped.parameters(), trained.parameters(), strict=True):
        assert one.equal(other)


def test_a_finished_run_is_not_trained_again(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping.subprocess, "run", lambda *_, **__: pytest.fail("trained again"))
    shipped = list[list[Path]]()
    monkeypatch.setattr(shipping, "ship", lambda experiment, runs, tasks, seed: shipped.append(runs))
    run = facts_of(tmp_path / "runs/toy_shipped/cnp-none")
    train_and_ship(("toy_shipped",), toy, tmp_path / "runs")
    assert shipped == [[run]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finished": False}, "the run in .* is not finished, or took several commands: aenp train gp"),
        ({"command": "aenp train gp && aenp train gp --resume --steps 9"}, "took several commands: aenp train gp &&"),
        ({"name": "smoke/pttnp-none"}, "is a run of smoke/pttnp-none, which is .* model of gp"),
        ({"name": "gp/tnp-none/../../x"}, "is a run of gp/tnp-none/../../x, which is .* model of gp"),
    ],
)
def test_runs_that_cannot_be_shipped_raise(
    changes: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is scored or written, also where others could be shipped."""
    monkeypatch.setattr(shipping, "WEIGHTS", tmp_path / "weights")
    runs = [facts_of(tmp_path / "good"), facts_of(tmp_path / "bad", **changes)]
    with pytest.raises(ValueError, match=message):
        ship(shipping.experiment_class("gp")(), runs, tasks=4, seed=0)
    assert not (tmp_path / "weights").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [("other", "experiment must be one of .*; got 'other'"), ("gp/cnp-none", "gp has the models .*; got 'cnp-none'")],
)
def test_foreign_names_raise(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train_and_ship((name,), runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_run_without_facts_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.json"):
        ship(shipping.experiment_class("gp")(), [tmp_path], tasks=4, seed=0)
