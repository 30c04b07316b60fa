"""Pages that are written at every build: model cards, results, benchmarks, the command line, the demonstration."""

import os
import re
import shutil
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from cards import ROOT, write_cards
from sphinx.application import Sphinx

from aenp.cli import COMMANDS, HELP, parse
from aenp.demo.page import page as demonstration

WIDTH = "92"
RESULTS = """\
# Results

What the shipped models score, beside the paper's numbers. `aenp reproduce` writes these pages; [the
experiments](/experiments.md) say what they are about and how to repeat them.{report}

```{{toctree}}
:maxdepth: 1
:glob:

*/README
ablations/*/README
```
"""
REPORT = '\n\nAll of them in one page, with figures: <a href="{up}report.html">the report</a>.'
BENCHMARKS = """

```{toctree}
:maxdepth: 1
:glob:
:hidden:

*
```
"""


def write_pages(app: Sphinx) -> None:
    """Writes the pages before Sphinx looks for them."""
    generated = Path(app.srcdir, "generated")
    for name in ("models", "results", "benchmarks"):
        shutil.rmtree(generated / name, ignore_errors=True)
    write_cards(generated / "models")
    copy_pages(ROOT / "results", generated / "results")
    copy_pages(ROOT / "benchmarks", generated / "benchmarks")
    report = REPORT.format(up="../../") if (ROOT / "results/report.html").exists() else ""
    (generated / "results/index.md").write_text(RESULTS.format(report=report))
    with (generated / "benchmarks/README.md").open("a") as readme:
        readme.write(BENCHMARKS)
    (generated / "command_line.md").write_text(command_line())


def copy_pages(source: Path, to: Path) -> None:
    """Copies the pages and pictures of a folder."""
    for file in (file for kind in ("md", "png") for file in source.rglob(f"*.{kind}")):
        place = to / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)


def command_line() -> str:
    """The program's own help, of every command."""
    listed = HELP.format(commands="\n".join(f"  {name:<13} {what}" for name, (_, what) in COMMANDS.items()))
    parts = ["# The command line", f"```text\n{listed}\n```"]
    for name in COMMANDS:
        parts += [f"## aenp {name}", f"```text\n{options(name)}\n```"]
    return "\n\n".join(parts) + "\n"


def options(command: str) -> str:
    """What a command prints if it is asked for help."""
    text = StringIO()
    with patch.dict(os.environ, COLUMNS=WIDTH), redirect_stdout(text), suppress(SystemExit):
        parse([command, "--help"])
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def lead_within_the_site(app: Sphinx, document: str, source: list[str]) -> None:
    """Makes links between the folders of the repository lead to their pages on the site."""
    text = re.sub(r"\]\(\.\./(benchmarks|results)/", r"](/generated/\1/", source[0])
    source[0] = re.sub(r"\]\((\.\./)+docs/", "](/", text)


def write_demonstration(app: Sphinx, error: Exception | None) -> None:
    """Puts the page of `aenp demo` and, if there is one, the report beside the site's own pages."""
    if error is None and app.builder.format == "html":
        Path(app.outdir, "demo.html").write_text(demonstration(), encoding="utf-8")
        if (report := ROOT / "results/report.html").exists():
            shutil.copy(report, Path(app.outdir, "report.html"))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages, priority=100)
    app.connect("source-read", lead_within_the_site)
    app.connect("build-finished", write_demonstration)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
