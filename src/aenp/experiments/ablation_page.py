"""An ablation's page: its scores as a table and a plot, beside the paper's and the oracles'."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from aenp._version import __version__
from aenp.evaluation.tables import markdown_table
from aenp.experiments.ablation_results import Results, Run, Value, What, settings_of

TITLES = {
    "symmetry": "symmetry",
    "fixed-inputs": "number of fixed inputs",
    "dropout": "dropout of the fixed inputs",
    "border": "border",
}
SYMBOLS = {"symmetry": "symmetry", "fixed-inputs": "B", "dropout": "p", "border": "border"}
NOTES = {
    "symmetry": """\
Is the gain from breaking the symmetry more than luck? Both models of a pair are trained alike, but for the fixed inputs
and what their recipe says of them.""",
    "fixed-inputs": """\
B fixed inputs are mapped linearly to the channels of the network; with B = 0 the model is exactly equivariant. For the
TNP, the paper calls its number of Fourier coefficients B too; ours has the same Fourier features at every B.""",
    "dropout": """\
p is the probability that the fixed inputs are zero for a whole task in training. With p = 0 the network without them is
trained only where the domain of the fixed inputs is left.""",
    "border": """\
Outside their domain the fixed inputs are zero. The paper's domain is the whole training region, so that a model without
them is only ever trained by dropout. Ours is smaller: near its edge the model sees in training what is beyond.""",
}
PAGE = """\
# Ablation in `{name}`: {title}{border}

Written by `{command}`, aenp {version}.
{budget} for each run, where the paper has 500,000 steps on a GPU.
Compare the rows with each other, not our scores with the paper's.

Log-likelihoods are in nats per target point: the mean over seeds {seeds}, ± the standard deviation between them.
All are of the same test tasks: {tasks}. *Gain* is that over the same model's
equivariant part.

{note}

{table}
{oracles}
![{title}](scores.png)
"""


class Page:
    """An ablation's scores as a table, a plot and a page.

    Args:
        what: what is varied.
        runs: what was trained.
        results: their scores.
    """

    def __init__(self, what: What, runs: Sequence[Run], results: Results) -> None:
        self.what, self.results, self.experiment = what, results, results.tests.experiment
        self.runs: dict[str, dict[Value, list[dict[str, Any]]]] = {}
        for family, value, config in runs:
            line = results.of(settings_of(config))
            assert line is not None
            self.runs.setdefault(family, {}).setdefault(value, []).append(line)
        self.config, self.seeds = runs[0].config, list(dict.fromkeys(run.config.seed for run in runs))
        self.papers_border = what != "border" and any(run.config.border == "paper" for run in runs)
        self.oracles = (results.of({}) or {})["scores"]
        self.tests = list(self.oracles)

    def paper(self, test: str, family: str) -> Mapping[Any, float]:
        """The paper's scores by the value that is varied."""
        return self.experiment.paper_ablations.get(self.what, {}).get(test, {}).get(family, {})

    def table(self) -> str:
        header = ["model", SYMBOLS[self.what], "steps"]
        for test in self.tests:
            header += [test, "gain"]
            if self.experiment.paper_ablations.get(self.what, {}).get(test):
                other = self.experiment.paper_tests.get(test)
                header.append(f"paper, {other}" if other else "paper")
        rows = []
        for family, values in self.runs.items():
            for value, lines in values.items():
                row = [family, _shown(value), f"{mean(line['steps'] for line in lines):,.0f}"]
                for test in self.tests:
                    row += [_spread(_logliks(lines, test)), _spread(_gains(lines, test))]
                    if self.experiment.paper_ablations.get(self.what, {}).get(test):
                        score = self.paper(test, family).get(value)
                        row.append("" if score is None else f"{score:g}")
                rows.append(row)
        return markdown_table(header, rows)

    def oracle_table(self) -> str:
        """The oracles on the same tasks, where there are any."""
        rows = [
            [oracle, *(f"{self.oracles[test][oracle]['loglik']['mean']:.3f}" for test in self.tests)]
            for oracle in self.oracles[self.tests[0]]
        ]
        return f"\n{markdown_table(['oracle', *self.tests], rows)}\n" if rows else ""

    def text(self, command: str) -> str:
        config = self.config
        budget = f"{config.steps:,} steps" if config.steps else f"{config.minutes} minutes" if config.minutes else None
        counts = {test: sum(len(each.task) for each in strata) for test, strata in self.results.tests.strata.items()}
        return PAGE.format(
            name=self.experiment.name,
            title=TITLES[self.what],
            border=", with the paper's border" if self.papers_border else "",
            command=command,
            version=__version__,
            budget=f"**A small budget**: {budget}" if budget else "The preset's number of steps",
            seeds=", ".join(map(str, self.seeds)),
            tasks=", ".join(f"{count:,} {test}" for test, count in counts.items()),
            note=NOTES[self.what],
            table=self.table(),
            oracles=self.oracle_table(),
        )

    def draw(self, file: Path) -> Path:
        """Scores against the value that is varied: a line through the means, a dot for each seed."""
        from aenp.evaluation.plots import pyplot, save_figure

        size = (5.2 * len(self.tests), 4.6)
        figure, axes = pyplot.subplots(1, len(self.tests), figsize=size, squeeze=False, layout="constrained")
        for axis, test in zip(axes.flat, self.tests, strict=True):
            for number, (family, values) in enumerate(self.runs.items()):
                colour, places = f"C{number}", range(len(values))
                scores = [_logliks(lines, test) for lines in values.values()]
                axis.plot(places, list(map(mean, scores)), "-", color=colour, label=family)
                for place, each in zip(places, scores, strict=True):
                    axis.plot([place] * len(each), each, "o", color=colour, markersize=4, alpha=0.6)
                paper = self.paper(test, family)
                known = [(place, paper[value]) for place, value in enumerate(values) if value in paper]
                if known:
                    axis.plot(*zip(*known, strict=True), "s--", color=colour, markersize=3, label=f"{family}, paper")
            for oracle, style in zip(_ceilings(self.oracles[test]), ("-.", ":"), strict=False):
                level = self.oracles[test][oracle]["loglik"]["mean"]
                axis.axhline(level, color="0.4", linestyle=style, linewidth=1, label=f"{oracle} (oracle)")
            labels = [_shown(value) for value in next(iter(self.runs.values()))]
            axis.set_xticks(list(range(len(labels))), labels)
            varied = ": ".join(dict.fromkeys((SYMBOLS[self.what], TITLES[self.what])))
            axis.set(title=test, xlabel=varied, ylabel="log-likelihood")
            axis.grid(alpha=0.25)
        shown = {
            label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=3, fontsize=8)
        return save_figure(figure, file)


def _logliks(lines: Sequence[Mapping[str, Any]], test: str) -> list[float]:
    return [line["scores"][test]["loglik"]["mean"] for line in lines]


def _gains(lines: Sequence[Mapping[str, Any]], test: str) -> list[float]:
    """The gain over the equivariant part; none for an exact model."""
    scores = [line["scores"][test] for line in lines]
    return [
        each["loglik"]["mean"] - each["equivariant_loglik"]["mean"] for each in scores if "equivariant_loglik" in each
    ]


def _ceilings(oracles: Mapping[str, Any]) -> list[str]:
    """The oracles for models with a Normal likelihood, such as ours, or else all."""
    return [name for name in oracles if name.endswith("Normal")] or list(oracles)


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "".join(f"{value:.4f}" for value in values)
    return f"{mean(values):.4f} ± {stdev(values):.4f}"


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"
