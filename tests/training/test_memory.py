"""Memory: a long run reuses what it frees, where the C library can do that."""

import ctypes
import subprocess
import sys

import pytest

from aenp.training.memory import reuse_memory

FAULTS = """
import ctypes, resource, sys
from aenp.training.memory import reuse_memory

if sys.argv[1] == "reuse":
    reuse_memory()
libc, size = ctypes.CDLL(None), 2**26
libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
libc.memset.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]

def step():
    block = libc.malloc(size)
    libc.memset(block, 1, size)
    libc.free(block)

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    """Page faults of ten steps that each take 64 MB and free them, after a first one."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, timeout=600, check=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="needs Linux")
def test_freed_memory_is_used_again() -> None:
    """By default each step gets new pages, at least 32 faults even with pages of 2 MB."""
    assert faults("default") >= 320
    assert faults("reuse") < 32


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """A C library without mallopt, such as musl."""

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    reuse_memory()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", None)
    reuse_memory()
