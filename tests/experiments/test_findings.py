"""The paper's findings: each verdict follows from the scores, and from nothing else."""

import json
import math
from pathlib import Path

import pytest
import torch

from aenp.experiments.findings import Case, Finding, findings
from aenp.experiments.gp.experiment import Gibbs
from aenp.experiments.report import Comparison
from aenp.models import make
from aenp.theory.commands import Approximations, Row

INSIDE, OUTSIDE = "in distribution", "out of distribution"
THEORY = Approximations([Row(1, 0.0, 2, 0.5, 1.0)], [], [Row(1, 1.0, 2, 0.25, 1.0)])
Scores = dict[str, dict[str, float]]


def compared(inside: Scores, outside: Scores) -> Comparison:
    """A comparison of models with these metrics, which vary by 0.01 from task to task."""
    comparison = object.__new__(Comparison)
    noise = 0.01 * torch.tensor([[-1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
    comparison.experiment, comparison.seed = Gibbs(), 0
    comparison.models = {
        name: make("tnp", name.removeprefix("tnp-"), 1, 1, dim=8, heads=2, layers=1)  # type: ignore[arg-type]
        for name in inside
    }
    comparison.tasks = dict.fromkeys((INSIDE, OUTSIDE), 4)
    comparison.blocks = dict.fromkeys(comparison.tasks)
    comparison.oracles = {test: {} for test in comparison.tasks}
    comparison.values = {
        test: {
            name: {metric: value + (number + 1) * noise for metric, value in metrics.items()}
            for number, (name, metrics) in enumerate(models.items())
        }
        for test, models in ((INSIDE, inside), (OUTSIDE, outside))
    }
    return comparison


def model(loglik: float, deviation: float | None = None) -> dict[str, float]:
    return {"loglik": loglik} if deviation is None else {"loglik": loglik, "equivariance_deviation": deviation}


def verdicts(comparison: Comparison, ablations: Path = Path("nowhere"), theory: Approximations = THEORY) -> list[str]:
    return [finding.verdict.split(" ", 1)[1] for finding in findings([comparison], theory, ablations)]


def test_findings_of_the_paper_hold_where_scores_are_as_in_the_paper() -> None:
    inside = {"tnp-none": model(1.0), "tnp-exact": model(0.5), "tnp-approx": model(1.0, 0.08)}
    outside = {"tnp-none": model(-1.0), "tnp-exact": model(0.5), "tnp-approx": model(0.7, 0.0)}
    assert verdicts(compared(inside, outside)) == [*7 * ["holds"], *2 * ["not measured here"], "holds"]


def test_findings_do_not_hold_where_scores_are_otherwise() -> None:
    inside = {"tnp-none": model(1.5), "tnp-exact": model(0.5), "tnp-approx": model(0.5, 0.2)}
    outside = {"tnp-none": model(0.1), "tnp-exact": model(0.5), "tnp-approx": model(0.3, 0.1)}
    beyond = THEORY._replace(compact=[Row(1, 0.0, 2, 1.5, 1.0)], nonlinear=[Row(1, 1.0, 2, 1.5, 1.0)])
    every = verdicts(compared(inside, outside), theory=beyond)
    assert every == [*7 * ["does not hold here"], *2 * ["not measured here"], "does not hold here"]


def test_a_difference_within_two_standard_errors_is_no_gain_and_no_loss() -> None:
    inside = {"tnp-exact": model(0.5), "tnp-approx": model(0.501, 0.01)}
    better, _, no_worse, even_better, *_ = verdicts(compared(inside, inside))
    assert (better, no_worse, even_better) == ("does not hold here", "holds", "does not hold here")


def test_a_line_has_counts_and_the_range_of_the_numbers_in_each_place() -> None:
    cases = [Case("gp", True, 0.5, 0.25), Case("gp", False, -0.1, 0.75), Case("smoke", True, 0.2)]
    line = Finding("It gains", "Nats", "{:+.2f}", cases).line()
    assert line == (
        "- **◐ holds in part**: It gains.\\\n"
        "  Nats: `gp` 1 of 2 (-0.10 to +0.50; paper +0.25 to +0.75), `smoke` 1 of 1 (+0.20)."
    )
    assert Finding("It gains", "Nats", "{}", []).line() == "- **– not measured here**: It gains."


def test_the_papers_numbers_stand_beside_ours_where_it_has_them() -> None:
    inside = {"tnp-none": model(1.0), "tnp-exact": model(0.5), "tnp-approx": model(1.0, 0.08)}
    comparison = compared(inside, inside)
    gained, *_, collapsed, deviated, _, _, _, _ = findings([comparison], THEORY, Path("nowhere"))
    assert [round(case.paper, 3) for case in (*gained.cases, *deviated.cases)] == [0.094, 0.090]
    comparison.experiment.paper = {OUTSIDE: {"tnp-none": (-1e6, math.nan), "tnp-exact": (0.5, 0.1)}}  # type: ignore[misc]
    assert [case.paper for case in findings([comparison], THEORY, Path("nowhere"))[4].cases] == [None]
    assert [round(case.paper, 3) for case in collapsed.cases] == [-0.943]


@pytest.mark.parametrize(("first", "holds"), [(0.9, "holds"), (0.2, "does not hold here")])
def test_ablations_show_what_few_fixed_inputs_and_dropout_are_worth(first: float, holds: str, tmp_path: Path) -> None:
    """Of the whole gain with 16 fixed inputs, one has 90 % or 20 %; dropout gains outside, or costs there."""
    runs = {
        "gp-fixed-inputs": [({"num_fixed": 16}, 1.0, 0.0), ({}, 0.0, 0.0), ({"num_fixed": 1}, first, 0.0)],
        "gp-dropout": [({"dropout": 0.0}, 0.0, 0.5), ({"dropout": 0.5}, 0.0, first)],
    }
    for folder, lines in runs.items():
        written = [{"settings": {}, "scores": {}}] + [
            {
                "settings": {"model": "tnp", "seed": seed, **settings},
                "scores": {INSIDE: {"loglik": {"mean": inside}}, OUTSIDE: {"loglik": {"mean": outside}}},
            }
            for settings, inside, outside in lines
            for seed in (0, 1)
        ]
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    every = findings([], THEORY, tmp_path)
    assert [finding.verdict.split(" ", 1)[1] for finding in every[7:9]] == [holds, holds]
    assert [case.number for case in every[7].cases] == [pytest.approx(first)]
    assert [case.number for case in every[8].cases] == [pytest.approx(first - 0.5)]
