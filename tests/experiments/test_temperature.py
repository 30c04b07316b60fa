"""The experiment with surface temperatures: regions and periods do not mix, and figures and findings are right."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from torch import Tensor

import tiny
from aenp import FixedInputs, Task
from aenp.data.windows import Windows
from aenp.earth import maps as mapping
from aenp.earth.maps import Panel
from aenp.experiments import Experiment, experiments
from aenp.experiments.temperature.effects import LAND, TOPOGRAPHY, compare_with_elevation
from aenp.experiments.temperature.grid import SPLITS, Temperature
from aenp.experiments.temperature.points import PointTemperature
from aenp.experiments.temperature.space_time import GriddedSpaceTime, SpaceTimeTemperature, _late
from aenp.process import NeuralProcess


@pytest.mark.parametrize("split", SPLITS)
def test_test_data_are_later_than_training_data(split: str) -> None:
    parts = SPLITS[split]
    inside, _ = parts.tests.values()
    assert parts.train.period[1] < parts.validation.period[0] and parts.validation.period[1] < inside.period[0]
    assert inside.region == parts.train.region


def test_out_of_distribution_tasks_lie_outside_the_domain(climate: Path) -> None:
    experiment = Temperature(climate)
    fixed_inputs = experiment.model("convcnp", "approx").fixed_inputs
    tests = experiment.tests(32, seed=1)
    for name, within in (("Italy", True), ("UK", False)):
        for stratum in tests[name]:
            inside = fixed_inputs.contains(stratum.task.xt)
            assert inside.all() if within else not inside.any()
    source = experiment.source()
    values = np.concatenate([source.batch(16, index, 0).yt for index in range(4)], axis=1)
    assert abs(values.mean()) < 0.5 and 0.5 < values.std() < 1.5


def test_points_are_tested_where_and_when_they_were_not_trained_on(climate: Path) -> None:
    plane, space_time = PointTemperature(climate), SpaceTimeTemperature(climate)
    within = {"Europe": True, "elsewhere": False}
    for experiment, domains in ((plane, within), (space_time, within | {"Europe, 2010": True})):
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


def test_the_paper_preset_scores_all_targets_of_contexts_of_different_sizes(climate: Path) -> None:
    grid, points = Temperature(climate), PointTemperature(climate)
    for setup in grid.setups["paper"].values():
        task = replace(grid.source(), **setup.tasks).batch(8, 0, 0)
        seen = torch.full((8,), task.xc.shape[1]) if task.context_mask is None else task.context_mask.sum(dim=1)
        assert len(seen.unique()) > 1 and (seen + task.target_mask.sum(dim=1) == 1024).all()
    for setup in points.setups["paper"].values():
        assert replace(points.source(), **setup.tasks).num_targets is None


@pytest.fixture(scope="module")
def wfde5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of the names and of the grid of the paper's, with two values a day in a few days of its years."""
    folder = tmp_path_factory.mktemp("wfde5")
    latitude = xr.DataArray(np.arange(30.25, 60, 0.5), dims="lat")
    longitude = xr.DataArray(np.arange(-119.75, 45, 0.5), dims="lon")
    for year, first in ((2018, "2018-12-20"), (2019, "2019-07-22")):
        times = xr.DataArray(pd.date_range(first, periods=24, freq="12h", unit="ns"), dims="time")
        kelvin = tiny.temperature(times, latitude, longitude).assign_coords(time=times, lat=latitude, lon=longitude)
        kelvin.rename("Tair").assign_attrs(units="K").astype(np.float32).to_netcdf(folder / f"wfde5_{year}.nc")
    for name in (TOPOGRAPHY, LAND):
        tiny.stored(name).to_netcdf(folder / name)
    return folder


def test_the_papers_patches_are_whole_and_of_one_hour_of_four_days(wfde5: Path) -> None:
    """[4, 16, 16] points, 8° and four days, of which 10 to 341 are context (appendix E.3)."""
    experiment = SpaceTimeTemperature(wfde5, "paper")
    source = replace(experiment.source(), **experiment.setups["paper"]["pttnp"].tasks)
    for index in range(4):
        task = source.batch(1, index, 0)
        x, seen = torch.cat([task.xc, task.xt], dim=1)[0], task.xc.shape[1]
        latitude, longitude, time = (x[:, d].unique() for d in range(3))
        assert (len(x), len(latitude), len(longitude), len(time)) == (1024, 16, 16, 4) and 10 <= seen <= 341
        assert torch.allclose(time.diff() * 4, torch.ones(3, dtype=x.dtype))
        assert all(torch.allclose(side.diff() * 6, torch.full((15,), 0.5).double()) for side in (latitude, longitude))
        assert len(x[:, 3].unique()) > 1


