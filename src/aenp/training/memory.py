"""Memory: lets a long run on a CPU reuse the memory that it frees."""

import ctypes
import sys


def reuse_memory() -> None:
    """Lets the C library keep freed memory for the next step, instead of returning it to the system.

    Each page requested again costs a fault. Only on Linux with glibc; elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 2**28)
        mallopt(trim_threshold, 2**30)
