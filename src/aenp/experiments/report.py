"""Reproduction: an experiment's page, with the paper's numbers beside ours, and its figures."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from aenp._version import __version__
from aenp.evaluation.tables import markdown_table
from aenp.experiments.comparison import Comparison
from aenp.experiments.experiment import Experiment
from aenp.experiments.kept import FOLDER
from aenp.experiments.seeds import seeds_section
from aenp.process import NeuralProcess
from aenp.saving import written_whole
from aenp.shipped import shipped

PAGE = """\
# {title}

{verdicts}
Written by `aenp reproduce {name}{data} --tasks {tasks} --seed {seed}`, aenp {version}. Log-likelihoods are in nats per
target point, ± the standard error over {block}s: {counts}. Differences are paired, on the same tasks. Our models are
small and were trained for minutes on a CPU (see *Training*), the paper's for 500,000 steps on a GPU.

{remark}

## Log-likelihood

{loglik}
{gain}{seeds}
## Log-likelihood of the context

Targets are the context's own points, with their noise{no_ceiling}.

{context}

## Equivariance deviation, {first}

E[‖μ_equiv − μ_approx‖ / ‖μ_equiv‖] in the L{norm} norm, with μ_equiv the mean of the same model's equivariant part. The
paper writes the quotient within the norm, where it has no finite mean. *After a shift* is the distance between the mean
for a shifted task and the shifted mean for the task, relative to ‖μ_equiv‖ too. It is at most the sum of the deviations
before and after the shift. Shifts are random, with standard deviation 1 in each dimension of x. *Zero for* is the share
of the tasks without any deviation, because the model meets them outside the domain of its fixed inputs.{domain}

{deviation}

## Calibration

CRPS in units of y, and the share of targets in the central 50, 90 and 95 % intervals.

{calibration}

## Training of the shipped models

Minutes are of the clock, on machines that did other work too; `python -m benchmarks.budget` measures those of a core.

{training}
{findings}{figures}
"""

NO_CEILING = ": the oracles do not repeat what they have seen, so they are not a ceiling here"


class Report(NamedTuple):
    """An experiment's scores, and the page that shows them."""

    comparison: Comparison
    page: str


def write_report(
    experiment: Experiment, models: Mapping[str, NeuralProcess], out: Path, tasks: int, seed: int
) -> Report:
    """Evaluates shipped models, and writes `README.md`, `results.json` and figures to `out`.

    Called again after it was stopped, it does not compute scores again that would be the same.
    """
    comparison = Comparison(experiment, models, tasks, seed, out / FOLDER)
    text = page(comparison, experiment.figures(models, out, seed), out.parent)
    results = json.dumps(comparison.as_json(), indent=1) + "\n"
    for name, content in (("README.md", text), ("results.json", results)):
        with written_whole(out / name) as temporary:
            temporary.write_text(content)
    return Report(comparison, text)


def page(comparison: Comparison, figures: Iterable[Path], results: Path) -> str:
    """Everything as Markdown, with the spread over seeds from the ablations among the results."""
    data, split = comparison.experiment.data, comparison.experiment.split
    pictures = [f"![{file.stem.replace('_', ' ')}]({file.name})\n" for file in figures]
    return PAGE.format(
        title=comparison.experiment.title,
        name=comparison.experiment.name,
        tasks=next(iter(comparison.tasks.values())),
        seed=comparison.seed,
        version=__version__,
        data=(" --data DIR" if data else "") + (f" --split {split}" if split else ""),
        block=comparison.experiment.block,
        counts=comparison.counts,
        no_ceiling=NO_CEILING if next(iter(comparison.oracles.values())) else "",
        remark=comparison.experiment.remark,
        verdicts=comparison.verdicts(),
        first=comparison.first,
        norm=comparison.experiment.norm,
        loglik=comparison.loglik_table(),
        gain=comparison.gain_section(),
        seeds=seeds_section(results, comparison.experiment.name, comparison.label),
        context=comparison.context_table(),
        domain=_section(comparison.experiment.domain_remark),
        deviation=comparison.symmetry_table(),
        calibration=comparison.calibration_table(),
        training=training_table(comparison),
        findings=_section(comparison.experiment.findings(comparison.models, comparison.seed)),
        figures=_section("\n".join(["## Figures\n", *pictures]) if pictures else ""),
    )


def training_table(comparison: Comparison) -> str:
    """How the models were trained, where they are the shipped ones."""
    facts = {name: shipped()[f"{comparison.experiment.name}/{name}"] for name in comparison.models}
    rows = [
        [comparison.label(name), *(f"{f[fact]:,.0f}" for fact in ("parameters", "steps", "minutes", "threads", "seed"))]
        for name, f in facts.items()
    ]
    return markdown_table(["model", "parameters", "steps", "minutes", "threads", "seed"], rows)


def _section(text: str) -> str:
    return f"\n{text}" if text else ""