def test_the_papers_fixed_inputs_are_for_europe_in_2018_alone(wfde5: Path) -> None:
    experiment = SpaceTimeTemperature(wfde5, "paper")
    assert isinstance(experiment, GriddedSpaceTime) and not isinstance(SpaceTimeTemperature(wfde5), GriddedSpaceTime)
    fixed_inputs = experiment.model("pttnp", "approx", "paper").fixed_inputs
    trained, (validated, *_), tests = experiment.source(), experiment.validation()[0], experiment.tests(32, seed=1)
    for task in (trained.batch(4, 0, 0), validated):
        assert fixed_inputs.contains(known_targets(task)).all()
    assert set(tests) == {"Europe, 2019", "US"} <= set(experiment.paper)
    for test, box in (("Europe, 2019", (35, 60, 10, 45)), ("US", (30, 50, -120, -80))):
        x = torch.cat([known_targets(stratum.task) for stratum in tests[test]])
        places, (south, north, west, east) = 6 * x, box
        assert (places[:, 0] > south).all() and (places[:, 0] < north).all()
        assert (places[:, 1] > west).all() and (places[:, 1] < east).all()
        assert not fixed_inputs.contains(x).any()


def known_targets(task: Task) -> Tensor:
    return task.xt.flatten(0, 1) if task.target_mask is None else task.xt[task.target_mask]


