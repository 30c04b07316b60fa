"""Kept scores: computed once, and only used again where the same would come out."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from aenp.data import GibbsTasks
from aenp.evaluation.scores import Stratum
from aenp.experiments.kept import PACKAGE, SCORING, kept, tasks_key


def test_values_are_computed_once_and_come_back_in_their_order(tmp_path: Path) -> None:
    calls = []

    def compute() -> dict[str, Tensor]:
        calls.append(1)
        return {"z": torch.tensor([1.0]), "a b": torch.tensor([2.0, 3.0], dtype=torch.float64)}

    first, second = (kept(tmp_path, "key", compute) for _ in range(2))
    assert list(first) == list(second) == ["z", "a b"] and len(calls) == 1
    assert all(torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype for name in first)
    kept(tmp_path, "other", compute)
    kept(None, "key", compute)
    assert len(calls) == 3 and len(list(tmp_path.iterdir())) == 2


def test_values_in_a_damaged_file_are_computed_again(tmp_path: Path) -> None:
    """Even where a single bit of a number has changed."""
    file, scores = tmp_path / "key.safetensors", torch.tensor([2.0, 3.0])
    kept(tmp_path, "key", lambda: {"a": scores})
    whole = file.read_bytes()
    for damaged in (b"damaged", whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        assert torch.equal(kept(tmp_path, "key", lambda: {"a": scores})["a"], scores)
        assert file.read_bytes() == whole


def test_the_key_of_tasks_changes_with_every_part_of_them() -> None:
    strata = [Stratum(GibbsTasks().batch(2, index, seed=0)) for index in range(2)]
    key = tasks_key(strata, seed=0)
    assert key == tasks_key([Stratum(GibbsTasks().batch(2, index, seed=0)) for index in range(2)], seed=0)
    other = replace(strata[1].task, yt=strata[1].task.yt + 1e-6)
    masked = strata[1].task.with_targets(other.xt, strata[1].task.yt, torch.arange(128).expand(2, -1) > 0)
    keys = [tasks_key([strata[0], Stratum(task)], seed=0) for task in (other, masked)]
    assert len({key, *keys, tasks_key(strata[:1], seed=0), tasks_key(strata, seed=1)}) == 5


def test_the_code_of_models_oracles_and_metrics_is_part_of_the_key() -> None:
    files = [set(PACKAGE.glob(pattern)) for pattern in SCORING]
    assert all(files)
    parts = ("process.py", "models/tnp.py", "evaluation/metrics.py", "experiments/gp/oracles.py", "data/gp.py")
    assert {PACKAGE / part for part in (*parts, "data/random_fields.py")} <= set.union(*files)
