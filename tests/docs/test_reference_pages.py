"""The reference: every public name is on its pages, with an example that can be copied into an empty session."""

import doctest
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import aenp

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
MODULES = [aenp, *(import_module(f"aenp.{name}") for name in aenp.MODULES)]
OTHERS = ("aenp.models.make", "aenp.sklearn.Interpolator")


def public_names() -> Iterator[str]:
    """What the public modules list in `__all__`, the groups, and what is public without being listed."""
    for module in MODULES:
        yield from (f"{module.__name__}.{name}" for name in getattr(module, "__all__", ()))
    yield from (f"aenp.symmetry.{name}" for name in ("Motion", "Group", *map("{0.__name__}".format, groups())))
    yield from OTHERS


def groups() -> Iterator[type]:
    """The classes of groups."""
    waiting = list(aenp.symmetry.Group.__subclasses__())
    while waiting:
        waiting += (group := waiting.pop()).__subclasses__()
        yield group


def named(name: str) -> object:
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def documented() -> set[str]:
    """The names on the pages of the reference."""
    found = set()
    for page in REFERENCE.glob("*.rst"):
        module = ""
        for kind, name in re.findall(r"^\.\. (auto\w+|currentmodule):: (\S+)$", page.read_text(), re.MULTILINE):
            module = name if kind == "currentmodule" else module
            found.add(name if name.startswith("aenp.") else f"{module}.{name}")
    return found


NAMES = list(dict.fromkeys(name for name in public_names() if not name.endswith("__version__")))


def test_every_public_name_is_in_the_reference() -> None:
    assert set(NAMES) - documented() <= {"aenp.symmetry"}
    assert (REFERENCE / "symmetry.rst").is_file()


@pytest.mark.parametrize("name", [name for name in NAMES if callable(named(name)) and named(name).__doc__])
def test_examples_print_what_is_shown_in_an_empty_session(name: str) -> None:
    thing = named(name)
    assert not isinstance(thing, ModuleType)
    tests = doctest.DocTestFinder(recurse=False).find(thing, name, module=False, globs={})  # type: ignore[arg-type]
    assert tests and tests[0].examples, f"{name} has no example in its docstring"
    report: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(tests[0], out=report.append)
    assert result.failed == 0, "".join(report)
