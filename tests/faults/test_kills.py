"""Interruptions: a process killed at any moment leaves no half-written file, and ends the same if started again."""

import os
import resource
import shutil
import signal
import sys
import tempfile
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
import zarr
from test_training import SOURCE, small_model

from aenp import PTTNP, cli, load
from aenp.earth.field_model import FieldModel
from aenp.experiments.smoke.simulator import Box
from aenp.experiments.smoke.store import CHUNK, generate
from aenp.training import loop
from aenp.training.recipe import Recipe
from frames import frame

pytestmark = pytest.mark.slow

SMALL = Box(size=32, obstacle=(16.0, 25.0), obstacle_radius=4.0, inflow_y=3.0, steps=3)
NUM = 3 * CHUNK + 5
CHANGES = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir")
SIGNALS = (signal.SIGKILL, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM)
WRITING = os.O_WRONLY | os.O_RDWR

FORKS = get_context("forkserver")
"Processes are forked from one that has imported everything, which takes longer than their jobs."
FORKS.set_forkserver_preload(
    [
        "pytest",
        "aenp.earth.training_commands",
        "aenp.earth.maps",
        "aenp.experiments.commands",
        "aenp.experiments.smoke.advection",
        "aenp.training.loop",
        "netCDF4",
        "threadpoolctl",
    ]
)
Job = Callable[[Path], None]


@dataclass(frozen=True)
class Kill:
    """How a process dies: by a signal at or soon after its n-th change of a file, or within a write, at some byte."""

    change: int
    delay: float
    signal: int
    byte: int | None

    @staticmethod
    def draw(random: Random, number: int, changes: int, size: int) -> "Kill":
        byte = random.randrange(size) if number == signal.SIGXFSZ else None
        return Kill(random.randint(1, changes), random.choice((0.0, random.uniform(0, 0.05))), number, byte)

    def prepare(self, place: Path) -> None:
        """Makes this process die in this way when it changes files in `place`."""
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
        if self.delay == 0:
            os.kill(os.getpid(), self.signal)
        else:
            timer = threading.Timer(self.delay, os.kill, (os.getpid(), self.signal))
            timer.daemon = True
            timer.start()


