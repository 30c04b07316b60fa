"""The paper's findings: which of them hold here, decided by the scores alone."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from aenp.evaluation.scores import Score
from aenp.experiments import experiments
from aenp.experiments.comparison import Comparison
from aenp.experiments.experiment import Number, exact_counterpart, key
from aenp.experiments.seeds import common, lines_of
from aenp.theory.commands import Approximations

COLLAPSE = 0.5
"Nats per target point by which a model that collapses is worse than an equivariant one."
SILENT = 0.001
"The largest deviation of a model whose fixed inputs count as having no effect."


class Case(NamedTuple):
    """One comparison that a finding rests on: where, whether it is as found, the number and perhaps the paper's."""

    where: str
    holds: bool
    number: float
    paper: float | None = None


@dataclass(frozen=True)
class Finding:
    """What the paper found, what the number in each case is and how it is written, and the cases."""

    claim: str
    number: str
    form: str
    cases: Sequence[Case]

    @property
    def verdict(self) -> str:
        share = [case.holds for case in self.cases]
        if not share:
            return "– not measured here"
        return "✓ holds" if all(share) else "◐ holds in part" if any(share) else "✗ does not hold here"

    def line(self) -> str:
        """The verdict and the claim, and in each place how many cases are as found, with the range of the numbers."""
        parts = []
        for where, group in groupby(self.cases, key=lambda case: case.where):
            cases = list(group)
            ours = self._range([case.number for case in cases])
            theirs = self._range([case.paper for case in cases if case.paper is not None])
            known = f"; paper {theirs}" if theirs else ""
            parts.append(f"`{where}` {sum(case.holds for case in cases)} of {len(cases)} ({ours}{known})")
        told = f"\\\n  {self.number}: {', '.join(parts)}." if parts else ""
        return f"- **{self.verdict}**: {self.claim}.{told}"

    def _range(self, numbers: Sequence[float]) -> str:
        ends = (min(numbers), max(numbers)) if numbers else ()
        return " to ".join(dict.fromkeys(self.form.format(end) for end in ends))


def findings(done: Sequence[Comparison], theory: Approximations, ablations: Path) -> list[Finding]:
    """The paper's findings, with what the experiments, the ablations and the theorems' constructions show of each."""
    gain = "Difference in nats per target point", "{:+.3f}"
    none, exact = _replaced("approx", "none"), _replaced("none", "exact")
    return [
        Finding(
            "In the training region, approximate equivariance is better than exact equivariance",
            *gain,
            [*_differences(done, False, exact_counterpart, lambda score: score.sign > 0)],
        ),
        Finding(
            "There it is no worse than no symmetry at all",
            *gain,
            [*_differences(done, False, none, lambda score: score.sign >= 0)],
        ),
        Finding(
            "Outside, approximate equivariance is no worse than exact equivariance",
            *gain,
            [*_differences(done, True, exact_counterpart, lambda score: score.sign >= 0)],
        ),
        Finding(
            "Outside, it is even better",
            *gain,
            [*_differences(done, True, exact_counterpart, lambda score: score.sign > 0)],
        ),
        Finding(
            f"Outside, the model without symmetry collapses: it is worse than an exact one by {COLLAPSE} nats or more",
            *gain,
            [*_differences(done, True, exact, lambda score: score.mean <= -COLLAPSE)],
        ),
        Finding(
            "Predictions deviate from the equivariant ones by a few per cent, no more than at most in the paper",
            "Equivariance deviation",
            "{:.1%}",
            [*_deviations(done)],
        ),
        Finding(
            f"Outside, the model is its own equivariant part, up to {SILENT:.1%}",
            "Equivariance deviation",
            "{:.2%}",
            [*_deviations_outside(done)],
        ),
        Finding(
            "A single fixed input suffices for most of the gain",
            "Its share of the largest gain with any number of them",
            "{:.0%}",
            [*_first_inputs(ablations)],
        ),
        Finding(
            "Fixed inputs must be dropped in training, or the model is worse outside",
            "Gain from the highest probability over none, in nats per target point",
            "{:+.3f}",
            [*_dropouts(ablations)],
        ),
        Finding(
            "The errors of the constructions in theorems 2 and 3 stay within their bounds",
            "Error as a share of its bound",
            "{:.0%}",
            [*_bounds(theory)],
        ),
    ]


def _replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda name: name.replace(old, new)


