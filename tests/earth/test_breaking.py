"""The symmetry test: no alarm without a cause, whatever the model, and effects that grow with the truth."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from benchmarks.breaking import REPEATED, SEED, draw, graded, small, truth

import aenp
from aenp.earth.breaking import WINDOWS, Block, Gain, SymmetryTest, draw_blocks, measure, symmetry_test
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Covariate, Frame, Variable
from aenp.earth.holdout import Choice, held_out_table

DAYS, SIZE = 40, 24
BOX = [Axis("latitude", 4.0, 40.0, 36.875, 42.875), Axis("longitude", 4.0, 10.0, 6.875, 12.875)]
FRAME = Frame(BOX, [Variable("t2m", 0.0, 1.0, "K")], ("2020-01-01", "2020-01-28"))


def fields(strength: float) -> xr.DataArray:
    """Smooth noise that is the same everywhere in law, and a hill and a valley that stay where they are."""
    rng = np.random.default_rng(0)
    waves = np.fft.fftfreq(4 * SIZE)
    smooth = np.exp(-100 * (waves[:, None] ** 2 + waves**2))
    noise = np.fft.ifft2(np.fft.fft2(rng.standard_normal((DAYS, 4 * SIZE, 4 * SIZE))) * smooth).real
    noise = noise[:, :SIZE, :SIZE] / noise.std()
    angle = 2 * np.pi * np.arange(SIZE) / SIZE
    values = noise + strength * np.sin(angle)[:, None] * np.cos(angle) + 0.1 * rng.standard_normal(noise.shape)
    coords = {
        "time": np.datetime64("2020-01-01", "ns") + np.arange(DAYS).astype("timedelta64[D]"),
        "latitude": 37 + 0.25 * np.arange(SIZE),
        "longitude": 7 + 0.25 * np.arange(SIZE),
    }
    return xr.DataArray(values.astype(np.float32), coords, ("time", "latitude", "longitude"), "t2m", {"units": "K"})


def untrained() -> FieldModel:
    torch.manual_seed(0)
    fixed = aenp.FixedInputs(2, num=4, domain=FRAME.domain)
    return FieldModel(aenp.TNP(2, 1, attention="spectral", dim=8, heads=2, layers=1, fixed_inputs=fixed), FRAME)


def blocks_of(model: FieldModel) -> list[Block]:
    return draw_blocks(model, held_out_table(model, fields(1.0), Choice(tasks=6)), seed=0)


def test_there_are_no_false_alarms_whatever_the_model() -> None:
    """On symmetric data a random model is clearly not its equivariant part, but its places gain nothing."""
    model = small("approx", seed=0)
    with torch.no_grad():
        for parameter in model.fixed_inputs.mlp.parameters():
            parameter.mul_(3)
    tests = [measure(model, list(draw(graded(0.0), 5, REPEATED + number))) for number in range(40)]
    assert sum(test.broken for test in tests) <= 3  # one is expected, and more than three are in 2 cases of 100
    assert sum(test.equivariant.high < 0 or test.equivariant.low > 0 for test in tests) > 12


def test_effects_rank_with_the_truth() -> None:
    """The shipped model expects a change of lengthscale; where there is none, that is no sign of one."""
    model, strengths = aenp.pretrained("gp/tnp-approx"), (0.0, 0.5, 1.0)
    tests = [measure(model, list(draw(graded(strength), 12, SEED))) for strength in strengths]
    assert [test.broken for test in tests] == [False, True, True]
    gains = [test.place.mean for test in tests]
    best = [truth(graded(strength), 12) for strength in strengths]
    assert gains == sorted(gains) and best == sorted(best)


def test_an_interval_is_that_of_students_distribution() -> None:
    gain = Gain.of(np.array([1.0, 2.0, 3.0, 4.0]))
    reach = 3.182446 * math.sqrt(5 / 3) / 2
    assert gain == pytest.approx((2.5, 2.5 - reach, 2.5 + reach), rel=1e-5)


def test_days_count_and_not_times() -> None:
    """With every time of a day repeated, the interval stays as it is."""
    model, blocks = small("approx", seed=0), list(draw(graded(0.5), 4, SEED))
    assert measure(model, blocks * 3).place == pytest.approx(measure(model, blocks).place)


def test_windows_lie_within_the_training_region_and_so_do_those_moved() -> None:
    """Moved by whole cells, in latitude and longitude alone."""
    model = untrained()
    blocks = blocks_of(model)
    assert len(blocks) == 6 and all(len(block.task) == WINDOWS for block in blocks)
    lower, upper = torch.tensor(FRAME.domain).T
    for block in blocks:
        moved = block.exchanged()
        for task in (block.task, moved):
            assert ((task.xt >= lower) & (task.xt <= upper)).all()
        cells = (moved.xt - block.task.xt)[:, 0] * 4.0 / 0.25
        assert torch.allclose(cells, cells.round(), atol=1e-4) and (cells.abs().sum(-1) > 0.5).all()
        assert moved.yt is not None and torch.equal(moved.yt, block.task.yt)


def test_models_are_not_tested_on_their_training_period() -> None:
    table = held_out_table(untrained(), fields(0.0), Choice(tasks=100))
    assert table["time"].min() == np.datetime64("2020-01-29") and table["time"].nunique() == DAYS - 28


@pytest.mark.parametrize(
    ("place", "equivariant", "told"),
    [
        (Gain(0.01, -0.01, 0.03), Gain(0.5, 0.4, 0.6), "no sign that the symmetry is broken: .* at most 0.030"),
        (Gain(0.2, 0.1, 0.3), Gain(0.5, 0.4, 0.6), r"is broken: .*, and knowing them gains the model 0.500 \[0.400"),
        (Gain(0.2, 0.1, 0.3), Gain(0.0, -0.1, 0.1), "is broken: .*, but this model does not clearly gain by it"),
    ],
)
def test_the_verdict_is_a_sentence(place: Gain, equivariant: Gain, told: str) -> None:
    test = SymmetryTest(place, equivariant, Gain(0.3, 0.2, 0.4), days=9)
    assert test.broken == (place.low > 0)
    assert re.search(told, test.verdict)
    assert test.verdict in str(test) and "over 9 days" in str(test) and "over the exact model" in str(test)


def test_errors_name_what_the_test_needs() -> None:
    model = untrained()
    with pytest.raises(ValueError, match="needs an approximate model, with fixed inputs; got symmetry 'exact'"):
        measure(small("exact", seed=0), [])
    with pytest.raises(
        ValueError, match=r"needs 4 days with windows of 8 observations .* got 2\. Give data of more days"
    ):
        symmetry_test(fields(0.0), model, days=("2020-02-01", "2020-02-02"))
    with pytest.raises(ValueError, match=r"has 6 dates, of which 2 would be left to test on; .* needs 4"):
        symmetry_test(fields(0.0)[:6], steps=1)


def test_the_command_fits_two_models_and_continues(
    call: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Called again it trains nothing, and models that are given are tested alike."""
    monkeypatch.chdir(tmp_path)
    fields(1.0).to_netcdf("t2m.nc")
    words = ("test-symmetry", "t2m.nc", "--steps", 2, "--tasks", 6, "--family", "tnp")
    told = call(*words)
    assert "gain of the approximate model, nats per target, 95% interval over 6 days" in told
    files = [Path("runs", "symmetry", symmetry, "model.safetensors") for symmetry in ("approx", "exact")]
    assert FieldModel.load(files[0]).process.symmetry == "approx" and FieldModel.load(files[1]).frame.period == (
        "2020-01-01",
        "2020-01-28",
    )
    assert call(*words) == told
    assert call("test-symmetry", "t2m.nc", "--approximate", files[0], "--exact", files[1], "--tasks", 6) == told


