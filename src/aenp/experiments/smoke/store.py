"""A data set of smoke plumes on disk: made by any number of workers, and resumable."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import zarr
from jaxtyping import Float
from numpy import ndarray
from zarr.codecs import ZstdCodec

from aenp._version import __version__
from aenp.experiments.smoke.simulator import BOX, BUOYANCY, PLACES, RADIUS, Box, Plumes, simulate

CHUNK = 32
"Simulations in a chunk, which one worker makes at a time."
SPLITS = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}


def create(out: Path, num: int, seed: int, box: Box = BOX) -> None:
    """Creates an empty data set of `num` simulations, unless it was already started with the same arguments.

    `density` holds the simulations, `radius`, `x` and `buoyancy` their initial conditions, and `done` which chunks are
    complete. The attributes hold everything else.
    """
    if num < 1:
        raise ValueError(f"num, the number of simulations, must be at least 1; got {num}")
    if seed < 0:
        raise ValueError(f"seed must not be negative; got {seed}")
    requested = {"num": num, "seed": seed} | asdict(box) | {"obstacle": list(box.obstacle)}
    if out.exists():
        started = _parameters(out)
        other = [name for name in requested if started[name] != requested[name]]
        if other:
            was, now = (", ".join(f"{name} {values[name]}" for name in other) for values in (started, requested))
            raise ValueError(f"{out} was started with {was}; it cannot be continued with {now}. Choose another path")
        return
    plumes = asdict(Plumes.draw(range(num), seed))
    out.parent.mkdir(parents=True, exist_ok=True)
    attributes = {
        "aenp": __version__,
        "parameters": requested,
        "initial_conditions": {"radius": list(RADIUS), "x": list(PLACES), "buoyancy": list(BUOYANCY)},
        "splits": {name: list(s) for name, s in SPLITS.items()},
    }
    shape, chunks, cells = (num, box.size, box.size), (CHUNK, box.size, box.size), ("simulation", "cell_x", "cell_y")
    # If interrupted, Zarr's thread may continue writing while the directory is removed.
    temporary = TemporaryDirectory(prefix=f"{out.name}.", suffix=".part", dir=out.parent, ignore_cleanup_errors=True)
    with temporary as beside:
        group = zarr.create_group(Path(beside, "new"), attributes=attributes)
        make = partial(group.create_array, compressors=ZstdCodec(checksum=True))
        make("density", shape=shape, chunks=chunks, dtype="float32", dimension_names=cells)
        make("done", shape=(-(-num // CHUNK),), chunks=(1,), dtype="bool", dimension_names=("chunk",))
        for name, values in plumes.items():
            make(name, data=values, dimension_names=("simulation",))
        Path(beside, "new").rename(out)


def generate(
    out: Path, num: int, seed: int = 0, box: Box = BOX, workers: int | None = None, scheduler: str | None = None
) -> Iterator[int]:
    """Makes the missing simulations; yields how many there are, first at the start and then after each chunk.

    Args:
        out: a Zarr directory, which all workers must see.
        num: number of simulations.
        seed: simulation i depends on the seed and i alone, not on the worker.
        box: the box.
        workers: processes on this machine, by default one for each core; 1 for this process alone.
        scheduler: address of a Dask scheduler, whose workers do the work instead.
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}")
    create(out, num, seed, box)
    missing = np.flatnonzero(~_read(out, "done")).tolist()
    count = num - sum(len(_rows(number, num)) for number in missing)
    yield count
    make = partial(write_chunk, str(out.absolute()), box, num, seed)
    with _mapper(workers, scheduler, len(missing)) as each:
        for made in each(make, missing):
            count += made
            yield count


def write_chunk(out: str, box: Box, num: int, seed: int, number: int) -> int:
    """Makes and writes one chunk, then marks it as done: if killed in between, it is made again."""
    rows = _rows(number, num)
    density = simulate(Plumes.draw(rows, seed), box)
    zarr.open_array(out, path="density", mode="r+")[rows.start : rows.stop] = density
    zarr.open_array(out, path="done", mode="r+")[number] = True
    return len(rows)


def _rows(number: int, num: int) -> range:
    """The simulations in a chunk."""
    return range(number * CHUNK, min((number + 1) * CHUNK, num))


@contextmanager
def _mapper(workers: int | None, scheduler: str | None, jobs: int) -> Iterator[Any]:
    """A map that yields results as they become ready."""
    if scheduler is None and (workers == 1 or jobs < 2):
        yield map
        return
    from distributed import Client, LocalCluster, as_completed

    def each(function: Any, items: Iterable[Any]) -> Iterator[Any]:
        for future in as_completed(client.map(function, items, pure=False)):
            yield future.result()

    with ExitStack() as stack:
        cluster = scheduler or stack.enter_context(
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL)
        )
        client = stack.enter_context(Client(cluster))
        yield each


def load(data: Path, split: Literal["train", "validation", "test"]) -> Float[ndarray, "simulations x y"]:
    """The densities of one split: the first 80 %, the next 10 % or the last 10 % of the simulations."""
    if not data.exists():
        raise FileNotFoundError(f"{data} does not exist; `aenp data smoke --num 6000 --out {data}` makes it")
    parameters = _parameters(data)
    if not _read(data, "done").all():
        raise ValueError(f"{data} is incomplete; `aenp data smoke` with the same arguments continues it")
    with _report_damage(data):
        density = zarr.open_array(data, path="density", mode="r")
        if density.shape != (parameters["num"], parameters["size"], parameters["size"]):
            raise ValueError(f"it has shape {density.shape} instead of {parameters['num']} simulations")
        if density.nchunks_initialized != density.nchunks:
            raise ValueError(f"{density.nchunks - density.nchunks_initialized} of its chunks are missing")
        start, stop = (round(density.shape[0] * share) for share in SPLITS[split])
        return np.asarray(density[start:stop])


def _parameters(data: Path) -> dict[str, Any]:
    """The arguments the data set was started with; an error if it is not a data set of plumes."""
    try:
        parameters: Any = zarr.open_group(data, mode="r").attrs["parameters"]
        return dict(parameters)
    except (OSError, KeyError, TypeError, ValueError):
        raise ValueError(f"{data} is not a data set of smoke plumes; choose another path") from None


def _read(data: Path, name: str) -> ndarray:
    with _report_damage(data):
        return np.asarray(zarr.open_array(data, path=name, mode="r")[:])


@contextmanager
def _report_damage(data: Path) -> Iterator[None]:
    """Reports any error in reading as damage; chunks have checksums."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{data} is damaged: {error}. Delete it, and make it again with `aenp data smoke`") from None