def _differences(
    done: Iterable[Comparison], outside: bool, other: Callable[[str], str], holds: Callable[[Score], bool]
) -> Iterator[Case]:
    """Each model that has an `other` to be compared with, on each test set in the training region or outside."""
    for comparison in done:
        for test in comparison.tests(outside):
            paper = comparison.paper(test)
            for name in comparison.models:
                if other(name) != name and other(name) in comparison.models:
                    score = comparison.difference(test, name, other(name))
                    theirs = _printed(paper, name, other(name))
                    yield Case(comparison.experiment.name, holds(score), score.mean, theirs)


def _printed(paper: Mapping[str, Number], one: str, other: str) -> float | None:
    """The difference between two of the paper's scores, where it has both, and not only bounds."""
    known = [paper[name][0] for name in (one, other) if name in paper and not math.isnan(paper[name][1])]
    return known[0] - known[1] if len(known) == 2 else None


def _deviations(done: Iterable[Comparison]) -> Iterator[Case]:
    """The equivariance deviations on the first test set, in the experiments for which the paper has them."""
    for comparison in done:
        if paper := comparison.paper("deviation"):
            largest = max(value for value, _ in paper.values())
            for name, score in comparison.scores(comparison.first, "equivariance_deviation").items():
                theirs = paper[name][0] if name in paper else None
                yield Case(comparison.experiment.name, score.mean <= largest, score.mean, theirs)


def _deviations_outside(done: Iterable[Comparison]) -> Iterator[Case]:
    """The equivariance deviations where fixed inputs are zero."""
    for comparison in done:
        for test in comparison.tests(outside=True):
            for score in comparison.scores(test, "equivariance_deviation").values():
                yield Case(comparison.experiment.name, score.mean <= SILENT, score.mean)


def _first_inputs(folder: Path) -> Iterator[Case]:
    """How much of the gain with any number of fixed inputs is there with one, where more have been tried."""
    for name, family, runs in _ablated(folder, "num_fixed"):
        if {0, 1} <= runs.keys() and max(runs) > 1:
            scores = {number: mean(_logliks(each, outside=False, experiment=name)) for number, each in runs.items()}
            first, largest = scores[1] - scores[0], max(scores.values()) - scores[0]
            share = first / largest if largest > 0 else 0.0
            yield Case(f"{name}, {family}", share > 0.5, share)


def _dropouts(folder: Path) -> Iterator[Case]:
    """What dropping the fixed inputs gains outside the training region."""
    for name, family, runs in _ablated(folder, "dropout"):
        if len(runs) > 1 and min(runs) == 0 and experiments()[name].outside:
            often, never = (mean(_logliks(runs[each], outside=True, experiment=name)) for each in (max(runs), 0))
            yield Case(f"{name}, {family}", often > never, often - never)


Runs = Mapping[float, list[dict[str, Any]]]
"The scores of runs by the value that an ablation varies."


def _ablated(folder: Path, setting: str) -> Iterator[tuple[str, str, Runs]]:
    """The experiment, the family and the runs of each ablation, in which only this setting and the seed differ."""
    for file in sorted(folder.rglob("results.jsonl")):
        name = next((name for name in experiments() if file.parent.name.startswith(f"{name}-")), None)
        lines = lines_of(file) if name else []
        groups = defaultdict[str, list[dict[str, Any]]](list)
        for line in lines:
            if setting in line["settings"]:
                groups[common(line, setting)].append(line)
        for group in groups.values():
            runs = defaultdict[float, list[dict[str, Any]]](list)
            for line in group:
                runs[line["settings"][setting]].append(line["scores"])
            if setting == "num_fixed" and (exact := _exact(group[0], lines)):
                runs[0] = exact
            yield str(name), group[0]["settings"]["model"], runs


def _exact(line: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The scores of the exact counterparts of a run, which have no fixed inputs and so no border of theirs."""
    name = exact_counterpart(key(line["settings"]["model"], "approx"))
    same = common(line, "model", "num_fixed", "border")
    return [
        each["scores"]
        for each in lines
        if each["settings"].get("symmetry") == "exact"
        and key(each["settings"]["model"], "exact") == name
        and common(each, "model") == same
    ]


def _logliks(runs: Iterable[Mapping[str, Any]], outside: bool, experiment: str) -> list[float]:
    tests = experiments()[experiment].outside
    return [run[test]["loglik"]["mean"] for run in runs for test in run if (test in tests) == outside]


def _bounds(theory: Approximations) -> Iterator[Case]:
    for where, rows in (("theorem 2", theory.compact), ("theorem 3", theory.nonlinear)):
        for row in rows:
            share = row.error / row.bound
            yield Case(where, share <= 1, share)
