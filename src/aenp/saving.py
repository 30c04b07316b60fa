"""Saved models: one safetensors file that carries the configuration it is rebuilt from."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import nn

from aenp._version import __version__
from aenp.configured import Configured, build
from aenp.process import NeuralProcess

FORMAT = 1
Model = TypeVar("Model", bound=nn.Module)


def save(model: Configured, path: str | os.PathLike[str]) -> None:
    """Writes the model's parameters and configuration to one file, which `aenp.load` turns back into the model.

    The file appears under its name only when it is whole.
    """
    path = Path(path)
    module: Any = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    header = {"format": FORMAT, "version": __version__, "model": module.configuration()}
    tensors = {name: value.detach().contiguous() for name, value in module.state_dict().items()}
    with written_whole(path) as temporary:
        temporary.write_bytes(serialise(tensors, metadata={"aenp": json.dumps(header)}))


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write in place of `path`, which it replaces at the end; if anything fails, `path` is as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], device: str = "cpu") -> NeuralProcess:
    """The model that was saved at `path`, in evaluation mode.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, is not a model of aenp, or was written by a later version.
    """
    return load_as(NeuralProcess, path, device)  # type: ignore[type-abstract]


def load_as(kind: type[Model], path: str | os.PathLike[str], device: str = "cpu") -> Model:
    """As `load`, for a saved object of this kind."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no saved model at {path}")
    try:
        with safe_open(path, framework="pt", device=device) as file:
            header = _header(path, file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error
    if header["model"]["class"] == "FieldModel" and issubclass(kind, NeuralProcess):
        raise ValueError(f"{path} holds a FieldModel; load it by aenp.FieldModel.load")
    try:
        model = build(header["model"])
        model.load_state_dict(tensors, assign=True)
    except (AttributeError, KeyError, TypeError, RuntimeError) as error:
        saved = f"saved by aenp {header['version']}"
        raise ValueError(f"{path}, {saved}, does not fit the model it describes: {error}") from error
    if not isinstance(model, kind):
        raise ValueError(f"{path} holds a {type(model).__name__}, which aenp.load reads; it is no {kind.__name__}")
    return model.to(device).eval()


def _header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    try:
        header = json.loads(metadata["aenp"])
        known = {"format": int, "version": str, "model": dict}
        if not all(isinstance(header[key], kind) for key, kind in known.items()) or "class" not in header["model"]:
            raise TypeError
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ValueError(f"{path} is a safetensors file, but not a model saved by aenp.save") from None
    if header["format"] > FORMAT:
        raise ValueError(
            f"{path} was saved by aenp {header['version']} in format {header['format']}; aenp {__version__} reads "
            f"up to format {FORMAT}. Upgrade aenp"
        )
    return header
