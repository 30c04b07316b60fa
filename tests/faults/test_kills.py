"""Interruptions: what is killed, at any moment, leaves no half-written file, and started again it ends the same."""

import os
import resource
import runpy
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
import zarr

from aenp import PTTNP, cli, load
from aenp.data.smoke import Box
from aenp.data.smoke_store import CHUNK, generate
from aenp.fields import FieldModel, Frame

pytestmark = pytest.mark.slow

KILLS = 20
TRAINING = Path(__file__).parent.parent / "training_script.py"
SMALL = Box(size=32, obstacle=(16.0, 25.0), obstacle_radius=4.0, inflow_y=3.0, steps=3)
CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
WRITING = os.O_WRONLY | os.O_RDWR

FORKS = get_context("forkserver")
"Processes come from one that has imported everything, which takes longer than what they do."
FORKS.set_forkserver_preload(["pytest", "aenp.cli", "aenp.mapping", "aenp.training", "aenp.data.smoke_store", "netCDF4"])
Job = Callable[[Path], None]


@dataclass(frozen=True)
class Kill:
    """How a process dies: by a signal at or soon after its n-th change of a file, or within a write, at some byte."""

    change: int
    delay: float
    signal: int
    byte: int | None

    @staticmethod
    def draw(random: Random, changes: int, size: int) -> "Kill":
        number = random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGXFSZ))
        byte = random.randrange(size) if number == signal.SIGXFSZ else None
        return Kill(random.randint(1, changes), random.choice((0.0, random.uniform(0, 0.05))), number, byte)

    def prepare(self, place: Path) -> None:
        """Makes this process die so, when it changes what is in `place`."""
        if self.byte is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.byte, self.byte))
            return
        changes = 0

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal changes
            if event not in CHANGES or not str(arguments[0]).startswith(str(place)):
                return
            changes += event != "open" or bool(arguments[2] & WRITING)
            if changes == self.change:
                changes += 1
                self.strike()

        sys.addaudithook(watch)

    def strike(self) -> None:
        if not self.delay:
            os.kill(os.getpid(), self.signal)
        timer = threading.Timer(self.delay, os.kill, (os.getpid(), self.signal))
        timer.daemon = True
        timer.start()


def do(job: Job, out: Path, kill: Kill | None) -> None:
    """Does the job, until it is killed."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    if kill is not None:
        kill.prepare(out.parent)
    try:
        job(out)
    except KeyboardInterrupt:
        sys.exit(130)


def exit_code(job: Job, out: Path, kill: Kill | None = None) -> int:
    """How a process ended that did the job."""
    process = FORKS.Process(target=do, args=(job, out, kill))
    process.start()
    process.join(600)
    assert process.exitcode is not None, "the process does not end"
    return process.exitcode


def killed(job: Job, name: str, place: Path, changes: int, size: int, check: Callable[[Path], None]) -> list[Path]:
    """What jobs have made that were started again after each kill, so many that there were enough kills."""
    random, codes, results = Random(0), list[int](), list[Path]()
    while len(codes) < KILLS:
        out = place / str(len(results)) / name
        out.parent.mkdir()
        while True:
            kill = Kill.draw(random, changes, size) if len(codes) < KILLS else None
            code = exit_code(job, out, kill)
            if code == 0:
                break
            assert kill is not None and code in (-kill.signal, 130)
            codes.append(code)
            check(out)
        results.append(out)
    assert {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGXFSZ, 130} <= set(codes)
    return results


def train(out: Path) -> None:
    resume = ["resume"] if (out / "last.ckpt").exists() else []
    sys.argv = [str(TRAINING), str(out), "12", *resume]
    runpy.run_path(str(TRAINING), run_name="__main__")


def test_training(tmp_path: Path) -> None:
    def check(out: Path) -> None:
        if (out / "last.ckpt").exists():
            assert torch.load(out / "last.ckpt", weights_only=True)["global_step"] > 0
        if (out / "model.safetensors").exists():
            load(out / "model.safetensors")

    whole = tmp_path / "whole"
    assert exit_code(train, whole) == 0
    size = (whole / "last.ckpt").stat().st_size
    for out in killed(train, "run", tmp_path, 40, size, check):
        assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def make_data(out: Path) -> None:
    list(generate(out, 3 * CHUNK + 5, seed=3, box=SMALL, workers=1))


def arrays(out: Path) -> dict[str, np.ndarray]:
    group = zarr.open_group(out, mode="r")
    return {name: np.asarray(array) for name, array in group.arrays()}


def test_data_generation(tmp_path: Path) -> None:
    assert exit_code(make_data, tmp_path / "whole.zarr") == 0
    whole = arrays(tmp_path / "whole.zarr")

    def check(out: Path) -> None:
        if out.exists():
            part = arrays(out)
            assert part.keys() == whole.keys()
            for number in np.flatnonzero(part["done"]):
                rows = slice(number * CHUNK, (number + 1) * CHUNK)
                assert np.array_equal(part["density"][rows], whole["density"][rows])

    for out in killed(make_data, "smoke.zarr", tmp_path, 60, 4000, check):
        made = arrays(out)
        assert all(np.array_equal(made[name], whole[name]) for name in whole) and made.keys() == whole.keys()


def predict(out: Path, place: Path) -> None:
    words = {"weights": place / "model.safetensors", "context": place / "stations.csv", "target": "40,47,-6,4,0.5"}
    options = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    sys.argv = ["aenp", "predict", *options, "--out", str(out), "--plot", str(out.with_name("map.png"))]
    cli.main()


def content(out: Path) -> Any:
    """What was predicted, and the map."""
    if out.suffix == ".csv":
        return out.read_bytes()
    return (xr.open_zarr(out, consolidated=False) if out.is_dir() else xr.open_dataset(out)).load()


@pytest.mark.parametrize("name", ["out.nc", "out.csv", "out.zarr"])
def test_prediction(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    process = PTTNP(2, 1, attention="spectral", dim=8, heads=2, layers=1, pseudo_tokens=4)
    FieldModel(process, Frame((40, 47, -6, 4), 4.0, 280.0, 5.0, "t2m", "K")).save(tmp_path / "model.safetensors")
    rng = np.random.default_rng(0)
    table = {"lat": rng.uniform(41, 46, 30), "lon": rng.uniform(-5, 3, 30), "t2m": rng.normal(280, 5, 30)}
    pd.DataFrame(table).to_csv(tmp_path / "stations.csv", index=False)
    job = partial(predict, place=tmp_path)
    whole = tmp_path / "whole" / name
    import time; t=time.time()
    assert exit_code(job, whole) == 0
    print(time.time()-t, [ (f, f.stat().st_size) for f in whole.parent.rglob("*")])

    def check(out: Path) -> None:
        pass
    for out in killed(job, name, tmp_path, 10, 4000, check):
        print(out, list(out.parent.iterdir()))
    assert 0
