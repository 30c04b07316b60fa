"""How time and memory are measured."""

import gc
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch


@contextmanager
def own_time() -> Iterator[None]:
    """Within this context a training's minutes are those that its process has computed, not those that have passed."""
    with patch("aenp.training.loop.time", SimpleNamespace(monotonic=time.process_time)):
        yield


def interleaved_times(
    steps: Mapping[str, Callable[[], Any]], seconds: float = 15.0, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The median time of each step, all run in turn, so that other load on the machine affects them alike."""
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 3:
        for name, step in steps.items():
            start = clock()
            step()
            times[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_memory(make: Callable[..., Callable[[], Any]], *args: Any) -> float:
    """The peak memory of a step, in MB, beyond what is used before it; in a process of its own.

    `make(*args)` builds the step; it must be a function at the top of a module.
    """
    return in_new_process(_peak, make, args)


def in_new_process(function: Callable[..., Any], *args: Any) -> Any:
    """The function's result in a process of its own; it must be at the top of a module."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.speed"])
    with context.Pool(1) as pool:
        return pool.apply(function, args)


def _peak(make: Callable[..., Callable[[], Any]], args: tuple[Any, ...]) -> float:
    torch.set_num_threads(1)
    step = make(*args)
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    result = step()
    peak = _status("VmHWM") - before
    del result
    return peak


def _status(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024
