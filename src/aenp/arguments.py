"""Arguments of commands: numbers within bounds, and output paths, checked before any work is done."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec


def number(kind: type[int] | type[float], lower: float, upper: float, count: int = 1) -> PrimitiveConstructorSpec[Any]:
    """An option that takes `count` numbers within these bounds."""

    def read(words: list[str]) -> Any:
        try:
            values = tuple(map(kind, words))
        except ValueError:
            values = ()
        if len(values) != count or not all(lower <= value <= upper for value in values):
            what = f"{count} numbers" if count > 1 else "a whole number" if kind is int else "a number"
            raise ValueError(f"expected {what} from {lower} to {upper}; got {shlex.join(words)}")
        return values if count > 1 else values[0]

    nargs: Literal[1, "*"] = 1 if count == 1 else "*"
    return PrimitiveConstructorSpec(nargs, kind.__name__.upper(), read, lambda _: True, lambda value: [str(value)])


def numbers(kind: type[int] | type[float], lower: float, upper: float) -> PrimitiveConstructorSpec[Any]:
    """An option that takes different numbers within these bounds, separated by commas."""

    def read(given: list[str]) -> Any:
        return tuple(
            dict.fromkeys(number(kind, lower, upper).instance_from_str([each]) for each in given[0].split(","))
        )

    name = kind.__name__.upper()
    return PrimitiveConstructorSpec(1, f"{name},...", read, lambda _: True, lambda value: [",".join(map(str, value))])


def words() -> PrimitiveConstructorSpec[Any]:
    """An option that takes different words, separated by commas."""

    def read(given: list[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(given[0].split(",")))

    return PrimitiveConstructorSpec(1, "NAME,...", read, lambda _: True, lambda value: [",".join(value or ())])


def optional(metavar: str | None = None) -> Any:
    """An option without a default value: its description tells what happens where it is left out."""
    return arg(metavar=metavar, help_behavior_hint="")


Seed = Annotated[int, number(int, 0, 2**63 - 1)]
Count = Annotated[int, number(int, 1, 10**6)]
OptionalCount = Annotated[int | None, optional("N"), number(int, 1, 10**9)]
Flag = Annotated[bool, optional()]
Text = Annotated[str | None, optional("NAME")]
Words = Annotated[tuple[str, ...] | None, optional("NAME,..."), words()]
File = Annotated[Path | None, optional("PATH")]
SymmetryName = Annotated[Literal["none", "exact", "approx"] | None, optional("{none,exact,approx}")]


LIMITS: dict[str, tuple[float, float]] = {
    "steps": (1, 10**9),
    "minutes": (1e-3, 10**6),
    "learning_rate": (1e-12, 10**3),
    "num_fixed": (1, 10**4),
    "dropout": (0, 1),
    "seed": (0, 2**63 - 1),
    "threads": (1, 2**16),
    "devices": (1, 2**16),
    "num_nodes": (1, 1000),
}
"The smallest and largest value of each option."


def check_limits(options: Any) -> None:
    """Raises an error that names the first option outside its limits."""
    for name, (lower, upper) in LIMITS.items():
        value = getattr(options, name, None)
        if value is not None and not lower <= value <= upper:
            raise ValueError(f"{name} must be between {lower:g} and {upper:g}; got {value}")


def check_apart(inputs: Mapping[str, str | Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Raises an error if an output would replace an input or another output; each is given under its option's name."""
    taken = {Path(path).resolve(): name for name, path in inputs.items() if path is not None}
    for name, path in outputs.items():
        if path is not None and (other := taken.setdefault(path.resolve(), name)) != name:
            raise ValueError(f"--{name} {path} would overwrite --{other}; choose another path")


def check_place(path: Path, is_directory: bool = False) -> None:
    """Raises an error if this file or directory cannot be written."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if there == path and path.is_dir() != is_directory:
        raise OSError(f"{path} is a {'file' if is_directory else 'directory'}; choose another path")
    if there != path and not there.is_dir():
        raise NotADirectoryError(f"{path} cannot be written: {there} is a file; choose another path")
    directory = there if there.is_dir() else there.parent
    if not os.access(directory, os.W_OK):
        raise PermissionError(f"{path} cannot be written: {directory} is read-only; choose another path")
