"""Kept scores: what a reproduction has computed, so that one that was stopped goes on from there."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from aenp.evaluation.scores import Stratum
from aenp.saving import checksum, written_whole

PACKAGE = Path(__file__).parents[1]
FOLDER = ".scores"
"Where scores are kept, beside the page that shows them."
SCORING = (
    *("*.py", "nn/*.py", "models/*.py", "data/*.py", "experiments/*/*.py"),
    *("evaluation/metrics.py", "evaluation/scores.py"),
)
"The code on which scores of models and oracles depend; that of training shows in the weights."


def kept(folder: Path | None, key: str, compute: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """The values in the folder's file of this key or, where there is none or it is damaged, computed and kept there.

    They are numbered in the file, which does not keep their order.
    """
    if folder is None:
        return compute()
    file = folder / f"{key}.safetensors"
    try:
        return {name.split(" ", 1)[1]: value for name, value in sorted(_read(file).items())}
    except (FileNotFoundError, SafetensorError):
        values = compute()
    numbered = {f"{number:03} {name}": value for number, (name, value) in enumerate(values.items())}
    with written_whole(file) as temporary:
        temporary.write_bytes(serialise(numbered, {"checksum": checksum({}, numbered)}))
    return values


def _read(file: Path) -> dict[str, Tensor]:
    with safe_open(file, framework="pt") as content:
        values = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
        known = (content.metadata() or {}).get("checksum")
    if known != checksum({}, values):
        raise SafetensorError(f"{file} does not match its checksum")
    return values


def tasks_key(strata: Sequence[Stratum], **facts: object) -> str:
    """What scores on these tasks depend on beside the model: the tasks, the code that scores, and the facts given."""
    tensors = {
        f"{number} {field.name}": value
        for number, stratum in enumerate(strata)
        for field in fields(stratum.task)
        if (value := getattr(stratum.task, field.name)) is not None
    }
    return checksum({"code": code_key(), "torch": torch.__version__, **facts}, tensors)


@cache
def code_key() -> str:
    """SHA-256 of the code on which scores depend."""
    digest = sha256()
    for file in sorted(file for pattern in SCORING for file in PACKAGE.glob(pattern)):
        digest.update(file.read_bytes())
    return digest.hexdigest()
