"""A data set of smoke plumes on disk: made by any number of workers, and gone on with where it was left."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import zarr
from jaxtyping import Float
from numpy import ndarray
from threadpoolctl import threadpool_limits

from aenp._version import __version__
from aenp.data.smoke import BOX, Box, Plumes, simulate

CHUNK = 32
"Simulations in a chunk, which one worker makes at a time."
SPLITS = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


def create(out: Path, num: int, seed: int, box: Box = BOX) -> None:
    """A data set of `num` simulations, none of them made; or nothing, if it was begun with the same arguments before.

    `density` holds the simulations, `radius`, `x` and `buoyancy` their initial conditions, and `done` which chunks are
    whole. The attributes tell everything else.
    """
    if num < 1:
        raise ValueError(f"num, the number of simulations, must be at least 1; got {num}")
    asked = {"num": num, "seed": seed} | asdict(box) | {"obstacle": list(box.obstacle)}
    if out.exists():
        begun = zarr.open_group(out, mode="r").attrs.get("parameters")
        if begun != asked:
            raise ValueError(f"{out} was begun with {begun}; it cannot go on with {asked}")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    new = out.with_name(f"{out.name}.{os.getpid()}.part")
    attributes = {"aenp": __version__, "parameters": asked, "splits": {name: list(s) for name, s in SPLITS.items()}}
    group = zarr.create_group(new, attributes=attributes)
    group.create_array("density", shape=(num, box.size, box.size), chunks=(CHUNK, box.size, box.size), dtype="float32")
    group.create_array("done", shape=(-(-num // CHUNK),), chunks=(1,), dtype="bool")
    for name, values in asdict(Plumes.draw(range(num), seed)).items():
        group.create_array(name, data=values)
    new.rename(out)


def generate(
    out: Path, num: int, seed: int = 0, box: Box = BOX, workers: int | None = None, scheduler: str | None = None
) -> Iterator[int]:
    """Makes what is missing of the data set; yields at first and after each chunk how many simulations there are.

    Args:
        out: a Zarr directory, which all workers must see.
        num: number of simulations.
        seed: simulation i depends on the seed and i alone, not on who makes it.
        box: the box.
        workers: processes on this machine, by default one for each core; 1 for this process alone.
        scheduler: address of a Dask scheduler, whose workers are to do the work instead.
    """
    create(out, num, seed, box)
    done = _read(out, "done")
    count = int(done.sum())
    yield min(count * CHUNK, num)
    missing = np.flatnonzero(~done).tolist()
    make = partial(write_chunk, str(out.absolute()), box, num, seed)
    with _mapper(workers, scheduler, len(missing)) as each:
        for _ in each(make, missing):
            count += 1
            yield min(count * CHUNK, num)


def write_chunk(out: str, box: Box, num: int, seed: int, number: int) -> None:
    """Makes one chunk and writes it, and then that it is done: if killed in between, it is made again."""
    rows = range(number * CHUNK, min((number + 1) * CHUNK, num))
    with threadpool_limits(1):  # the same bits whatever the number of cores
        density = simulate(Plumes.draw(rows, seed), box)
    zarr.open_array(out, path="density", mode="r+")[rows.start : rows.stop] = density
    zarr.open_array(out, path="done", mode="r+")[number] = True


@contextmanager
def _mapper(workers: int | None, scheduler: str | None, jobs: int) -> Iterator[Any]:
    """A map whose results come as they are ready."""
    if scheduler is None and (workers == 1 or jobs < 2):
        yield map
        return
    from distributed import Client, LocalCluster, as_completed

    def each(function: Any, items: Iterable[Any]) -> Iterator[Any]:
        for future in as_completed(client.map(function, items, pure=False)):
            yield future.result()

    cluster = scheduler or LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with Client(cluster) as client:
        yield each


def load(data: Path, split: Literal["train", "validation", "test"]) -> Float[ndarray, "simulations x y"]:
    """The densities of one split: the first 80 %, the next 10 % or the last 10 % of the simulations."""
    if not data.exists():
        raise FileNotFoundError(f"{data} does not exist; `aenp data smoke --num 5000 --out {data}` makes it")
    if not _read(data, "done").all():
        raise ValueError(f"{data} is not whole; `aenp data smoke` with the same arguments goes on with it")
    density = zarr.open_array(data, path="density", mode="r")
    start, stop = (round(density.shape[0] * share) for share in SPLITS[split])
    return np.asarray(density[start:stop])


def _read(data: Path, name: str) -> ndarray:
    return np.asarray(zarr.open_array(data, path=name, mode="r")[:])
