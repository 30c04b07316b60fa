"""The data set of smoke plumes: the same however it is made, and never lost."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from test_simulator import assert_same_density

from aenp.experiments.smoke.simulator import Box, Plumes, simulate
from aenp.experiments.smoke.store import CHUNK, generate, load

SMALL = Box(size=32, obstacle=(16.0, 25.0), obstacle_radius=4.0, steps=3)
NUM = 2 * CHUNK + 5


def density(out: Path) -> np.ndarray:
    return np.asarray(zarr.open_array(out, path="density", mode="r")[:])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("smoke") / "whole.zarr"
    assert list(generate(out, NUM, seed=3, box=SMALL, workers=1)) == [0, CHUNK, 2 * CHUNK, NUM]
    return out


def test_simulations_depend_on_their_numbers(whole: Path) -> None:
    assert_same_density(density(whole)[-5:], simulate(Plumes.draw(range(NUM - 5, NUM), 3), SMALL))
    group = zarr.open_group(whole, mode="r")
    assert np.array_equal(np.asarray(group["radius"]), Plumes.draw(range(NUM), 3).radius)
    parameters = group.attrs["parameters"]
    assert (parameters["seed"], parameters["size"], parameters["inflow_rate"]) == (3, 32, 2.0)
    assert group.attrs["aenp"]


def test_stopped_and_started_again_it_continues(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.zarr"
    work = generate(out, NUM, seed=3, box=SMALL, workers=1)
    next(work), next(work)
    work.close()
    with pytest.raises(ValueError, match="is incomplete"):
        load(out, "train")
    first = zarr.open_array(out, path="density", mode="r+")
    kept = 7.0 + np.asarray(first[:CHUNK])
    first[:CHUNK] = kept  # to see that what is done is not made again
    assert list(generate(out, NUM, seed=3, box=SMALL, workers=1)) == [CHUNK, 2 * CHUNK, NUM]
    assert np.array_equal(density(out)[:CHUNK], kept)
    assert_same_density(density(out)[CHUNK:], density(whole)[CHUNK:])


def test_other_arguments_are_refused(whole: Path) -> None:
    with pytest.raises(ValueError, match=r"was started with seed 3; it cannot be continued with seed 4\."):
        next(generate(whole, NUM, seed=4, box=SMALL))
    with pytest.raises(ValueError, match="workers must be at least 1; got 0"):
        next(generate(whole, NUM, workers=0))
    with pytest.raises(ValueError, match="seed must not be negative; got -1"):
        next(generate(whole, NUM, seed=-1))
    with pytest.raises(ValueError, match="num, the number of simulations, must be at least 1; got 0"):
        next(generate(whole, 0))


def test_splits_are_by_simulation(whole: Path) -> None:
    parts = [load(whole, split) for split in ("train", "validation", "test")]
    assert [len(part) for part in parts] == [55, 7, 7]
    assert np.array_equal(np.concatenate(parts), density(whole))


def test_missing_data_raise_an_error_that_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="aenp data smoke --num 6000 --out"):
        load(tmp_path / "none.zarr", "train")


def test_other_files_and_directories_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    zarr.create_group(tmp_path / "group")
    for name in ("file", "directory", "group"):
        for use in (lambda out: next(generate(out, NUM)), lambda out: load(out, "train")):
            with pytest.raises(ValueError, match=f"{name} is not a data set of smoke plumes"):
                use(tmp_path / name)


def test_a_chunk_that_was_not_written_is_not_marked_as_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: zarr.Array, *_: object) -> None:
        raise OSError("no space left on device")

    out = tmp_path / "full.zarr"
    with monkeypatch.context() as patch:
        patch.setattr(zarr.Array, "__setitem__", full)
        with pytest.raises(OSError, match="no space"):
            list(generate(out, 5, seed=3, box=SMALL, workers=1))
    assert list(generate(out, 5, seed=3, box=SMALL, workers=1)) == [0, 5]
    assert_same_density(density(out), simulate(Plumes.draw(range(5), 3), SMALL))


def test_xarray_opens_it(whole: Path) -> None:
    data = xr.open_zarr(whole, consolidated=False)
    assert data["density"].dims == ("simulation", "cell_x", "cell_y") and data["radius"].dims == ("simulation",)


@pytest.mark.slow
def test_workers_make_the_same_data(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "workers.zarr"
    assert list(generate(out, NUM, seed=3, box=SMALL, workers=2))[-1] == NUM
    assert_same_density(density(out), density(whole))


@pytest.mark.slow
def test_killed_and_started_again_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "killed.zarr"
    words = ["data", "smoke", "--num", str(CHUNK + 2), "--out", str(out), "--workers", "1"]
    command = [sys.executable, "-c", "from aenp.cli import main; main()", *words]
    run = subprocess.Popen(command)
    while not (out / "done/c/0").exists() and run.poll() is None:
        time.sleep(0.01)
    run.send_signal(signal.SIGKILL)
    assert run.wait(600) == -signal.SIGKILL
    subprocess.run(command, check=True, timeout=600)
    assert_same_density(density(out), simulate(Plumes.draw(range(CHUNK + 2), 0)))
