"""Evaluation: scores and their standard errors are right."""

from dataclasses import replace

import pytest
import torch

from aenp import CNP, Task, loglik
from aenp.data import GibbsTasks
from aenp.evaluation.scores import Score, blocks_of, distribution_values, model_values, oracle_values, summary
from aenp.experiments import experiment_class
from aenp.experiments.experiment import BEST, Stratum
from aenp.experiments.gp.experiment import SIZES

EXPERIMENT = experiment_class("gp")()


def test_standard_error_is_that_of_the_stratified_mean() -> None:
    torch.manual_seed(0)
    spread = torch.tensor([0.1, 1.0, 3.0])[:, None]
    draws = [Score.of(torch.randn(3, 50) * spread + torch.tensor([0.0, 10.0, -5.0])[:, None]) for _ in range(2000)]
    means = torch.tensor([score.mean for score in draws])
    errors = torch.tensor([score.standard_error for score in draws])
    assert errors.mean().item() == pytest.approx(means.std().item(), rel=0.05)


def test_standard_error_counts_blocks_whose_tasks_resemble_each_other() -> None:
    """Eight days, each in every stratum: what a day adds to all its tasks does not average out over tasks."""
    torch.manual_seed(0)
    blocks = torch.arange(50).repeat(3, 1) % 8
    draws = [Score.of(torch.randn(3, 50) + torch.randn(8)[blocks], blocks) for _ in range(2000)]
    means = torch.tensor([score.mean for score in draws])
    errors = torch.tensor([score.standard_error for score in draws])
    assert errors.square().mean().sqrt().item() == pytest.approx(means.std().item(), rel=0.05)


def test_blocks_of_one_task_are_tasks() -> None:
    values = torch.randn(4, 100)
    alone = Score.of(values, torch.arange(400).view(4, 100)).standard_error
    assert alone == pytest.approx(Score.of(values).standard_error, rel=0.02)


def test_blocks_are_numbered_over_all_strata() -> None:
    task = EXPERIMENT.source().batch(3, 0, 0)
    strata = [Stratum(task, blocks=[700, 20, 700]), Stratum(task, blocks=[20, 20, 31])]
    assert blocks_of(strata).tolist() == [[2, 0, 2], [0, 0, 1]]  # type: ignore[union-attr]
    assert blocks_of([Stratum(task)]) is None


def test_test_tasks_have_each_context_size_equally_often() -> None:
    for strata in EXPERIMENT.tests(100, seed=3).values():
        assert [stratum.task.xc.shape[1] for stratum in strata] == list(SIZES)
        assert {len(stratum.task) for stratum in strata} == {2}
    assert EXPERIMENT.tests(100, 3)["out of distribution"][0].task.xc.min() > 10


def test_test_tasks_differ_from_those_of_training_and_validation() -> None:
    """Batches are keyed by seed and number: even where both are small, no draw is made twice."""
    inside, outside = (
        torch.cat([stratum.task.xt - stratum.task.xt.mean(1, keepdim=True) for stratum in strata])
        for strata in EXPERIMENT.tests(128, 1).values()
    )
    trained = torch.cat([EXPERIMENT.source().batch(2, size, 1).xt for size in SIZES])
    trained = trained - trained.mean(1, keepdim=True)
    for one, other in ((inside, outside), (inside, trained), (outside, trained)):
        assert (one - other).abs().amax((1, 2)).min() > 0.1


def test_model_and_oracle_values() -> None:
    model = EXPERIMENT.model("tnp", "approx")
    strata = EXPERIMENT.tests(128, seed=3)["in distribution"][:3]
    values, oracles = model_values(model, strata, norm=1), oracle_values(strata)
    with torch.no_grad():
        expected = torch.stack([loglik(model, stratum.task) for stratum in strata])
    assert torch.allclose(values["loglik"], expected.double(), atol=1e-5)
    assert (values["equivariance_deviation"] > 0).all() and (values["equivariance_distance"] > 0).all()
    assert set(oracles) >= {"ground truth", BEST, "equivariant"}
    gap = summary(values, oracles)["gap"][BEST]["mean"]
    assert gap == pytest.approx((oracles[BEST]["loglik"] - values["loglik"]).mean().item())
    assert set(summary(values)) >= {"loglik", "context_loglik", "crps", "coverage_50", "coverage_90", "coverage_95"}


def test_context_score_is_that_of_the_context() -> None:
    model = EXPERIMENT.model("convcnp", "exact")
    strata = EXPERIMENT.tests(128, seed=3)["in distribution"][4:5]
    task = strata[0].task
    with torch.no_grad():
        expected = loglik(model, Task(task.xc, task.yc, task.xc, task.yc))
    assert torch.allclose(model_values(model, strata, 1)["context_loglik"][0], expected.double(), atol=1e-5)


def test_context_score_has_the_contexts_covariates() -> None:
    torch.manual_seed(0)
    model, task = CNP(1, 1, dim=8, dim_covariates=1).eval(), GibbsTasks().batch(2, 0, 0)
    task = replace(task, context_covariates=task.yc, target_covariates=task.yt)
    with torch.no_grad():
        expected = loglik(model, task.with_targets(task.xc, task.yc, task.context_mask, task.yc))
    assert torch.allclose(model_values(model, [Stratum(task)], 1)["context_loglik"][0], expected.double(), atol=1e-5)


@pytest.mark.parametrize("norm", [1, 2])
def test_tasks_of_different_sizes_have_the_values_that_each_has_alone(norm: int) -> None:
    """Context and targets are padded; a transformer predicts each task as if it were alone."""
    model = EXPERIMENT.model("tnp", "approx")
    sizes = ((3, 60), (9, 20), (30, 5))
    tasks = [GibbsTasks(num_context=(n, n), num_targets=m).batch(1, 0, seed=n) for n, m in sizes]
    together = model_values(model, [Stratum(Task.stack(tasks))], norm)
    alone = [model_values(model, [Stratum(task)], norm) for task in tasks]
    assert "equivariance_deviation" in together
    for name, values in together.items():
        torch.testing.assert_close(values, torch.cat([value[name] for value in alone], dim=1), rtol=1e-3, atol=1e-4)


def test_masked_targets_do_not_count() -> None:
    task = GibbsTasks().batch(2, 0, 0)
    mask = torch.rand(task.xt.shape[:2], generator=torch.Generator().manual_seed(0)) < 0.5
    masked = task.with_targets(task.xt, task.yt, mask)
    prediction = torch.distributions.Normal(torch.zeros_like(task.yt), 1.0)
    for name, value in distribution_values(prediction, masked).items():
        for row in range(2):
            kept = Task(
                task.xc[row : row + 1],
                task.yc[row : row + 1],
                masked.xt[row, mask[row]][None],
                masked.yt[row, mask[row]][None],
            )
            alone = torch.distributions.Normal(torch.zeros_like(kept.yt), 1.0)
            assert value[row].item() == pytest.approx(distribution_values(alone, kept)[name].item(), abs=1e-5)
