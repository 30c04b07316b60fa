"""The experiment with surface temperatures: regions and periods that do not mix, and what is drawn and found."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from aenp.data.windows import Windows
from aenp.experiments import EXPERIMENTS, Experiment, shipped_models
from aenp.experiments.era5 import SPLITS, Temperature, compare_with_elevation
from aenp.experiments.era5_points import DEGREES, FILE, PointTemperature, SpaceTimeTemperature, _late

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
            inside = fixed_inputs.contains(stratum.task.xt)
            assert inside.all() if within else not inside.any()
    source = experiment.source()
    values = np.stack([source.batch(16, index, 0).yt for index in range(4)])
    assert abs(values.mean()) < 0.5 and 0.5 < values.std() < 1.5


@needs_data
def test_points_are_tested_where_and_when_they_were_not_trained_on() -> None:
    plane, space_time = PointTemperature(DATA), SpaceTimeTemperature(DATA)
    within = {"Europe": True, "elsewhere": False}
    for experiment, domains in ((plane, within), (space_time, within | {"Europe, 2010": False})):
        fixed_inputs = experiment.model("pttnp", "approx").fixed_inputs
        tests = experiment.tests(32, seed=1)
        assert set(tests) == set(domains)
        for name, inside in domains.items():
            for stratum in tests[name]:
                task = stratum.task
                shown = fixed_inputs.contains(task.xt)
                shown = shown if task.target_mask is None else shown[task.target_mask]
                assert shown.all() if inside else not shown.any()
    trained, tested = (windows.values for windows in (space_time.source(), _windows(space_time, "Europe")))
    assert trained.shape == tested.shape
    assert np.isfinite(trained).any() and np.isfinite(tested).any()
    assert not (np.isfinite(trained).any(axis=1) & np.isfinite(tested).any(axis=1)).any()


def _windows(experiment: PointTemperature, test: str) -> Windows:
    return experiment._windows(experiment._test_points()[test])


@needs_data
def test_a_point_is_a_node_with_all_that_is_known_of_it() -> None:
    points = PointTemperature(DATA)._every
    places = points.places[:, :2]
    assert len(np.unique(places, axis=0)) == len(places)
    data = xr.open_dataset(DATA / FILE)
    for number in (0, 500, 2000):
        latitude, longitude = DEGREES * places[number]
        here = (abs(data.era_lat - latitude) < 1e-6) & (abs(data.era_lon - longitude) < 1e-6)
        known = data.t2m_era5.isel(point=np.flatnonzero(here)).max("point")
        assert np.array_equal(known.values.astype(np.float32), points.values[:, number], equal_nan=True)


def test_late_days_are_those_after_the_24th() -> None:
    dates = np.arange("2008-02-20", "2008-03-05", dtype="datetime64[D]").astype("datetime64[ns]")
    assert dates[_late(dates)].astype("datetime64[D]").astype(str).tolist() == [f"2008-02-{n}" for n in range(25, 30)]


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("experiment", ["era5-2d", "era5-points-2d", "era5-4d"])
def test_from_data_to_scores_and_maps(experiment: str, call: Callable[..., str], tmp_path: Path) -> None:
    weights = tmp_path / "run" / "model.safetensors"
    family = EXPERIMENTS[experiment].models[-1][0]
    model = ("--model", family, "--symmetry", "approx", "--data", DATA)
    call("train", experiment, *model, "--steps", 2, "--out", weights.parent)
    scores = call("evaluate", experiment, "--weights", weights, "--tasks", 32, "--data", DATA)
    for test in EXPERIMENTS[experiment](DATA).tests(32, seed=0):
        assert f"| {test} |" in scores
    files = call("plot", experiment, "--weights", weights, "--out", tmp_path, "--data", DATA)
    assert Path(files.strip()).exists()


def test_local_effects_are_compared_with_elevation_on_land() -> None:
    elevation = np.array([[0.0, 500.0], [1500.0, 1000.0]])
    effect = np.where(elevation > 0, -6e-3 * elevation, 50.0)
    page = compare_with_elevation({"lapse": effect}, elevation, elevation > 0, "two tasks")
    assert "| lapse | -1.00 | -6.0 |" in page and "over two tasks" in page


@needs_data
@pytest.mark.parametrize("experiment", [Temperature, PointTemperature])
def test_findings_tell_of_each_approximate_model(experiment: type[Experiment]) -> None:
    models = {"convcnp-approx": experiment(DATA).model("convcnp", "approx")}
    assert "| ConvCNP (T~) |" in experiment(DATA).findings(models, seed=0)


def test_without_data_or_with_an_unknown_split_the_error_tells_what_is_wanted() -> None:
    with pytest.raises(ValueError, match="needs --data, a directory with era5_italy"):
        Temperature().source()
    with pytest.raises(ValueError, match="needs --data, a directory with era5_gsod"):
        PointTemperature().source()
    with pytest.raises(FileNotFoundError, match=r"era5_italy.* does not exist, which era5-2d reads"):
        Temperature(Path("nowhere")).source()
    with pytest.raises(ValueError, match="are for the split italy, not paper: train some"):
        shipped_models(Temperature(split="paper"))
    with pytest.raises(ValueError, match="has italy, paper splits; got 'us'"):
        Temperature(split="us")