def do(job: Job, out: Path, kill: Kill | None) -> None:
    """Does the job, until it is killed; exits at once, so that a late signal can only hit the job."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    tempfile.tempdir = str(out.parent.parent)
    if kill is not None:
        kill.prepare(out.parent)
    try:
        job(out)
        os._exit(0)
    except KeyboardInterrupt:
        os._exit(130)
    except SystemExit as stop:
        os._exit(stop.code if isinstance(stop.code, int) else 1)


def exit_code(job: Job, out: Path, kill: Kill | None = None) -> int:
    """The exit code of a process that did the job."""
    process = FORKS.Process(target=do, args=(job, out, kill), daemon=True)
    process.start()
    process.join(600)
    assert process.exitcode is not None, "the process does not end"
    return process.exitcode


def killed(job: Job, name: str, place: Path, kills: int, changes: int, size: int, check: Job) -> list[Path]:
    """The results of jobs that were started again after each of `kills` kills.

    Args:
        job: the job.
        name: of its result.
        place: where the results are, each in its own copy of the directory `before`.
        kills: number of kills.
        changes: number of changes that a job makes to files; it is killed at one of them.
        size: bytes of a file that it writes; it is killed within one of them.
        check: what must hold after each kill.
    """
    random, codes, made = Random(0), list[int](), list[Path]()
    while len(codes) < kills:
        out = place / str(len(made)) / name
        shutil.copytree(place / "before", out.parent)
        while True:
            number = SIGNALS[len(codes) % len(SIGNALS)]
            kill = Kill.draw(random, number, changes, size) if len(codes) < kills else None
            code = exit_code(job, out, kill)
            if code == 0:
                break
            assert kill is not None and code in (-number, 130)
            codes.append(code)
            check(out)
        made.append(out)
    assert {-signal.SIGKILL, -signal.SIGXFSZ, 130} <= set(codes)
    return made


def files(place: Path) -> dict[str, bytes]:
    """The files in a directory, except unfinished ones."""
    found = {str(file.relative_to(place)): file for file in place.rglob("*") if file.is_file()}
    return {name: file.read_bytes() for name, file in found.items() if ".part" not in name}


def train(out: Path) -> None:
    recipe, resume = Recipe(steps=12, batch_size=2, average=0.9), (out / "last.ckpt").exists()
    outcome = loop.train(small_model(), SOURCE, recipe, out, resume=resume, checkpoint_seconds=0.0)
    sys.exit(0 if outcome.finished else 130)


def test_training(tmp_path: Path) -> None:
    def check(out: Path) -> None:
        if (out / "last.ckpt").exists():
            assert torch.load(out / "last.ckpt", weights_only=True)["global_step"] > 0
        if (out / "model.safetensors").exists():
            load(out / "model.safetensors")

    (tmp_path / "before").mkdir()
    whole = tmp_path / "whole/run"
    assert exit_code(train, whole) == 0
    size = (whole / "last.ckpt").stat().st_size
    for out in killed(train, "run", tmp_path, 10, 40, size, check):
        assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def make_data(out: Path) -> None:
    list(generate(out, NUM, seed=3, box=SMALL, workers=1))


def test_data_generation(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    whole = tmp_path / "whole/smoke.zarr"
    assert exit_code(make_data, whole) == 0
    density = np.asarray(zarr.open_array(whole, path="density", mode="r"))

    def check(out: Path) -> None:
        if out.exists():
            group = zarr.open_group(out, mode="r")
            for number in np.flatnonzero(group["done"]):
                rows = slice(number * CHUNK, (number + 1) * CHUNK)
                assert np.array_equal(group["density"][rows], density[rows])

    size = max(len(content) for content in files(whole).values())
    for out in killed(make_data, "smoke.zarr", tmp_path, 10, 60, size, check):
        assert files(out) == files(whole)


def write_model_and_stations(place: Path, seed: int) -> None:
    torch.manual_seed(0)
    process = PTTNP(2, 1, attention="spectral", dim=8, heads=2, layers=1, pseudo_tokens=4)
    FieldModel(process, frame(40, 47, -6, 4)).save(place / "model.safetensors")
    rng = np.random.default_rng(seed)
    table = {"lat": rng.uniform(41, 46, 30), "lon": rng.uniform(-5, 3, 30), "t2m": rng.normal(280, 5, 30)}
    pd.DataFrame(table).to_csv(place / "stations.csv", index=False)


def predict(out: Path, plot: bool = False) -> None:
    place = out.parent.parent
    words = {"weights": place / "model.safetensors", "context": place / "stations.csv", "target": "40,47,-6,4,1"}
    words |= {"out": out} | ({"plot": out.with_name("map.png")} if plot else {})
    sys.argv = ["aenp", "predict", *(word for name, value in words.items() for word in (f"--{name}", str(value)))]
    cli.main()


@pytest.mark.parametrize(
    ("job", "name", "last", "changes"),
    [
        (predict, "out.nc", "out.nc", 3),
        (predict, "out.csv", "out.csv", 4),
        (predict, "out.zarr", "out.zarr/mean/c/0/0", 80),
        (partial(predict, plot=True), "out.nc", "map.png", 7),
    ],
    ids=["netcdf", "csv", "zarr", "map"],
)
def test_prediction(job: Job, name: str, last: str, changes: int, tmp_path: Path) -> None:
    """The old file is kept until the new one is complete."""
    before, after = tmp_path / "before", tmp_path / "after"
    for seed, place in enumerate((before, after)):
        write_model_and_stations(tmp_path, seed)
        assert exit_code(job, place / name) == 0
    old, new = files(before), files(after)
    assert old.keys() == new.keys() and old[last] != new[last]

    def check(out: Path) -> None:
        for top in before.iterdir():
            there = out.with_name(top.name)
            if there.is_dir():
                assert files(there) in (files(top), files(after / top.name))
            elif there.suffix != ".zarr":
                assert there.read_bytes() in (old[top.name], new[top.name])

    for out in killed(job, name, tmp_path, 3, changes, len(new[last]), check):
        assert files(out.parent) == new
