"""The experiment with surface temperatures: regions and periods that do not mix, and what is drawn and found."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aenp.experiments.era5 import SPLITS, Temperature

DATA = Path(__file__).parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"there are no climate data at {DATA}")


@pytest.mark.parametrize("split", SPLITS)
def test_what_is_tested_on_is_later_than_what_is_trained_on(split: str) -> None:
    parts = SPLITS[split]
    inside, _ = parts.tests.values()
    assert parts.train.period[1] < parts.validation.period[0] and parts.validation.period[1] < inside.period[0]
    assert inside.region == parts.train.region


@needs_data
def test_out_of_distribution_tasks_lie_out_of_the_domain() -> None:
    experiment = Temperature(DATA)
    fixed_inputs = experiment.model("convcnp", "approx").fixed_inputs
    tests = experiment.tests(32, seed=1)
    for name, within in (("Italy", True), ("UK", False)):
        for stratum in tests[name]:
            assert fixed_inputs.contains(stratum.task.xt).all() == within
    source = experiment.source()
    values = np.stack([source.batch(16, index, 0).yt for index in range(4)])
    assert abs(values.mean()) < 0.5 and 0.5 < values.std() < 1.5


@pytest.mark.slow
@needs_data
def test_from_data_to_scores_and_maps(call: Callable[..., str], tmp_path: Path) -> None:
    weights = tmp_path / "run" / "model.safetensors"
    model = ("--model", "convcnp", "--symmetry", "approx", "--data", DATA)
    call("train", "era5-2d", *model, "--steps", 2, "--out", weights.parent)
    scores = call("evaluate", "era5-2d", "--weights", weights, "--tasks", 32, "--data", DATA)
    assert "| Italy |" in scores and "| UK |" in scores
    files = call("plot", "era5-2d", "--weights", weights, "--out", tmp_path, "--data", DATA)
    assert Path(files.strip()).exists()


@needs_data
def test_local_effects_are_compared_with_elevation() -> None:
    experiment = Temperature(DATA)
    page = experiment.findings({"convcnp-approx": experiment.model("convcnp", "approx")}, seed=0)
    assert "| ConvCNP (T~) |" in page


def test_without_data_or_with_an_unknown_split_the_error_tells_what_is_wanted() -> None:
    with pytest.raises(ValueError, match="needs --data, a directory with era5_italy"):
        Temperature().source()
    with pytest.raises(ValueError, match="has italy, paper splits; got 'us'"):
        Temperature(split="us")
