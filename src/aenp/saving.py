"""Saved models: one safetensors file that carries the configuration it is rebuilt from."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from aenp._version import __version__
from aenp.configured import Configured, build

FORMAT = 2
"Files of format 1 have no checksum."
Model = TypeVar("Model", bound=nn.Module)
"What can be saved and loaded."


def save(model: Configured, path: str | os.PathLike[str]) -> None:
    """Writes the model's parameters and configuration to one file, which `aenp.load` turns back into the model.

    The file appears under its name only once it is complete.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> import aenp
        >>> with TemporaryDirectory() as folder:
        ...     aenp.save(aenp.CNP(dim_x=1, dim_y=1), f"{folder}/model.safetensors")
        ...     model = aenp.load(f"{folder}/model.safetensors")
        >>> type(model).__name__, model.training
        ('CNP', False)
    """
    path = Path(path)
    module: Any = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    configuration = module.configuration()
    tensors = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    header = {
        "format": FORMAT,
        "version": __version__,
        "model": configuration,
        "checksum": checksum(configuration, tensors),
    }
    with written_whole(path) as temporary:
        temporary.write_bytes(serialise(tensors, metadata={"aenp": json.dumps(header)}))


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A file to write in place of `path`, which it replaces at the end; if anything fails, `path` is left as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], device: str = "cpu") -> Any:
    """The model that was saved at `path`, or in a run's directory, a `NeuralProcess` or a `FieldModel`.

    It is in evaluation mode.

    The file cannot run code, and a file that describes a larger model than it holds is refused before that model takes
    any memory. On the same machine, with the same number of threads and the same versions, the model predicts bit for
    bit what it did when it was saved.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, is not a model of aenp, or was written by a later version.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> import aenp
        >>> with TemporaryDirectory() as folder:
        ...     aenp.save(aenp.pretrained("gp/tnp-approx"), f"{folder}/model.safetensors")
        ...     model = aenp.load(f"{folder}/model.safetensors")
        >>> model.label
        'TNP (T~)'
    """
    return load_as(nn.Module, path, device)


def load_as(kind: type[Model], path: str | os.PathLike[str], device: str = "cpu") -> Model:
    """As `load`, for a saved object of this kind."""
    path = Path(path)
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"no saved model at {path}")
    try:
        with safe_open(path, framework="pt", device=device) as file:
            header = _header(path, file.metadata() or {})
            # Copies, because products depend on how their operands are aligned, which is arbitrary in a file.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged or not a safetensors file: {error}") from error
    configuration = header["model"]
    if header["format"] > 1 and header.get("checksum") != checksum(configuration, tensors):
        raise ValueError(f"{path} is damaged: its content does not match its checksum")
    _check_numbers(path, tensors)
    try:
        _check_sizes(configuration, tensors)
        model = build(configuration)
        model.load_state_dict(tensors, assign=True)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        saved = f"saved by aenp {header['version']}"
        raise ValueError(f"{path}, {saved}, does not fit the model it describes: {error}") from error
    if not isinstance(model, kind):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a {kind.__name__}; aenp.load reads either")
    return model.to(device).eval()


def _header(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    try:
        header = json.loads(metadata["aenp"])
        known = {"format": int, "version": str, "model": dict}
        if not all(isinstance(header[key], kind) for key, kind in known.items()) or "class" not in header["model"]:
            raise TypeError
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError):
        raise ValueError(f"{path} is a safetensors file, but not a model saved by aenp.save") from None
    if header["format"] > FORMAT:
        raise ValueError(
            f"{path} was saved by aenp {header['version']} in format {header['format']}; aenp {__version__} reads "
            f"up to format {FORMAT}. Upgrade aenp"
        )
    if header["format"] < 1:
        raise ValueError(f"{path} is damaged: there is no format {header['format']}")
    return header


def checksum(configuration: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the configuration and of the tensors' names, shapes, types and bytes."""
    digest = sha256(json.dumps(configuration, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _check_numbers(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises an error if a model with these tensors could not compute, or only NaN."""
    for name, value in tensors.items():
        if value.is_floating_point() and value.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{path}: the tensor {name} is of {value.dtype}, and models compute in float32 or float64; "
                "call .float() on the model before it is saved"
            )
        if value.isnan().any():
            raise ValueError(f"{path}: the tensor {name} holds NaN, so the model can predict nothing; train it again")


def _check_sizes(configuration: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raises an error if the model's tensors differ from these, without allocating any of them."""
    numbers = sum(value.numel() for value in tensors.values())
    _check_counts(configuration, {"layers": len(tensors), "dim_x": numbers, "kernel": numbers})
    with torch.device("meta"):
        expected = {name: value.shape for name, value in build(dict(configuration)).state_dict().items()}
    found = {name: value.shape for name, value in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        ours, theirs = (shapes.get(name) for shapes in (expected, found))
        if ours != theirs:
            texts = ("none" if shape is None else tuple(shape) for shape in (ours, theirs))
            raise ValueError("the tensor {} should have the shape {}; the file has {}".format(name, *texts))


def _check_counts(configuration: Any, limits: Mapping[str, int]) -> None:
    """Raises an error if an argument that constructors loop up to is larger than the file allows for."""
    if isinstance(configuration, Mapping):
        for name, value in configuration.items():
            if isinstance(value, int) and value > limits.get(name, value):
                raise ValueError(f"{name}={value} is too large for the file, which allows for {limits[name]}")
            _check_counts(value, limits)
    elif isinstance(configuration, list):
        for value in configuration:
            _check_counts(value, limits)
