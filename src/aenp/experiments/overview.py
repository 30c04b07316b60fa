"""The report of everything: every experiment, the ablations, the theory and the machine on one page."""

import os
import platform
import re
import time
from collections.abc import Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch
from rich.progress import Progress

from aenp._version import __version__
from aenp.evaluation.tables import markdown_table
from aenp.evaluation.web_page import Section, web_page
from aenp.experiments import Experiment, experiments
from aenp.experiments.comparison import CONSOLE
from aenp.experiments.findings import findings
from aenp.experiments.kept import PACKAGE
from aenp.experiments.report import Report, write_report
from aenp.experiments.seeds import ablations_folder, pairs_of
from aenp.saving import written_whole
from aenp.shipped import shipped
from aenp.theory.commands import Approximations, approximations, draw

TITLE = "Approximately equivariant neural processes: a reproduction"
SUMMARY = """\
# Summary

What the paper found, and whether the shipped models show it. Every verdict is computed from the scores below. In the
first four, a difference counts beyond two of its standard errors, which are over blocks of test tasks and not over
repeated training. Where only some of the comparisons are as in the paper, a finding *holds in part*.

{findings}
{skipped}
## Budgets and seeds

Our models are small and were trained for minutes on one CPU core each; the paper's were trained on a GPU. Pairs of an
exact and an approximate model were trained again with other seeds, most of them for a shorter time.

{budgets}
"""
ABLATIONS = """\
# Ablations

None have been run. `aenp ablate --help` explains how; what it leaves in `{folder}` is shown here.
"""
MACHINE = """\
# The machine

Written on {today} by `aenp reproduce{data} --tasks {tasks} --seed {seed}` in {minutes:.0f} minutes, without what was
known from earlier calls.

{table}
"""


def write_overview(data: Path | None, out: Path, tasks: int, seed: int) -> str:
    """Reproduces all experiments that have data, writes `report.html` to `out`, and returns the summary as Markdown."""
    started = time.monotonic()
    reports, skipped = dict[str, Report](), dict[str, str]()
    declared = sorted(experiments().values(), key=lambda each: each.needs_data)
    with Progress(console=CONSOLE, transient=True, disable=not CONSOLE.is_terminal) as bar:
        for experiment in bar.track(declared, description="experiments"):
            try:
                chosen = _with_data(experiment, data)
                reports[experiment.name] = write_report(
                    chosen, chosen.shipped_models(), out / experiment.name, tasks, seed
                )
            except (FileNotFoundError, Unavailable) as error:
                skipped[experiment.name] = str(error)
    theory, ablations = approximations(), ablations_folder(out)
    every = findings([report.comparison for report in reports.values()], theory, ablations)
    summary = SUMMARY.format(
        findings="\n".join(finding.line() for finding in every), skipped=_told(skipped), budgets=_budgets(reports, out)
    )
    minutes = (time.monotonic() - started) / 60
    sections = [
        Section(summary),
        *(Section(report.page, out / name) for name, report in reports.items()),
        *_ablations(ablations),
        _theory(theory, out / "theory"),
        Section(_machine(data, tasks, seed, minutes)),
    ]
    with written_whole(out / "report.html") as temporary:
        temporary.write_text(web_page(TITLE, sections), encoding="utf-8")
    return summary


class Unavailable(LookupError):
    """An experiment cannot be repeated with what is at hand."""


def _with_data(experiment: type[Experiment], data: Path | None) -> Experiment:
    if not shipped(experiment.name):
        raise Unavailable("none of its models are shipped")
    if experiment.needs_data and data is None:
        raise Unavailable("it needs data; give their directory with --data, as docs/era5.md explains")
    return experiment(data if experiment.needs_data else None)


def _told(skipped: Mapping[str, str]) -> str:
    """What was skipped, and why."""
    lines = [f"- `{name}`: {reason}" for name, reason in skipped.items()]
    return "\n".join(["", "**Skipped**, and so not part of these verdicts:", "", *lines, ""]) if lines else ""


def _budgets(reports: Mapping[str, Report], results: Path) -> str:
    """For each experiment its models, how long they were trained, and on how many tasks they were tested."""
    rows = []
    for name, (comparison, _) in reports.items():
        facts = [shipped()[f"{name}/{model}"] for model in comparison.models]
        minutes = [fact["minutes"] for fact in facts]
        spread = " to ".join(dict.fromkeys(f"{end:.0f}" for end in (min(minutes), max(minutes))))
        tests = ", ".join(f"{count:,}" for count in comparison.tasks.values())
        seeds = {line["settings"].get("seed", 0) for line in pairs_of(results, name)}
        rows.append([name, str(len(facts)), spread, str(len(seeds) or 1), tests, str(comparison.seed)])
    header = ["experiment", "models", "minutes each", "seeds of pairs", "test tasks", "seed of tests"]
    return markdown_table(header, rows)


def _ablations(folder: Path) -> list[Section]:
    """Every page there with its pictures, and pictures that no page shows."""
    pages = sorted(folder.rglob("*.md"))
    sections = [Section(_titled(page), page.parent) for page in pages]
    shown = {page.parent / name for page in pages for name in re.findall(r"!\[.*?\]\((.*?)\)", page.read_text())}
    others = [file.relative_to(folder) for file in sorted(folder.rglob("*.png")) if file not in shown]
    if others:
        pictures = "\n\n".join(f"![{file.stem}]({file})" for file in others)
        sections.append(Section(f"# Pictures of ablations\n\n{pictures}\n", folder))
    return sections or [Section(ABLATIONS.format(folder=folder))]


def _titled(page: Path) -> str:
    """The text of a page, with its file's name as the title if it has none."""
    text = page.read_text().lstrip()
    return text if text.startswith("# ") else f"# {page.stem}\n\n{text}"


def _theory(theory: Approximations, out: Path) -> Section:
    """The document about the theory, in a checkout, or else its tables and its picture."""
    document = PACKAGE.parents[1] / "docs" / "theory.md"
    if document.exists():
        return Section(document.read_text(), document.parent)
    picture = draw(*theory, out / "theory.png")
    return Section(f"# The theory\n\n{theory.tables()}\n![errors and bounds]({picture.name})\n", out)


def _machine(data: Path | None, tasks: int, seed: int, minutes: float) -> str:
    rows = [
        ["processor", _processor()],
        ["cores", str(os.cpu_count())],
        ["threads of torch", str(torch.get_num_threads())],
        ["GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none"],
        ["system", f"{platform.system()} {platform.release()}, {platform.machine()}"],
        ["Python", platform.python_version()],
        *([name, version(name)] for name in ("torch", "numpy")),
        ["aenp", __version__],
    ]
    return MACHINE.format(
        today=date.today(),
        data=" --data DIR" if data else "",
        tasks=tasks,
        seed=seed,
        minutes=minutes,
        table=markdown_table(["what", "which"], rows),
    )


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", info.read_text(), re.MULTILINE) if info.exists() else []
    return names[0] if names else platform.processor()
