"""Adjustment: places left out of training tell how far local effects can be trusted, and how wide intervals must be."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from aenp import FixedInputs, Task
from aenp.earth import adjustment, fitting
from aenp.earth.adjustment import adjust
from aenp.earth.field_model import FieldModel
from aenp.evaluation.metrics import covered
from aenp.likelihoods import Likelihood, Normal, Robust, widened
from aenp.process import NeuralProcess


class Waves(FixedInputs):
    """A wave along x in place of what a network would learn."""

    def forward(self, x: Tensor, keep: Tensor | None = None) -> Tensor:
        return self.strength * x[..., :1].sin() * self.active


class Waving(NeuralProcess):
    """Predicts its fixed inputs, with the standard deviation of a Normal likelihood whose parameter is zero."""

    def encode(self, task: Task) -> None:
        return None

    def decode(self, state: None, xt: Tensor, covariates: Tensor | None = None) -> Tensor:
        mean = xt[..., :1] * 0 if self.fixed_inputs is None else self.fixed_inputs(xt)
        return torch.cat([mean, torch.zeros_like(mean)], dim=-1).float()

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32


def tasks(truth: Callable[[Tensor], Tensor], noise: float, places: int = 40) -> list[Task]:
    """What is observed on 20 days at the same places, some of which are missing each day."""
    torch.manual_seed(0)
    x = 10 * torch.rand(places, 1).expand(20, -1, -1)
    y = truth(x) + noise * torch.randn(x.shape)
    return [Task(x[:, :0], y[:, :0], x, y, target_mask=torch.rand(x.shape[:2]) < 0.8)]


def waving() -> Waving:
    return Waving(1, 1, fixed_inputs=Waves(1, 1))


def noisy(x: Tensor) -> Tensor:
    """A value of its own for each place, which no function of the place foretells."""
    return torch.randn(1, *x.shape[1:]).expand_as(x)


@pytest.mark.parametrize(("truth", "strength"), [(torch.sin, 1.0), (lambda x: 0.5 * x.sin(), 0.5)])
def test_local_effects_are_as_strong_as_at_new_places(truth: Callable[[Tensor], Tensor], strength: float) -> None:
    model = waving()
    found = adjust(model, tasks(truth, noise=0.2))
    assert found.strength == strength == model.fixed_inputs.strength
    assert found.gain.sign == 1 and str(found).startswith(f"local effects are worth +{found.gain.mean:.2f} ± ")
    assert ("of their strength" in str(found)) == (strength < 1)


def test_one_faulty_station_does_not_decide() -> None:
    """Without it local effects are worth much, and with it alone they are worth nothing."""
    [task] = tasks(torch.sin, noise=0.2)
    assert task.yt is not None
    task.yt[:, 0] = -30 * task.xt[:, 0].sin()
    assert adjust(waving(), [task]).strength == 1


@pytest.mark.parametrize("truth", [noisy, lambda x: -x.sin()])
def test_effects_that_do_not_hold_at_new_places_are_switched_off(truth: Callable[[Tensor], Tensor]) -> None:
    model = waving()
    found = adjust(model, tasks(truth, noise=0.2))
    assert found.strength == 0 == model.fixed_inputs.strength and found.gain.mean == 0
    assert str(found) == "local effects are of no clear worth at places left out of training, and are switched off"


class Doubting(Waving):
    """Knows where the noise is large from its fixed inputs, which also move its mean."""

    shift = 0.0

    def decode(self, state: None, xt: Tensor, covariates: Tensor | None = None) -> Tensor:
        wave = super().decode(state, xt)[..., :1]
        return torch.cat([self.shift * wave, 2 * wave], dim=-1)


@pytest.mark.parametrize(("shift", "strength"), [(0.0, 0.75), (0.2, 0.0)])
def test_effects_that_take_means_further_from_the_targets_are_switched_off(shift: float, strength: float) -> None:
    """Even where they are worth something in log-likelihood."""
    model = Doubting(1, 1, fixed_inputs=Waves(1, 1))
    model.shift = shift
    some = tasks(torch.zeros_like, noise=1.0)
    noise = torch.nn.functional.softplus(2 * some[0].xt.sin()) * some[0].yt
    assert adjust(model, [replace(some[0], yt=noise - 0.2 * some[0].xt.sin())]).strength == strength


@pytest.mark.parametrize(("errors", "strength"), [(1.5, 0.0), (2.5, 1.0)])
def test_effects_count_from_two_standard_errors_on(
    errors: float, strength: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what they add to the log-likelihood at 40 places."""
    x = torch.arange(40.0).view(1, 40, 1)
    gain = (-1) ** x.flatten().double() + errors * math.sqrt(1 / 39)

    def scores(model: Waving, *_: object) -> adjustment._Scores:
        return adjustment._Scores(1.0, gain * (model.fixed_inputs.strength == 1), 1.0)

    monkeypatch.setattr(adjustment, "_scores", scores)
    assert adjust(waving(), [Task(x[:, :0], x[:, :0], x, x)]).strength == strength