def test_the_papers_patches_are_drawn_at_one_hour(wfde5: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list[Panel]()
    monkeypatch.setattr(mapping, "map_panels", lambda panels, file, coast: drawn.extend(panels) or file)
    SpaceTimeTemperature(wfde5, "paper").figures({"one": lapse(4)}, tmp_path, seed=0)
    assert drawn[1].title == "truth, 2019-07-31" and len(drawn) == 6


def _windows(experiment: PointTemperature, test: str) -> Windows:
    return experiment._windows(experiment._test_points()[test])


def test_a_point_is_a_node_with_all_that_is_known_about_it(climate: Path) -> None:
    points = PointTemperature(climate)._every
    places = np.stack([points.latitude, points.longitude], axis=-1)
    assert len(np.unique(places, axis=0)) == len(places)
    with xr.open_dataset(climate / tiny.STATIONS) as data:
        for number in range(0, len(places), len(places) // 4):
            latitude, longitude = places[number]
            here = (abs(data.era_lat - latitude) < 1e-6) & (abs(data.era_lon - longitude) < 1e-6)
            known = data.t2m_era5.isel(point=np.flatnonzero(here)).max("point")
            assert np.array_equal(known.values.astype(np.float32), points.values[:, number], equal_nan=True)


def test_late_days_are_those_after_the_24th() -> None:
    dates = np.arange("2008-02-20", "2008-03-05", dtype="datetime64[D]").astype("datetime64[ns]")
    assert dates[_late(dates)].astype("datetime64[D]").astype(str).tolist() == [f"2008-02-{n}" for n in range(25, 30)]


@pytest.mark.slow
@pytest.mark.parametrize("climate", ["tiny"], indirect=True)
@pytest.mark.parametrize("experiment", ["era5-2d", "era5-points-2d", "era5-4d"])
def test_from_data_to_scores_and_maps(climate: Path, experiment: str, call: Callable[..., str], tmp_path: Path) -> None:
    weights = tmp_path / "run" / "model.safetensors"
    family = experiments()[experiment].models[-1][0]
    model = ("--model", family, "--symmetry", "approx", "--data", climate)
    call("train", experiment, *model, "--steps", 2, "--out", weights.parent)
    scores = call("evaluate", experiment, "--weights", weights, "--tasks", 32, "--data", climate)
    for test in experiments()[experiment](climate).tests(32, seed=0):
        assert f"| {test} |" in scores
    files = call("plot", experiment, "--weights", weights, "--out", tmp_path, "--data", climate)
    assert Path(files.strip()).exists()


def test_local_effects_are_compared_with_elevation_on_land() -> None:
    elevation = np.array([[0.0, 500.0], [1500.0, 1000.0]])
    effect = np.where(elevation > 0, -6e-3 * elevation, 50.0)
    page = compare_with_elevation({"lapse": effect}, elevation, elevation > 0, "two tasks")
    assert "| lapse | -1.00 | -6.0 |" in page and "over two tasks" in page


class Lapse(NeuralProcess):
    """The mean of the context and, with its fixed inputs on, three quarters less for each unit of latitude."""

    def encode(self, task: Task) -> Tensor:
        return task.yc.mean(dim=1, keepdim=True)

    def decode(self, state: Tensor, xt: Tensor) -> Tensor:
        knows = (self.fixed_inputs(xt) != 0).any(dim=-1, keepdim=True)
        mean = torch.where(knows, state - 0.75 * xt[..., :1], state)
        return torch.cat([mean, torch.zeros_like(mean)], dim=-1)


def lapse(dim_x: int) -> Lapse:
    torch.manual_seed(0)
    return Lapse(dim_x, 1, fixed_inputs=FixedInputs(dim_x)).eval()


GRIDDED = Temperature, "2022-05-01", "2022-06-30"
PLANE = PointTemperature, "2009-07-01", "2010-07-31"
SPACE_TIME = SpaceTimeTemperature, "2009-07-01", "2009-07-31"


@pytest.mark.parametrize(("case", "slope"), [(GRIDDED, -1.5), (PLANE, -1.0), (SPACE_TIME, -1.0)])
def test_local_effects_are_drawn_in_kelvin_as_what_the_place_adds(
    case: tuple[type[Experiment], str, str], slope: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each model, also where two have the same label; a unit of latitude is four or six degrees."""
    experiment, *days = case
    tiny.write_slope(tmp_path, *days)
    drawn = list[Panel]()
    monkeypatch.setattr(mapping, "map_panels", lambda panels, file, coast: drawn.extend(panels) or file)
    models = {"one": lapse(experiment.dim_x), "other": lapse(experiment.dim_x)}
    experiment(tmp_path).figures(models, tmp_path, seed=0)
    titles = ["Lapse (T~), equivariant part", "Lapse (T~)", "Lapse (T~), local effect"]
    (truth,) = (panel.title for panel in drawn if panel.title.startswith("truth, "))
    assert [panel.title for panel in drawn] == ["context", truth, "elevation", *titles, *titles]
    assert [panel.label for panel in drawn[2:6]] == ["elevation [m]", *2 * ["temperature [K]"], "difference [K]"]
    assert days[0] <= truth.removeprefix("truth, ") <= days[1] + "T23"
    for equivariant, whole, effect in (drawn[3:6], drawn[6:]):
        expected = slope * effect.values.latitude
        assert abs(equivariant.values - 285).max() < 1e-3
        assert abs(whole.values - 285 - expected).max() < 1e-3
        assert abs(effect.values - expected).max() < 1e-3


@pytest.mark.parametrize(("case", "slope"), [(GRIDDED, -6.0), (PLANE, -4.0)])
def test_findings_are_in_kelvin_and_negative_where_it_is_colder_higher_up(
    case: tuple[type[Experiment], str, str], slope: float, tmp_path: Path
) -> None:
    experiment, *days = case
    tiny.write_slope(tmp_path, *days)
    assert f"| Lapse (T~) | -1.00 | {slope} |" in experiment(tmp_path).findings({"lapse": lapse(2)}, seed=0)


@pytest.mark.parametrize("experiment", [Temperature, PointTemperature])
def test_findings_cover_each_approximate_model(climate: Path, experiment: type[Experiment]) -> None:
    models = {"convcnp-approx": experiment(climate).model("convcnp", "approx")}
    assert "| ConvCNP (T~) |" in experiment(climate).findings(models, seed=0)


def test_without_data_or_with_an_unknown_split_the_error_says_what_is_needed() -> None:
    with pytest.raises(ValueError, match="needs --data, a directory with era5_italy"):
        Temperature().source()
    with pytest.raises(ValueError, match="needs --data, a directory with era5_gsod"):
        PointTemperature().source()
    with pytest.raises(FileNotFoundError, match=r"era5_italy.* does not exist; era5-2d needs it"):
        Temperature(Path("nowhere")).source()
    with pytest.raises(ValueError, match="are for the split italy, not paper: train some"):
        Temperature(split="paper").shipped_models()
    with pytest.raises(ValueError, match="has italy, paper splits; got 'us'"):
        Temperature(split="us")