def test_local_effects_that_fit_switched_off_are_tested_in_full() -> None:
    model, blocks = small("approx", seed=0), list(draw(graded(0.5), 4, SEED))
    expected, fixed = measure(model, blocks), model.fixed_inputs
    assert fixed is not None and expected.place.mean != 0
    fixed.strength = 0.0
    assert measure(model, blocks) == expected and fixed.strength == 0


def test_options_and_models_that_the_test_cannot_use_raise() -> None:
    model = untrained()
    with pytest.raises(ValueError, match="further options are variable, region, seed; got typo"):
        symmetry_test(fields(0.0), model, typo=3)
    with pytest.raises(ValueError, match=r"further options are family, .*; got covariates"):
        symmetry_test(fields(0.0), covariates=["topo.nc"])
    with pytest.raises(ValueError, match="compared with an approximate one; give both, or neither"):
        symmetry_test(fields(0.0), exact=model)
    known = Frame(BOX, FRAME.variables, FRAME.period, [Covariate("topo", 0.0, 1.0, "m")])
    fixed = aenp.FixedInputs(2, num=4, domain=FRAME.domain)
    process = aenp.TNP(2, 1, dim=8, heads=2, layers=1, fixed_inputs=fixed, dim_covariates=1)
    with pytest.raises(ValueError, match="needs models without covariates"):
        symmetry_test(fields(0.0), FieldModel(process, known))


def test_options_are_those_of_fit() -> None:
    with pytest.raises(ValueError, match="family must be one of"):
        symmetry_test(fields(0.0), family="kriging")