@pytest.mark.parametrize("likelihood", [Normal(), Robust(share=0.05, fault=2.0)], ids=["normal", "robust"])
@pytest.mark.parametrize("noise", [0.05, 3.0])
def test_intervals_hold_nine_tenths_of_the_targets_at_new_places(noise: float, likelihood: Likelihood) -> None:
    held_out = tasks(torch.sin, noise)
    model = Waving(1, 1, likelihood, Waves(1, 1))
    found = adjust(model, held_out)
    task, prediction = held_out[0], model(held_out[0])
    inside = covered(widened(prediction, found.spread), task.yt, 0.9)
    assert 0.9 <= inside[task.target_mask].double().mean() < 0.93
    before = covered(prediction, task.yt, 0.9)[task.target_mask].double().mean()
    assert not 0.8 < before < 0.95


def test_the_standard_error_is_over_places_not_days() -> None:
    """Each place keeps its own value, so that days add nothing."""
    some = tasks(lambda x: x.sin() + 0.5 * noisy(x), noise=0.01)
    twice = [*some, *some]
    once, again = (adjust(waving(), each).gain.standard_error for each in (some, twice))
    assert once == pytest.approx(again, rel=0.05)


def test_few_places_leave_standard_deviations_alone() -> None:
    assert adjust(waving(), tasks(torch.sin, 3.0, places=5)).spread == 1


def test_a_model_without_fixed_inputs_is_calibrated_only() -> None:
    found = adjust(Waving(1, 1), tasks(torch.zeros_like, noise=3.0))
    assert found.strength == 0 and found.spread > 1.5


def stations(offset: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> pd.DataFrame:
    """Stations in a square whose values are weather, the same everywhere, and an offset for each of them."""
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 10, (100, 2))
    weather = rng.normal(size=(60, 1)) + 0.3 * rng.normal(size=(60, 100))
    values = weather + offset(places, rng)
    times = pd.date_range("2020-01-01", periods=60)
    time, station = np.meshgrid(np.arange(60), np.arange(100), indexing="ij")
    where = places[station.ravel()]
    return pd.DataFrame(
        {"time": times[time.ravel()], "latitude": where[:, 0], "longitude": where[:, 1], "t": values.ravel()}
    )


def noise(places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return 2 * rng.normal(size=len(places))


def mountain(places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return -6 * np.exp(-((places - 5) ** 2).sum(axis=1) / 8)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [noise, mountain])
def test_a_mountain_is_worth_something_at_new_places_and_noise_is_not(
    offset: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The saved model keeps what `fit` has found."""
    monkeypatch.setitem(fitting.OPTIONS, "tnp", {"attention": "spectral", "dim": 32, "heads": 2, "layers": 1})
    fitted = fitting.fit(stations(offset), "tnp", steps=400, out=tmp_path)
    model = FieldModel.load(tmp_path / "model.safetensors")
    printed = capsys.readouterr().err
    assert model.local_gain == fitted.local_gain and model.spread == fitted.spread
    assert model.local_gain is not None and model.process.fixed_inputs is not None
    worth, error = model.local_gain
    if offset is mountain:
        assert worth > 2 * error and "local effects are worth +" in printed
    else:
        assert worth <= 2 * error and ("switched off" in printed) == (model.process.fixed_inputs.strength == 0)
