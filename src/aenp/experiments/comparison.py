"""Comparison: models and oracles on the same test tasks, in tables with the paper's numbers beside ours."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from torch import Tensor

from aenp._version import __version__
from aenp.evaluation.scores import Score, TaskValues, blocks_of, model_values, oracle_values, summary
from aenp.evaluation.tables import markdown_table
from aenp.experiments.experiment import BEST, Experiment, Number, Stratum, exact_counterpart, key_of
from aenp.experiments.kept import kept, tasks_key
from aenp.process import NeuralProcess
from aenp.saving import checksum

Column = Mapping[str, Score] | Mapping[str, Number] | Mapping[str, str]
"Numbers by model or oracle, ours or the paper's, or what is derived from them."
CONSOLE = Console(stderr=True)
"Of all progress bars: only those of one console can stand below each other."
RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")

VERDICTS = """\
Does breaking the symmetry gain what it gains in the paper? A difference counts beyond two of its standard errors.

{lines}
"""

GAIN = """
## Gain from breaking the symmetry

Log-likelihood of each approximate model minus that of its exact counterpart (for RelaxedConvCNP, a ConvCNP), of its
own equivariant part, and of its family's model without symmetry.

{table}
"""


class Comparison:
    """Every model and every oracle of an experiment on the same test tasks.

    Args:
        experiment: what is tested.
        models: the models by name.
        tasks: about how many tasks each test set has.
        seed: random seed of the test tasks.
        scores: a folder with scores that are known already, where others are kept; by default none are.
    """

    def __init__(
        self,
        experiment: Experiment,
        models: Mapping[str, NeuralProcess],
        tasks: int,
        seed: int,
        scores: Path | None = None,
    ) -> None:
        if tasks < 1:
            raise ValueError(f"tasks must be at least 1; got {tasks}")
        self.experiment, self.models, self.seed = experiment, models, seed
        with CONSOLE.status("making the test tasks") if CONSOLE.is_terminal else nullcontext():
            tests = experiment.tests(tasks, seed)
        for model in models.values():
            model.task(next(iter(tests.values()))[0].task)  # an unsuitable one is noticed before the oracles are scored
        self.tasks = {test: sum(len(stratum.task) for stratum in strata) for test, strata in tests.items()}
        self.blocks = {test: blocks_of(strata) for test, strata in tests.items()}
        self.oracles: dict[str, dict[str, TaskValues]] = {}
        self.values: dict[str, dict[str, TaskValues]] = {}
        for test, strata in tests.items():
            about = tasks_key(strata, experiment=experiment.name, seed=seed, norm=experiment.norm)
            self.oracles[test] = _by_oracle(kept(scores, about, partial(_oracle_scores, strata, test)))
            self.values[test] = {}
            for name, model in models.items():
                key = checksum({"model": model.configuration(), "tasks": about}, model.state_dict())
                self.values[test][name] = kept(
                    scores, key, partial(_model_scores, model, strata, test, experiment.norm)
                )

    def as_json(self) -> dict[str, Any]:
        """All scores as JSON values."""
        facts = {"experiment": self.experiment.name, "aenp": __version__, "seed": self.seed, "tasks": self.tasks}
        oracles = {
            oracle: {test: summary(values[oracle], None, self.blocks[test]) for test, values in self.oracles.items()}
            for oracle in next(iter(self.oracles.values()))
        }
        models = {
            name: {
                test: summary(values[name], self.oracles[test], self.blocks[test])
                for test, values in self.values.items()
            }
            for name in self.models
        }
        return facts | {"models": models, "oracles": oracles}

    def label(self, name: str) -> str:
        return self.models[name].label if name in self.models else name

    def tests(self, outside: bool) -> list[str]:
        """The test sets in the training region, or those outside."""
        return [test for test in self.tasks if (test in self.experiment.outside) == outside]

    def difference(self, test: str, one: str, other: str) -> Score:
        """How much more log-likelihood one model has than another, paired on the same tasks."""
        values = self.values[test]
        return Score.of(values[one]["loglik"] - values[other]["loglik"], self.blocks[test])

    def scores(self, test: str, metric: str) -> dict[str, Score]:
        """A metric of each oracle and each model that has it, the oracles first."""
        rows = self.oracles[test] | self.values[test]
        return {name: Score.of(values[metric], self.blocks[test]) for name, values in rows.items() if metric in values}

    def paper(self, column: str) -> dict[str, Number]:
        """The paper's numbers of each oracle, and of each model those of its family and symmetry."""
        numbers = self.experiment.paper.get(column, {})
        names = {name: name for name in self.oracles[self.first]}
        names |= {name: key_of(model) for name, model in self.models.items()}
        return {ours: numbers[theirs] for ours, theirs in names.items() if theirs in numbers}

    def loglik_table(self) -> str:
        header, columns = ["model"], list[Column]()
        for test, oracles in self.oracles.items():
            self._add_columns(header, columns, test, "loglik", test)
            if BEST in oracles:
                best = oracles[BEST]["loglik"]
                rows = oracles | self.values[test]
                header.append(f"below {BEST}")
                columns.append(self._differences(test, {n: (best, v["loglik"]) for n, v in rows.items() if n != BEST}))
        return self._table(header, columns)

    def context_table(self) -> str:
        header, columns = ["model"], list[Column]()
        for test in self.tasks:
            self._add_columns(header, columns, test, "context_loglik", f"context, {test}")
        return self._table(header, columns)

    def _add_columns(self, header: list[str], columns: list[Column], test: str, metric: str, paper: str) -> None:
        """Adds our scores on a test set and, where the paper has it, its column."""
        header.append(test)
        columns.append(self.scores(test, metric))
        if paper in self.experiment.paper:
            other = self.experiment.paper_tests.get(test)
            header.append(f"paper, {other}" if other else "paper")
            columns.append(self.paper(paper))

    def gap_table(self) -> str:
        header, columns = ["oracle"], list[Column]()
        for test, oracles in self.oracles.items():
            for name, values in self.values[test].items():
                header.append(f"{self.label(name)}, {test}")
                pairs = {oracle: (v["loglik"], values["loglik"]) for oracle, v in oracles.items()}
                columns.append(self._differences(test, pairs))
        return self._table(header, columns)

    def gain_section(self) -> str:
        """What breaking the symmetry gains, if any model does."""
        breaks = any(model.symmetry == "approx" for model in self.models.values())
        return GAIN.format(table=self.gain_table()) if breaks else ""

    def gain_table(self) -> str:
        header, columns = ["model"], list[Column]()
        for test, values in self.values.items():
            approximate = {name: v for name, v in values.items() if "equivariant_loglik" in v}
            counterparts = {name: values[exact] for name in approximate if (exact := exact_counterpart(name)) in values}
            free = {name: values[none] for name in approximate if (none := name.replace("approx", "none")) in values}
            header += [f"{test}: Δ vs exact", "Δ vs own equivariant part", "Δ vs no symmetry"]
            columns += [
                self._differences(test, {n: (approximate[n]["loglik"], v["loglik"]) for n, v in counterparts.items()}),
                self._differences(test, {n: (v["loglik"], v["equivariant_loglik"]) for n, v in approximate.items()}),
                self._differences(test, {n: (approximate[n]["loglik"], v["loglik"]) for n, v in free.items()}),
            ]
        return self._table(header, columns)

    def verdicts(self) -> str:
        """Which differences between the paper's models are found here too, as a paragraph."""
        lines = []
        for test in self.tasks:
            paper, kinds = self.paper(test), defaultdict[str, list[str]](list)
            for better, worse in self._compared():
                if not {better, worse} <= paper.keys():
                    continue
                ours, (theirs, sign) = self.difference(test, better, worse), _printed_difference(paper, better, worse)
                kind = "as in the paper" if ours.sign == sign else "unlike the paper"
                pair = f"{self.label(better)} over {self.label(worse)}"
                kinds[kind].append(f"{pair} ({_signed(ours.mean)}; paper {theirs})")
            parts = [f"{kind}: {', '.join(kinds[kind])}" for kind in sorted(kinds)]
            lines += [f"- *{test}*, {'; '.join(parts)}."] if parts else []
        return VERDICTS.format(lines="\n".join(lines)) if lines else ""

    def _compared(self) -> Iterator[tuple[str, str]]:
        """Pairs of models: with symmetry breaking and without, and no symmetry at all and an exact one."""
        for name in self.models:
            if name != exact_counterpart(name) and exact_counterpart(name) in self.models:
                yield name, exact_counterpart(name)
            if (exact := name.replace("none", "exact")) != name and exact in self.models:
                yield name, exact

    def symmetry_table(self) -> str:
        columns: list[Column] = [
            self.scores(self.first, "equivariance_deviation"),
            self.paper("deviation"),
            self._without_deviation(),
            self.scores(self.first, "equivariance_distance"),
        ]
        return self._table(["model", "deviation", "paper", "zero for", "after a shift"], columns)

    def _without_deviation(self) -> dict[str, str]:
        """For each approximate model, the share of the first test set's tasks in which its fixed inputs do nothing."""
        deviations = {name: v.get("equivariance_deviation") for name, v in self.values[self.first].items()}
        return {name: f"{(d == 0).double().mean():.1%}" for name, d in deviations.items() if d is not None}

    def calibration_table(self) -> str:
        metrics = ("crps", "coverage_50", "coverage_90", "coverage_95")
        header = ["model", *(f"{metric.replace('coverage_', '')}, {test}" for test in self.tasks for metric in metrics)]
        return self._table(header, [self.scores(test, metric) for test in self.tasks for metric in metrics])

    def _differences(self, test: str, pairs: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Score]:
        """The mean of each pair's differences, task by task."""
        return {name: Score.of(one - other, self.blocks[test]) for name, (one, other) in pairs.items()}

    @property
    def counts(self) -> str:
        """How many tasks each test set has, of how many blocks."""
        block = self.experiment.block
        blocks = {t: "" if each is None else f" from {each.max() + 1} {block}s" for t, each in self.blocks.items()}
        return ", ".join(f"{count:,} {test}{blocks[test]}" for test, count in self.tasks.items())

    @property
    def first(self) -> str:
        return next(iter(self.tasks))

    def _table(self, header: list[str], columns: Sequence[Column]) -> str:
        """One row for each name that has a number of ours."""
        names = [*next(iter(self.oracles.values())), *self.models]
        ours = {name for column in columns for name, score in column.items() if isinstance(score, Score)}
        rows = [[self.label(name), *(_cell(column, name) for column in columns)] for name in names if name in ours]
        return markdown_table(header, rows)

    def tables(self) -> str:
        """All scores as tables."""
        tables = {"Log-likelihood": self.loglik_table()}
        if next(iter(self.oracles.values())):
            tables["How far each oracle is above the model"] = self.gap_table()
        tables |= {
            "Log-likelihood of the context": self.context_table(),
            f"Equivariance deviation, {self.first}": self.symmetry_table(),
            "Calibration": self.calibration_table(),
        }
        return "\n\n".join(f"{title}\n\n{table}" for title, table in tables.items())


