"""The paper's findings: each verdict follows from the scores, and from nothing else."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from aenp.experiments.comparison import Comparison
from aenp.experiments.findings import Case, Finding, findings
from aenp.experiments.gp.experiment import Gibbs
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


def ablation(folder: Path, *runs: tuple[dict[str, Any], float, float], **tests: int) -> None:
    """Adds runs with these settings and scores, inside and outside, to the results in a folder."""
    folder.mkdir(exist_ok=True)
    with (folder / "results.jsonl").open("a") as file:
        for line in [
            {"settings": {}, "scores": {}},
            *(
                {
                    "settings": {"model": "tnp", "symmetry": "approx", "seed": seed, **settings},
                    "scores": {INSIDE: {"loglik": {"mean": inside}}, OUTSIDE: {"loglik": {"mean": outside}}},
                }
                for settings, inside, outside in runs
                for seed in (0, 1)
            ),
        ]:
            file.write(json.dumps({**line, "tasks": 4, "test_seed": 1, **tests}) + "\n")


def inputs(*scores: float | None, **settings: Any) -> list[tuple[dict[str, Any], float, float]]:
    """Runs with 0, 1, 2, … fixed inputs and these scores inside."""
    every = [({"symmetry": "exact"} if not n else {"num_fixed": n}, score) for n, score in enumerate(scores)]
    return [({**each, **settings}, score, 0.0) for each, score in every if score is not None]


@pytest.mark.parametrize(("first", "holds"), [(0.9, "holds"), (0.2, "does not hold here")])
def test_ablations_show_what_few_fixed_inputs_and_dropout_are_worth(first: float, holds: str, tmp_path: Path) -> None:
    """Of the whole gain with two fixed inputs, one has 90 % or 20 %; dropout gains outside, or costs there."""
    ablation(tmp_path / "gp-fixed-inputs", *reversed(inputs(0.0, first, 1.0)))
    ablation(tmp_path / "gp-dropout", ({"dropout": 0.0}, 0.0, 0.5), ({"dropout": 0.5}, 0.0, first))
    every = findings([], THEORY, tmp_path)
    assert [finding.verdict.split(" ", 1)[1] for finding in every[7:9]] == [holds, holds]
    assert [case.number for case in every[7].cases] == [pytest.approx(first)]
    assert [case.number for case in every[8].cases] == [pytest.approx(first - 0.5)]


def test_runs_of_other_budgets_and_of_other_test_tasks_are_cases_of_their_own(tmp_path: Path) -> None:
    """The exact model belongs to every border, and that of RelaxedConvCNP is a ConvCNP."""
    folder = tmp_path / "gp-fixed-inputs"
    ablation(folder, *inputs(0.0, 0.75, 1.0, steps=9))
    ablation(folder, *inputs(9.0, 9.25, 10.0, steps=99))
    ablation(folder, *inputs(5.0, 5.5, 6.0, steps=9), test_seed=2)
    ablation(folder, *inputs(None, 0.625, 1.0, steps=9, border="paper"))
    ablation(folder, *inputs(None, 1.0, 4.0, model="relaxedconvcnp"), *inputs(0.0, model="convcnp"))
    ablation(tmp_path / "gp-dropout", ({"dropout": 0.0}, 0.0, 0.5), ({"dropout": 0.5, "steps": 9}, 0.0, 0.75))
    *_, first, dropped, _ = findings([], THEORY, tmp_path)
    assert [case.number for case in first.cases] == pytest.approx([0.75, 0.25, 0.5, 0.625, 0.25])
    assert not dropped.cases


@pytest.mark.parametrize(
    ("scores", "shown"),
    [((0.0, 1.0), []), ((0.0, None, 1.0, 2.0), []), ((None, 1.0, 2.0), []), ((1.0, 0.5, 0.75), [False])],
)
def test_one_fixed_input_is_judged_beside_none_and_more(
    scores: tuple[float | None, ...], shown: list[bool], tmp_path: Path
) -> None:
    """Without any of these nothing is measured; where none gain anything, one does not either."""
    ablation(tmp_path / "gp-fixed-inputs", *inputs(*scores))
    assert [case.holds for case in findings([], THEORY, tmp_path)[7].cases] == shown
