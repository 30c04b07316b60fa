"""The directory of a run: its files, its lock, and its checkpoint, which is not trusted."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch
from filelock import FileLock, Timeout
from lightning.pytorch.utilities import rank_zero_only

CHECKPOINT = "last.ckpt"
"What is needed to resume the run."
MODEL = "model.safetensors"
"The averaged model."


def is_first_process() -> bool:
    """Whether this is the process that writes and prints, also before Lightning has started the others."""
    node = os.environ.get("NODE_RANK", os.environ.get("GROUP_RANK", "0"))
    return node == "0" and rank_zero_only.rank == 0  # type: ignore[attr-defined]


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Keeps other processes from training in this directory; the system releases the lock when this one ends."""
    if not is_first_process():
        yield
        return
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / "run.lock", timeout=0, is_singleton=True)
    try:
        lock.acquire()
    except Timeout:
        raise FileExistsError(
            f"another process is training in {out}; wait for it, or choose another directory"
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def told_if_interrupted(out: Path) -> Iterator[None]:
    """Gives a Ctrl-C that ends a run at once a message that tells what is saved of it."""
    try:
        yield
    except KeyboardInterrupt:
        saved = f"{out} has what was saved before; add --resume to continue from there"
        nothing = "nothing was saved yet; start it again"
        raise KeyboardInterrupt(f"stopped at once: {saved if (out / CHECKPOINT).exists() else nothing}") from None


def read_checkpoint(checkpoint: Path) -> dict[str, Any]:
    """The state of a run; nothing in the file is executed, and its checksums reveal damage."""
    try:
        with ZipFile(checkpoint) as archive:
            unpacked = sum(part.file_size for part in archive.infolist())
            if archive.testzip() is not None or unpacked > checkpoint.stat().st_size:
                raise BadZipFile("its content does not match its checksum")
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    except (BadZipFile, EOFError, NotImplementedError, RuntimeError, UnpicklingError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{checkpoint} is damaged or not a checkpoint of aenp: {reason}") from None
    try:
        steps, seconds = state["steps"], state["seconds"]
        if type(steps) is not int or steps < 0 or state["global_step"] != steps or not 0 <= seconds < math.inf:
            raise ValueError(f"it records {steps} steps in {seconds} seconds")
        if not state.setdefault("best_score", -math.inf) < math.inf:
            raise ValueError(f"it records a score of {state['best_score']}")
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{checkpoint} is not a checkpoint of aenp: {error}") from None
    return dict(state)


def check_moments(checkpoint: Path, state: dict[str, Any], parameters: Sequence[torch.Tensor]) -> None:
    """Raises an error unless the optimiser's state fits the parameters: AdamW would access memory beyond it."""
    try:
        (optimiser,) = state["optimizer_states"]
        fits = isinstance(state["loops"], dict) and set(optimiser["state"]) <= set(range(len(parameters)))
        for number, moments in optimiser["state"].items():
            shapes = {name: tuple(value.shape) for name, value in moments.items() if name != "step"}
            fits = fits and set(shapes.values()) == {tuple(parameters[number].shape)}
            adam = set(shapes) == {"exp_avg", "exp_avg_sq"} and moments["step"].numel() == 1
            fits = fits and (adam or set(moments) == {"momentum"})
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(f"{checkpoint} is not a checkpoint of this model: its optimiser's state does not fit")