def _oracle_scores(strata: Sequence[Stratum], test: str) -> dict[str, Tensor]:
    """The scores of all oracles, under names such as `ground truth/loglik`."""
    every = oracle_values(_watch(strata, f"oracles, {test}"))
    return {f"{oracle}/{metric}": value for oracle, values in every.items() for metric, value in values.items()}


def _by_oracle(scores: Mapping[str, Tensor]) -> dict[str, TaskValues]:
    """The same scores by oracle, then by metric."""
    values = defaultdict[str, TaskValues](dict)
    for name, value in scores.items():
        oracle, metric = name.rsplit("/", 1)
        values[oracle][metric] = value
    return dict(values)


def _model_scores(model: NeuralProcess, strata: Sequence[Stratum], test: str, norm: int) -> dict[str, Tensor]:
    return model_values(model, _watch(strata, f"{model.label}, {test}"), norm)


def _watch(strata: Iterable[Stratum], description: str) -> Iterable[Stratum]:
    """The strata one by one, with a progress bar on standard error."""
    return track(strata, description, console=CONSOLE, transient=True, disable=not CONSOLE.is_terminal)


def _printed_difference(paper: Mapping[str, Number], better: str, worse: str) -> tuple[str, int]:
    """The paper's difference between two models, and its sign where it is more than two standard errors."""
    (one, error), (other, further) = paper[better], paper[worse]
    if math.isnan(error):
        return _cell(paper, better), -1
    difference = Score(one - other, math.hypot(error, further))
    return _signed(difference.mean), difference.sign


def _signed(value: float) -> str:
    """With two decimals, or four where two would hide it."""
    return f"{value:+.2f}" if abs(value) >= 0.01 else f"{value:+.4f}"


def _cell(column: Column, name: str) -> str:
    if name not in column:
        return ""
    score = column[name]
    if isinstance(score, Score | str):
        return str(score)
    mean, error = score
    if math.isnan(error):
        return "< −10" + str(round(math.log10(-mean))).translate(RAISED)
    decimals = max(len(f"{number:g}".partition(".")[2]) for number in score)
    return f"{mean:.{decimals}f} ± {error:g}"
