"""A full disk: one sentence and exit code 2; what was there before stays as it was, and nothing is left behind."""

import errno
import os
import resource
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from test_kills import Job, exit_code, predict, write_model_and_stations

from aenp import TNP, cli, save
from aenp.earth.output import write_prediction
from aenp.experiments import report
from aenp.experiments.gp import Gibbs
from aenp.experiments.smoke.simulator import Plumes, simulate

pytestmark = pytest.mark.slow

TNP_ON_GP = ("train", "gp", "--model", "tnp", "--symmetry", "exact", "--threads", "1")


@dataclass(frozen=True)
class Limited:
    """A job in a process that cannot write files of more than `limit` bytes, as if the disk were full."""

    job: Job
    limit: int

    def __call__(self, out: Path) -> None:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(out.parent.parent / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, self.limit))
        try:
            self.job(out)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()


def files(place: Path) -> dict[str, bytes]:
    """Every file in a directory, and every directory."""
    return {str(file.relative_to(place)): file.read_bytes() if file.is_file() else b"" for file in place.rglob("*")}


def reports_full_disk(job: Job, out: Path, limit: int, before: str = "") -> bool:
    """Whether the job reports in one sentence that the disk is full, and prints nothing but `before`."""
    code = exit_code(Limited(job, limit), out)
    printed, error = ((out.parent.parent / name).read_text() for name in ("stdout", "stderr"))
    lines = error.split("\n")
    return (code, printed) == (2, before) and [line[:6] for line in lines if line] == ["aenp: "] and "disk" in error


def command(out: Path, words: tuple[str, ...]) -> None:
    sys.argv = ["aenp", *words, "--out", str(out)]
    cli.main()


@pytest.mark.parametrize(
    ("name", "last"),
    [("out.nc", "out.nc"), ("out.csv", "out.csv"), ("out.zarr", "out.zarr/mean/zarr.json")],
)
def test_prediction(name: str, last: str, tmp_path: Path) -> None:
    out = tmp_path / "place" / name
    write_model_and_stations(tmp_path, seed=0)
    assert exit_code(predict, out) == 0
    before = files(out.parent)
    write_model_and_stations(tmp_path, seed=1)
    assert reports_full_disk(predict, out, len(before[last]) // 2)
    assert files(out.parent) == before


def test_map(tmp_path: Path) -> None:
    """The prediction that it is of is whole."""
    out, job = tmp_path / "place/out.nc", partial(predict, plot=True)
    write_model_and_stations(tmp_path, seed=0)
    assert exit_code(job, out) == 0
    before = files(out.parent)
    write_model_and_stations(tmp_path, seed=1)
    assert reports_full_disk(job, out, 3 * len(before["map.png"]) // 4, f"{out}\n")
    after = files(out.parent)
    assert after.keys() == before.keys() and after["map.png"] == before["map.png"]
    assert after["out.nc"] != before["out.nc"]


def test_training(tmp_path: Path) -> None:
    out = tmp_path / "place/run"
    assert exit_code(partial(command, words=(*TNP_ON_GP, "--steps", "2")), out) == 0
    before = files(out)
    further = partial(command, words=(*TNP_ON_GP, "--steps", "4", "--resume"))
    assert reports_full_disk(further, out, len(before["last.ckpt"]) // 2)
    after = files(out)
    assert all(after[name] == before[name] for name in ("last.ckpt", "model.safetensors"))
    assert not [name for name in files(tmp_path) if ".part" in name or name.startswith("tmp")]


@pytest.mark.parametrize(("limit", "started"), [(200, False), (1000, True)])
def test_data_generation(limit: int, started: bool, tmp_path: Path) -> None:
    """Nothing is left of a data set that cannot be started; one that was started continues later."""
    out = tmp_path / "place/smoke.zarr"
    out.parent.mkdir()
    job = partial(command, words=("data", "smoke", "--num", "1", "--workers", "1"))
    assert reports_full_disk(job, out, limit)
    assert out.exists() == started and not [name for name in files(out.parent) if ".part" in name]
    assert exit_code(job, out) == 0
    assert np.array_equal(zarr.open_array(out, path="density", mode="r"), simulate(Plumes.draw(range(1), 0)))


class NoScores:
    """An evaluation that takes no time, and differs from every other."""

    def __init__(self, *_: object) -> None:
        self.key = os.urandom(8).hex()

    def as_json(self) -> dict[str, Any]:
        return {"scores": 160_000 * "0"}


def reproduce(out: Path) -> None:
    model = TNP(1, 1, symmetry="exact", attention="spectral", dim=8, heads=2, layers=1)
    Gibbs.shipped_models = lambda _: {"tnp-exact": model}  # type: ignore[method-assign]
    report.Comparison = NoScores  # type: ignore[assignment, misc]
    report.page = lambda *_: 20_000 * "page"
    command(out, ("reproduce", "gp"))


@pytest.mark.parametrize("limit", [1000, 70_000, 100_000], ids=["a figure", "the page", "the scores"])
def test_reproduction(limit: int, tmp_path: Path) -> None:
    out = tmp_path / "place/results"
    assert exit_code(reproduce, out) == 0
    before = files(out.parent)
    assert reports_full_disk(reproduce, out, limit)
    assert files(out.parent) == before


def test_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, content: bytes) -> None:
        with self.open("wb") as file:
            file.write(content[:100])
        raise OSError(errno.ENOSPC, "no space left on device")

    model = TNP(1, 1, attention="spectral", dim=8, heads=2, layers=1)
    save(model, tmp_path / "model.safetensors")
    before = files(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left"):
        save(model, tmp_path / "model.safetensors")
    assert files(tmp_path) == before


def test_a_store_that_cannot_be_put_in_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(errno.EIO, "input/output error")
        return rename(self, target)

    old, new = (xr.Dataset({"mean": ("x", [value])}) for value in (1.0, 2.0))
    write_prediction(old, tmp_path / "out.zarr")
    before = files(tmp_path)
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="input/output error"):
        write_prediction(new, tmp_path / "out.zarr")
    assert files(tmp_path) == before
