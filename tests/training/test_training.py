"""Training: a run ends the same however often it is stopped, and stops where it should."""

import csv
import math
import os
import signal
import subprocess
import sys
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch.optim.optimizer import register_optimizer_step_pre_hook

from aenp import TNP, FixedInputs, Task, load
from aenp.data import GibbsTasks, Stream
from aenp.inference import loglik
from aenp.training.directory import read_checkpoint
from aenp.training.loop import Loop, NonFinite, train
from aenp.training.machine import Machine
from aenp.training.progress import Progress
from aenp.training.recipe import Recipe

SOURCE = GibbsTasks(num_context=(1, 4), num_targets=4, equal_sizes=True)
RECIPE = Recipe(steps=6, batch_size=2)


def small_model(approximate: bool = True) -> TNP:
    torch.manual_seed(0)
    fixed_inputs = FixedInputs(1, num=4, width=4, domain=[(-7.0, 7.0)]) if approximate else None
    return TNP(1, 1, attention="spectral", dim=8, heads=2, layers=1, fixed_inputs=fixed_inputs)


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


def test_terminated_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the trainer is starting, SIGTERM stops the run as it does later."""
    make_loader = Loop.train_dataloader

    def terminated(self: Loop) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return make_loader(self)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "train_dataloader", terminated)
        outcome = train(small_model(), SOURCE, RECIPE, tmp_path)
    assert not outcome.finished and outcome.steps <= 1
    assert train(small_model(), SOURCE, RECIPE, tmp_path).finished


def test_model_and_logs_are_written(tmp_path: Path) -> None:
    model = small_model()
    tasks = [SOURCE.batch(2, 0, 9)]
    outcome = train(model, SOURCE, RECIPE, tmp_path, validation=tasks, oracle=0.0, validate_every=3)
    assert (outcome.steps, outcome.finished) == (6, True)
    assert equal(load(tmp_path / "model.safetensors"), model)
    with (tmp_path / "logs/from_step_0/metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    validated = [float(row["validation_loglik"]) for row in rows if row["validation_loglik"]]
    assert len(validated) == 2
    assert validated[-1] == pytest.approx(loglik(model, tasks[0]).mean().item(), abs=1e-5)
    assert list((tmp_path / "logs/tensorboard").glob("events*"))


@pytest.mark.parametrize("stop", [None, 2, 3])
def test_the_best_weights_are_kept_if_asked_for(stop: int | None, tmp_path: Path) -> None:
    """Where the score on validation tasks falls, the model ends with those before, also if it was stopped then."""
    recipe = replace(RECIPE, steps=4, average=0.0, schedule="constant")
    early, last, best = small_model(), small_model(), small_model()
    train(early, SOURCE, replace(recipe, steps=2), tmp_path / "early")
    train(last, SOURCE, recipe, tmp_path / "last")
    task = SOURCE.batch(2, 0, 9)
    before, after = (model(task).mean.detach() for model in (early, last))
    behind = [replace(task, yt=before + 100 * (before - after))]  # from which training leads away
    kept: dict[str, Any] = {"validation": behind, "validate_every": 2, "keep_best": True}
    if stop is not None:
        train(small_model(), SOURCE, replace(recipe, steps=stop), tmp_path / "best", **kept)
    train(best, SOURCE, recipe, tmp_path / "best", **kept, resume=stop is not None)
    assert equal(best, early) and not equal(last, early)
    assert equal(load(tmp_path / "best/model.safetensors"), early)


class WithCovariates:
    """Tasks whose covariates are their outputs."""

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        task = SOURCE.batch(batch_size, index, seed)
        return replace(task, context_covariates=task.yc, target_covariates=task.yt)


def test_models_with_covariates_are_trained(tmp_path: Path) -> None:
    model = TNP(1, 1, attention="spectral", dim=8, heads=2, layers=1, dim_covariates=1)
    before = deepcopy(model)
    train(model, WithCovariates(), RECIPE, tmp_path)
    pairs = zip(model.embed_covariates.parameters(), before.embed_covariates.parameters(), strict=True)
    assert not any(torch.equal(one, other) for one, other in pairs)


def test_training_is_adamw_on_the_stream_with_an_average(tmp_path: Path) -> None:
    """The run does what a plain loop does, except for a few parameters whose gradients are mere round-off."""
    model, plain = small_model(approximate=False), small_model(approximate=False)
    recipe = replace(RECIPE, average=0.5, schedule="constant", weight_decay=0.1)
    train(model, SOURCE, recipe, tmp_path)
    matrices = [p for p in plain.parameters() if p.ndim > 1]
    vectors = [p for p in plain.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=recipe.learning_rate, fused=True)
    average = [p.detach().clone() for p in plain.parameters()]
    stream = iter(Stream(SOURCE, recipe.batch_size, 0))
    for step in range(1, recipe.steps + 1):
        optimiser.zero_grad()
        (-loglik(plain, next(stream)).mean()).backward()
        torch.nn.utils.clip_grad_value_(plain.parameters(), recipe.clip)
        optimiser.step()
        now = [p.detach().clone() for p in plain.parameters()]
        weight = max(0.5, 9 / (step + 9))
        average = [(1 - weight) * a + weight * p for a, p in zip(average, now, strict=True)]
    pairs = zip(model.parameters(), average, strict=True)
    differs = torch.cat([((p - q).abs() > 1e-6).flatten() for p, q in pairs])
    assert differs.float().mean() < 0.02


def test_a_budget_in_minutes_ends_on_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock on which every step takes 0.125 seconds."""
    ticks = count(0.0, 0.125)
    monkeypatch.setattr("aenp.training.loop.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    outcome = train(small_model(), SOURCE, RECIPE, tmp_path, minutes=0.02)
    assert outcome.finished and outcome.steps == 10
    with pytest.raises(FileExistsError, match="already holds a run"):
        train(small_model(), SOURCE, RECIPE, tmp_path, minutes=0.02)
    finished = small_model()
    again = train(finished, SOURCE, RECIPE, tmp_path, minutes=0.02, resume=True)
    assert again == outcome and equal(finished, load(tmp_path / "model.safetensors"))
    longer = train(small_model(), SOURCE, RECIPE, tmp_path, minutes=0.04, resume=True)
    assert longer.steps > outcome.steps and longer.finished


def test_resuming_nothing_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no run to resume"):
        train(small_model(), SOURCE, RECIPE, tmp_path, resume=True)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = count()
    factor = lambda: math.nan if next(steps) >= 4 else 1.0  # noqa: E731
    monkeypatch.setattr("aenp.training.loop.loglik", lambda model, task: factor() * loglik(model, task))
    with pytest.raises(NonFinite, match=r"at step 4\. The last good state is .*last\.ckpt"):
        train(small_model(), SOURCE, RECIPE, tmp_path, checkpoint_seconds=0.0)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert state["global_step"] == 4
    assert all(bool(torch.isfinite(value).all()) for value in state["state_dict"].values())


def test_mixed_precision_can_clip_gradients(tmp_path: Path) -> None:
    """Lightning cannot clip what a fused optimiser unscales; half precision itself is not for every CPU."""
    progress = Progress(6, None, None, quiet=True)
    run = Loop(small_model(), SOURCE, RECIPE, tmp_path, None, 0, [], progress, 60.0, lambda model: model, False)
    run._trainer = Trainer(precision="bf16-mixed", logger=False, enable_checkpointing=False, barebones=True)
    optimiser = run.configure_optimizers()
    for parameter in run.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    run.trainer.precision_plugin.clip_gradients(optimiser, 0.5, GradClipAlgorithmType.VALUE)
    assert all(parameter.grad.max() == 0.5 for parameter in run.model.parameters())


def test_double_precision(tmp_path: Path) -> None:
    model = small_model()
    train(model, SOURCE, RECIPE, tmp_path, machine=Machine(precision="64-true"))
    assert model.dtype == torch.float64


def test_rate_warms_up_and_falls_to_zero() -> None:
    recipe = Recipe(steps=100, learning_rate=2.0, warmup=0.1)
    assert recipe.rate(0.05) == pytest.approx(1.0)
    assert recipe.rate(0.5) == pytest.approx(1.0)
    assert recipe.rate(1.0) == pytest.approx(0.0)
    assert replace(recipe, schedule="constant").rate(0.9) == 2.0


def test_processes_share_the_stream() -> None:
    """Each batch goes to one of several processes, and a later start leaves none out."""
    whole = iter(Stream(SOURCE, 2, 0))
    ranks = [iter(Stream(SOURCE, 2, 0, rank=rank, ranks=2)) for rank in range(2)]
    for _ in range(2):
        for rank in ranks:
            assert torch.equal(next(rank).yc, next(whole).yc)
    later = iter(Stream(SOURCE, 2, 0, start=2, rank=1, ranks=2))
    next(whole)
    assert torch.equal(next(later).yc, next(whole).yc)


@dataclass(frozen=True)
class Pairs:
    """Two batches of a source as one."""

    source: GibbsTasks

    def batch(self, batch_size: int, index: int, seed: int) -> Task:
        return Task.stack([self.source.batch(batch_size // 2, 2 * index + i, seed) for i in range(2)])


@pytest.mark.slow
def test_two_processes_train_as_one_with_twice_the_batch(tmp_path: Path) -> None:
    code = """
import sys, torch
sys.path.insert(0, sys.argv[2])
from test_training import *
if __name__ == "__main__":
    train(small_model(approximate=False), SOURCE, RECIPE, sys.argv[1], machine=Machine(devices=2))
"""
    script = tmp_path / "two.py"
    script.write_text(code)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(tmp_path / "two"), str(Path(__file__).parent)]
    subprocess.run(command, check=True, timeout=600, env=environment, capture_output=True)
    one, alone = small_model(approximate=False), small_model(approximate=False)
    train(one, Pairs(SOURCE), replace(RECIPE, batch_size=4), tmp_path / "one")
    train(alone, SOURCE, RECIPE, tmp_path / "alone")
    with torch.no_grad():
        task = SOURCE.batch(8, 0, 9)
        two = loglik(load(tmp_path / "two/model.safetensors"), task)
        assert (loglik(one, task) - two).abs().max() < 1e-4
        assert (loglik(alone, task) - two).abs().max() > 1e-3


def test_dropout_is_drawn_anew_in_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And in every run, unless it has the same seed."""
    draw, draws = FixedInputs.draw_keep, list[tuple[float, ...]]()

    def watched(self: FixedInputs, batch: int, device: torch.device) -> torch.Tensor | None:
        keep = draw(self, batch, device)
        draws.append(tuple(keep.tolist()))  # type: ignore[union-attr]
        return keep

    monkeypatch.setattr(FixedInputs, "draw_keep", watched)
    recipe = replace(RECIPE, batch_size=64)
    for out, seed in (("one", 0), ("same", 0), ("other", 1)):
        train(small_model(), SOURCE, recipe, tmp_path / out, seed=seed)
    one, same, other = draws[:6], draws[6:12], draws[12:]
    assert one == same and len(other) == 6
    assert len({*one, *other}) == 12


def test_muon_trains_hidden_matrices_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    recipe = replace(RECIPE, optimiser="muon", schedule="constant")
    torch.manual_seed(0)
    models = [TNP(1, 1, attention="spectral", dim=16, heads=2, layers=1)]
    models += [deepcopy(models[0]) for _ in range(2)]
    train(models[0], SOURCE, recipe, tmp_path / "whole")
    train(models[1], SOURCE, replace(recipe, steps=3), tmp_path / "parts")
    train(models[1], SOURCE, recipe, tmp_path / "parts", resume=True)
    assert equal(models[0], models[1])
    train(models[2], SOURCE, replace(recipe, optimiser="adamw"), tmp_path / "adamw")
    assert not equal(models[0], models[2])
    (state,) = read_checkpoint(tmp_path / "whole" / "last.ckpt")["optimizer_states"]
    kinds = [set(moments) for moments in state["state"].values()]
    assert kinds.count({"momentum"}) == sum(min(p.flatten(1).shape) >= 16 for p in models[0].parameters() if p.ndim > 1)
    assert {frozenset(kind) for kind in kinds} == {
        frozenset({"momentum"}),
        frozenset({"step", "exp_avg", "exp_avg_sq"}),
    }


def test_fixed_inputs_are_trained_after_the_exact_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active = list[bool]()
    forward = FixedInputs.forward

    def watched(self: FixedInputs, *arguments: Any) -> torch.Tensor:
        active.append(self.active)
        return forward(self, *arguments)

    monkeypatch.setattr(FixedInputs, "forward", watched)
    model = small_model()
    train(model, SOURCE, replace(RECIPE, exact_first=0.5), tmp_path)
    assert active == [False] * 3 + [True] * 3
    assert model.fixed_inputs is not None and model.fixed_inputs.active


@pytest.mark.parametrize(("steps", "minutes"), [(4, None), (1000, 1.0)])
def test_the_learning_rate_follows_the_budget(
    steps: int, minutes: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In steps, or in minutes of a clock by which each step takes 15 seconds."""
    rates = list[set[float]]()

    def watch(optimiser: torch.optim.Optimizer, *_: object) -> None:
        rates.append({group["lr"] for group in optimiser.param_groups})

    monkeypatch.setattr("aenp.training.loop.time", SimpleNamespace(monotonic=lambda: 15.0 * len(rates)))
    recipe = replace(RECIPE, steps=steps, learning_rate=0.01, warmup=0.25)
    watching = register_optimizer_step_pre_hook(watch)
    try:
        train(small_model(), SOURCE, recipe, tmp_path, minutes)
    finally:
        watching.remove()
    expected = (0.0, 0.01 * (0.5 + 0.5 * math.cos(math.pi / 4)), 0.005, 0.01 * (0.5 - 0.5 * math.cos(math.pi / 4)))
    assert [rate for (rate,) in rates] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"devices": 0}, "devices and num_nodes must be at least 1; got 0 and 1"),
        ({"precision": "half"}, "precision must be one of 32-true, .*; got 'half'"),
    ],
)
def test_invalid_machines_raise(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Machine(**wrong)  # type: ignore[arg-type]
