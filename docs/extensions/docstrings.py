"""Docstrings as they are written, plain sentences with `code` between backticks, become reStructuredText."""

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx_autodoc_typehints import format_annotation

MARKUP = re.compile(r"([*|]|(?<=\w)_(?!\w))")
EXAMPLE = re.compile(r"(^ *>>> .*?(?=\n\s*\n|\Z))", re.MULTILINE | re.DOTALL)


def shapes(annotation: Any, config: Config) -> str | None:
    """A tensor's annotation with its shape, as it is written; None for what is no tensor."""
    if hasattr(annotation, "__metadata__"):
        return format_annotation(annotation.__origin__, config)
    if not hasattr(annotation, "dim_str"):
        return None
    kind = annotation.__name__.split("[")[0]
    return f'``{kind}[{annotation.array_type.__name__}, "{annotation.dim_str}"]``'


def plain(text: str) -> str:
    """A text with its code as literals, and no other character read as markup."""
    parts = re.split(r"(?<!`)`([^`]+)`(?!`)", text)
    return "".join(rf"\ ``{part}``\ " if i % 2 else MARKUP.sub(r"\\\1", part) for i, part in enumerate(parts))


def rewrite(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Changes the lines of a docstring, except those of examples."""
    parts = EXAMPLE.split("\n".join(lines))
    lines[:] = "".join(part if i % 2 else plain(part) for i, part in enumerate(parts)).splitlines()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
