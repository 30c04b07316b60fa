"""One model in several threads: each gets its own prediction."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch

from aenp.process import NeuralProcess
from catalogue import build, random_task

REPEATS = 100


@pytest.mark.parametrize("name", ["tnp-approx-targets", "pttnp-approx", "convcnp-approx", "relaxedconvcnp-approx"])
def test_equivariant_affects_only_the_calling_thread(name: str) -> None:
    """Of two threads that predict at once, one inside `equivariant()`, each gets its own answer every time."""
    model, task = build(name, 1), random_task(1, batch=1)
    expected = model.symmetry_breaking(task)
    together = Barrier(2)

    def equivariant() -> torch.Tensor:
        with model.equivariant():
            together.wait(600)
            mean = model(task).mean
            together.wait(600)
            return mean

    def approximate() -> torch.Tensor:
        together.wait(600)
        mean = model(task).mean
        together.wait(600)
        return mean

    def often(predict: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
        with torch.no_grad():
            return [predict() for _ in range(REPEATS)]

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(often, predict) for predict in (approximate, equivariant)]
        for future, prediction in zip(found, expected, strict=True):
            assert all(torch.allclose(mean, prediction.mean, atol=1e-6) for mean in future.result())
    assert not torch.allclose(expected.approximate.mean, expected.equivariant.mean, atol=1e-3)


def test_a_pickled_copy_is_switched_on() -> None:
    model, task = build("convcnp-approx", 1), random_task(1)
    with model.equivariant():
        copied: NeuralProcess = pickle.loads(pickle.dumps(model))
    assert torch.equal(copied(task).mean, model(task).mean)
