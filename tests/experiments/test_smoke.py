"""The experiment with smoke plumes: its tasks are as the paper describes them, and it runs from data to pictures."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import aenp
from aenp.experiments.smoke.experiment import AXIS, FULL, NUM_CONTEXT, TEST_SEED, Smoke, patches
from aenp.experiments.smoke.simulator import Plumes
from aenp.experiments.smoke.store import generate, load


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("smoke") / "smoke.zarr"
    assert list(generate(out, num=30, workers=1))[-1] == 30
    return out


@pytest.fixture
def simulated(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations of tests and pictures are those of the data set over and over, because each takes long."""
    known = load(data, "train")

    def simulate(plumes: Plumes, *_: object) -> np.ndarray:
        return np.resize(known, (len(plumes.radius), *known.shape[1:]))

    monkeypatch.setattr("aenp.experiments.smoke.experiment.simulate", simulate)


@pytest.mark.usefixtures("simulated")
def test_test_tasks_are_patches_of_all_context_sizes() -> None:
    strata = Smoke().tests(32, seed=1)["test"]
    assert [len(stratum.task) for stratum in strata] == [2] * 16
    sizes = np.array([stratum.task.xc.shape[1] for stratum in strata])
    assert NUM_CONTEXT[0] <= sizes[0] and sizes[-1] <= NUM_CONTEXT[1] and np.ptp(np.diff(sizes)) <= 2
    for stratum in strata:
        points = torch.cat([stratum.task.xc, stratum.task.xt], dim=1)
        assert points.shape[1] == 32**2
        assert torch.isin(points, torch.from_numpy(AXIS)).all()
        assert ((points.amax(1) - points.amin(1)) == AXIS[31] - AXIS[0]).all()


def test_test_simulations_are_not_in_the_data_set() -> None:
    assert not set(Plumes.draw(range(256), TEST_SEED).radius) & set(Plumes.draw(range(256), 0).radius)


def test_training_and_validation_have_simulations_of_their_own(data: Path) -> None:
    experiment = Smoke(data)
    assert np.array_equal(experiment.source().fields, load(data, "train") / np.float32(FULL))
    own = patches(load(data, "validation"))
    for number, task in enumerate(experiment.validation()[0]):
        assert torch.equal(task.yt, own.batch(16, number, 0).yt)


@pytest.mark.usefixtures("simulated")
def test_from_data_to_a_model_its_scores_and_pictures(call: Callable[..., str], data: Path, tmp_path: Path) -> None:
    weights = tmp_path / "run" / "model.safetensors"
    model = ("--model", "convcnp", "--symmetry", "approx")
    call("train", "smoke", "--data", data, *model, "--steps", 2, "--out", weights.parent)
    assert "| test |" in call("evaluate", "smoke", "--weights", weights, "--tasks", 32)
    call("plot", "smoke", "--weights", weights, "--out", tmp_path / "figures")
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {"simulations.png", "predictions.png"}


def test_without_data_the_error_says_how_to_make_them(
    call: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("train", "smoke", "--data", tmp_path / "none.zarr", "--model", "convcnp", "--symmetry", "exact")
    assert "aenp data smoke --num" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["pttnp", "relaxedconvcnp", "equivcnp"])
def test_an_approximate_model_starts_as_its_exact_twin_and_learns_of_places(family: str) -> None:
    task = Smoke().tests(32, seed=1)["test"][4].task
    model = Smoke().model(family, "approx", seed=3)
    twin = Smoke().model(family.removeprefix("relaxed"), "exact", seed=3)
    assert torch.equal(model(task).mean, twin(task).mean) and torch.equal(model(task).stddev, twin(task).stddev)
    model.train()
    model.fixed_inputs.dropout = 0.0
    (-aenp.loglik(model, task).mean()).backward()
    assert model.fixed_inputs.mlp[-1].weight.grad.abs().max() > 0


def test_paper_sizes() -> None:
    """Appendix E.2: 128 pseudo-tokens, nine layers, D_z = 128, 8 heads; a U-Net; C8 with 16 fields, 128 channels."""
    pttnp = Smoke().model("pttnp", "approx", "paper")
    assert (pttnp.dim, pttnp.heads, len(pttnp.pseudo_values), len(pttnp.read_context)) == (128, 8, 128, 9)
    convcnp = Smoke().model("convcnp", "approx", "paper")
    assert (convcnp.fixed_inputs.num, convcnp.fixed_inputs.dropout) == (16, 0.5)
    assert [convcnp.arguments[size] for size in ("channels", "growth", "layers", "kernel")] == [16, 2, 9, 9]
    equivcnp = Smoke().model("equivcnp", "exact", "paper")
    assert [equivcnp.arguments[size] for size in ("group", "channels", "layers", "kernel")] == ["C8", 16, 9, 9]
    recipe = Smoke.setups["paper"]["convcnp"].recipe
    assert (recipe.learning_rate, recipe.batch_size, recipe.clip) == (5e-4, 16, 0.5)
