"""Around the package: the benchmarks run at toy sizes, and an unexpected skip fails in CI."""

import csv
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from benchmarks import placement, recipes, start, station_limits, stations_given_era5, unseen_places, validation
from benchmarks.expected import expected, normal
from benchmarks.measure import interleaved_times, peak_memory
from benchmarks.reference import plain_formula
from benchmarks.speed import KINDS, random_task
from jaxtyping import TypeCheckError

import aenp
import conftest
import tiny
from aenp.earth.field_model import FieldModel
from aenp.evaluation.tables import markdown_table
from aenp.experiments import experiment_class
from aenp.experiments.base import Base
from aenp.models import make
from aenp.training import Recipe
from skips import EXPECTED_SKIPS

ROOT = Path(__file__).parents[1]
needs_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
PNG = b"\x89PNG"
LEVELS = (("2022-06-16", 2.0), ("2022-06-17", 4.0))


def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python module from the root of the repository."""
    command = [sys.executable, "-m", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | variables, capture_output=True, text=True, timeout=600, check=False
    )


def written(out: Path, module: str, *words: object) -> dict[str, Path]:
    """The files that a benchmark writes, by name."""
    done = run(module, *words, "--out", out)
    assert done.returncode == 0, done.stderr
    return {file.name: file for file in out.iterdir()}


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the Markdown table whose header begins with this column."""
    lines = page.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = lines[start + 2 :]
    rows = rows[: next((number for number, line in enumerate(rows) if not line.startswith("|")), None)]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_recipes_are_compared_on_validation_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that is done is not run again, and one that changes nothing but its symmetry has no equivariant part."""
    options = {"attention": "spectral", "dim": 8, "heads": 2, "layers": 1}
    toy = recipes.Trial("gp", "tnp", "approx", options, {"num": 4, "width": 4}, {"batch_size": 2})
    trials = {"gp/tnp-approx: toy": toy, "gp/tnp-exact: toy": toy.but(symmetry="exact", recipe={"optimiser": "muon"})}
    monkeypatch.setattr(recipes, "TRIALS", trials)
    monkeypatch.setattr(recipes, "step_seconds", lambda trials, *_: dict.fromkeys(trials, 2.0))
    monkeypatch.setattr(recipes.multiprocessing, "get_context", lambda _: SimpleNamespace(Pool=InProcess))
    recipes.main(("gp/tnp-approx",), minutes=0.1, out=tmp_path)
    first = json.loads((tmp_path / "recipes.json").read_text())
    recipes.main(minutes=0.1, out=tmp_path)
    results = json.loads((tmp_path / "recipes.json").read_text())
    assert results[:1] == first and [result["steps"] for result in results] == [3, 3]
    assert results[0]["full"] != results[0]["equivariant"] and results[1]["full"] == results[1]["equivariant"]
    rows = table((tmp_path / "recipes.md").read_text(), "trial")
    assert [row[0] for row in rows] == list(trials)
    for row, result in zip(rows, results, strict=True):
        assert float(row[4].split(" ±")[0]) == pytest.approx(sum(result["full"]) / len(result["full"]), abs=1e-4)


@pytest.mark.parametrize("experiment", ["era5-2d", "smoke"])
def test_tokens_on_a_grid_are_compared_with_the_shipped_model_at_its_settings(experiment: str) -> None:
    shipped, grid = (recipes.TRIALS[f"{experiment}/pttnp-exact: shipped{end}"] for end in ("", ", grid"))
    assert replace(grid, options=shipped.options) == shipped
    assert grid.options == {**shipped.options, **recipes.ON_GRID}
    recipe = experiment_class(experiment).setups["cpu"]["pttnp"].recipe
    assert Recipe(steps=recipe.steps, **shipped.recipe) == recipe
    assert [make("pttnp", "exact", 2, 1, None, **each.options).on_grid for each in (shipped, grid)] == [False, True]


def test_the_fewest_minutes_to_a_goal_are_a_record() -> None:
    scores = {("gp/slow", 4): -0.5, ("gp/slow", 8): -0.4, ("gp/fast", 2): -0.59, ("gp/fast", 1): -0.61, ("x/y", 1): 9.0}
    results = [
        {"trial": trial, "minutes": minutes, "seed": 0, "steps": 1, "full": [score, score]}
        for (trial, minutes), score in scores.items()
    ]
    assert [row[1:3] for row in recipes.records(results)] == [["gp/fast", "2"], ["gp/slow", "4"]]


class InProcess:
    """A pool that runs its jobs here."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def apply_async(self, function: Callable[..., object], arguments: tuple[object, ...]) -> SimpleNamespace:
        threads = torch.get_num_threads()
        result = function(*arguments)
        torch.set_num_threads(threads)
        return SimpleNamespace(get=lambda: result)


@pytest.mark.slow
@needs_linux
def test_speed_measures_every_kind_of_attention_and_judges_every_target(tmp_path: Path) -> None:
    toy = ("--tasks", 2, 16, 32, "--points", 8, 16, "--large", 8, 32, "--matrix", 64, "--threads", 1, "--seconds", 0)
    files = written(tmp_path, "benchmarks", *toy)
    assert set(files) == {"results.md", "scaling.png"} and files["scaling.png"].read_bytes().startswith(PNG)
    page = files["results.md"].read_text()
    assert [row[0] for row in table(page, "attention")] == list(KINDS)
    assert [row[:2] for row in table(page, "attention | n")] == [[kind, n] for kind in KINDS for n in ("8", "16")]
    assert {row[-1] for row in table(page, "target")} <= {"met", "**not met**"} and len(table(page, "target")) == 8
    assert [row[0] for row in table(page, "grid, n")] == ["8", "32"]
    assert page.count("## Profile: ") == 2 and len(table(page, "threads")) == 1


@pytest.mark.slow
def test_quality_writes_the_learning_curve_of_both_attentions(tmp_path: Path) -> None:
    toy = ("--minutes", 0.01, "--tasks", 64, "--dim", 8, "--layers", 1)
    files = written(tmp_path, "benchmarks.quality", *toy)
    assert set(files) == {"quality.md", "quality.csv", "quality.png"}
    assert files["quality.png"].read_bytes().startswith(PNG)
    with files["quality.csv"].open(newline="") as file:
        points = list(csv.DictReader(file))
    assert {point["attention"] for point in points} == {"mlp", "spectral"}
    assert all(math.isfinite(float(point["loglik"])) and float(point["minutes"]) <= 0.01 for point in points)
    assert len(table(files["quality.md"].read_text(), "attention")) == len(points)


@pytest.mark.slow
@needs_linux
def test_smoke_compares_the_same_plume(tmp_path: Path) -> None:
    files = written(tmp_path, "benchmarks.smoke", "--size", 16, "--steps", 3, "--batch", 2)
    page = files["smoke.md"].read_text()
    assert set(files) == {"smoke.md"} and "One plume of 3 steps on 16 × 16 cells" in page
    rows = table(page, "simulator")
    assert [row[0] for row in rows] == ["PhiFlow, NumPy", "PhiFlow, JAX", "aenp"]
    assert float(rows[-1][-1]) < 1e-6


@pytest.mark.slow
def test_sampling_compares_methods_on_the_same_tasks(tmp_path: Path) -> None:
    toy = ("--targets", 4, "--samples", 3, "--points", 2, "--tasks", 2, "--seconds", 0)
    files = written(tmp_path, "benchmarks.sampling", *toy)
    rows = table(files["sampling.md"].read_text(), "method")
    methods = ["plain chain", "`ar_sample`", "`ar_sample`, points=2", "independent draws"]
    assert set(files) == {"sampling.md"} and [row[0] for row in rows] == methods
    assert rows[0][2] == "1.0 ×" and all(math.isfinite(float(row[3])) for row in rows)


@pytest.mark.slow
def test_unseen_places_are_scored_beside_those_in_training(tmp_path: Path) -> None:
    """A run replaces that of the same name."""
    tiny.stations().to_netcdf(tmp_path / tiny.STATIONS)
    for _ in range(2):
        unseen_places.main(tmp_path, 1e-3, "toy", "tnp", tasks=2, out=tmp_path)
    rows = table((tmp_path / "unseen_places.md").read_text(), "run")
    parts = ["model", "equivariant part", "kriging"]
    assert [row[2:5] for row in rows] == [["0", where, part] for where in ("in training", "left out") for part in parts]
    assert all(math.isfinite(float(cell.split(" ±")[0])) for row in rows for cell in row[5:])


@pytest.mark.slow
def test_stations_left_out_are_never_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those left out that report on few days of the test, nor those that report on no others."""
    data, validate, shown = tiny.stations(), FieldModel.validate, []
    year, point = data["time"].dt.year, np.arange(data.sizes["point"]) % 5
    rare = (year == 2010) & (data["time"].dt.day > 5) & xr.DataArray(point == 0, dims="point")
    new = (year < 2010) & xr.DataArray(point == 1, dims="point")
    data.where(~rare & ~new).to_netcdf(tmp_path / tiny.STATIONS)

    def shown_to_model(model: FieldModel, observed: pd.DataFrame, *rest: Any, **options: Any) -> Any:
        shown.append((observed, *rest))
        return validate(model, observed, *rest, **options)

    monkeypatch.setattr(FieldModel, "validate", shown_to_model)
    unseen_places.main(tmp_path, 1e-3, "toy", "tnp", tasks=2, out=tmp_path)
    known, both = (set(map(tuple, table[unseen_places.PLACE].to_numpy())) for table, *_ in shown)
    assert both - known == set(map(tuple, shown[1][1][unseen_places.PLACE].to_numpy()))
    assert not any(
        tuple(place) in known for place in data[["lat", "lon"]].to_dataframe()[point == 1][["lat", "lon"]].to_numpy()
    )


def test_steps_take_turns() -> None:
    order = list[str]()
    times = interleaved_times({name: lambda name=name: order.append(name) for name in "abc"}, seconds=0)
    assert order == list("abc") * 4 and set(times) == set("abc") and min(times.values()) > 0


def allocation(before: int, during: int) -> Callable[[], torch.Tensor]:
    """A step that takes `during` MB, after `before` MB were taken and freed."""
    torch.ones(before * 2**18).sum()
    return lambda: torch.ones(during * 2**18)


@needs_linux
@pytest.mark.slow
def test_peak_memory_is_that_of_the_step_alone() -> None:
    assert 60 < peak_memory(allocation, 256, 64) < 100


def test_the_plain_formula_is_the_librarys_attention() -> None:
    torch.manual_seed(0)
    model = aenp.TNP(1, 1, attention="mlp", dim=16, heads=2, layers=2).eval()
    task = random_task(3, 5, 7)
    found = aenp.predict(model, task).mean
    torch.testing.assert_close(aenp.predict(plain_formula(model), task).mean, found, rtol=0, atol=1e-4)


SKIPS = """
import pytest

@pytest.mark.skip(reason="needs a GPU")
def test_expected(): ...

@pytest.mark.skip(reason="no data")
def test_marked(): ...

def test_called():
    pytest.skip("no network")

@pytest.mark.xfail(strict=True)
def test_known_to_fail():
    assert False
"""


def test_ci_refuses_unexpected_skips_and_expects_those_of_these_tests() -> None:
    assert "\nexport CI=true" in (ROOT / ".ci/run").read_text()
    texts = [file.read_text() for file in (ROOT / "tests").rglob("*.py")]
    reasons = {reason for text in texts for reason in re.findall(r'skipif\(.*reason="(.*)"\)$', text, re.MULTILINE)}
    assert {"needs Linux"} <= reasons <= EXPECTED_SKIPS


@pytest.mark.parametrize(
    ("variable", "outcomes"),
    [("", {"4 skipped", "1 xfailed"}), ("1", {"1 failed", "2 errors", "1 skipped", "1 xfailed"})],
)
def test_an_unexpected_skip_fails_where_ci_is_set(variable: str, outcomes: set[str], tmp_path: Path) -> None:
    """Whether a test is marked, skips itself, or its whole module does."""
    (tmp_path / "test_skips.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    path = os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    options = ("-q", "-p", "skips", "-p", "no:cacheprovider", "--color=no", "--continue-on-collection-errors")
    printed = run("pytest", *options, "--rootdir", tmp_path, tmp_path, CI=variable, PYTHONPATH=path).stdout
    assert set(printed.splitlines()[-1].split(" in ")[0].split(", ")) == outcomes, printed
    for reason in ("no data", "no network", "could not import 'no_such_module'"):
        assert (f"unexpected skip: {reason}" in printed) == bool(variable)


def test_signatures_are_checked_where_a_test_or_a_case_is_new() -> None:
    names = ["a.py::one[x]", "a.py::one[y]", "a.py::two[x]", "a.py::two[y]", "b.py::three[y]", "b.py::four"]
    items = [SimpleNamespace(nodeid=name, path=name.split("::")[0], stash={}) for name in names]
    conftest.pytest_collection_modifyitems(items)
    always = [conftest.NOWHERE] * 3
    assert [item.stash[conftest.UNCHECKED] for item in items] == [*always, True, *always[:2]]
    with nullcontext() if conftest.NOWHERE else pytest.raises(TypeCheckError):
        markdown_table(["a", "b"], "not rows")


@pytest.mark.slow
def test_stations_given_a_reanalysis_are_scored_beside_it(tmp_path: Path) -> None:
    """A run again replaces its row, and only stations left out are predicted."""
    tiny.stations().to_netcdf(tmp_path / tiny.STATIONS)
    former = {"name": "given", "family": "tnp", "seed": 0, "steps": 1, "scores": {}}
    (tmp_path / "stations_given_era5.json").write_text(json.dumps([former]))
    stations_given_era5.main(tmp_path, steps=1, out=tmp_path)
    runs = json.loads((tmp_path / "stations_given_era5.json").read_text())
    assert len(runs) == 1 and {"model", "t2m_era5", "kriging of differences"} <= set(runs[0]["scores"])
    rows = table((tmp_path / "stations_given_era5.md").read_text(), "run")
    assert [row[0] for row in rows] == ["given, tnp, seed 0"] * len(runs[0]["scores"])


@pytest.mark.slow
def test_errors_at_stations_are_taken_apart(tmp_path: Path) -> None:
    """A station that is always wrong is the worst, is suspect, and has a mean error that only it can tell."""
    data, file = tiny.stations(), tmp_path / tiny.STATIONS
    data.to_netcdf(tmp_path / "sound.nc")
    latitude, longitude = unseen_places.left_out(station_limits.differences(tmp_path / "sound.nc"), 0).iloc[0]
    wrong = 20 * ((data["lat"] == latitude) & (data["lon"] == longitude))
    data.assign(tmean_gsod=data["tmean_gsod"] + wrong).to_netcdf(file)
    found = station_limits.limits(station_limits.differences(file), 0)
    assert found.suspects == 1 and 0.5 < found.share_of_the_worst < 1
    assert found.without_suspects == found.without_the_worst < found.kriging / 1.5
    assert found.without_own_mean < found.without_the_worst and np.isclose(found.era5_without_own_mean, 0.5, rtol=0.1)
    station_limits.main(tmp_path, seeds=1, out=tmp_path)
    rows = table((tmp_path / "station_limits.md").read_text(), "seed")
    assert [row[0] for row in rows] == ["0", "mean"] and rows[0][1:] == rows[1][1:] and rows[0][6] == "1"


@pytest.mark.slow
def test_fitted_models_are_scored_beside_kriging(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In their region and another, once each, and with windows of time; what is done is not repeated."""
    tiny.write_all(tmp_path)
    cases = ("Italy → UK, exact, elevation", "stations, elevation, Normal", "2010, two days")
    for names in (cases[:1], cases):
        validation.main(tmp_path, names, minutes=1e-3, tasks=2, out=tmp_path)
    assert [line.split(": ")[1] for line in capsys.readouterr().out.splitlines() if " of " in line[:12]] == [
        "Italy → UK, exact, elevation",
        "stations, elevation, Normal",
        "2010, two days",
    ]
    assert len((tmp_path / "validation.jsonl").read_text().splitlines()) == 3
    rows = table((tmp_path / "validation.md").read_text(), "case")
    assert len(rows) == len({(case, method) for case, _, _, method, *_ in rows})
    kriging = {"kriging", "kriging with elevation", "kriging of anomalies"}
    for case in cases:
        assert {"model", "climatology", "inverse distance"} | kriging <= {row[3] for row in rows if row[0] == case}
    assert (tmp_path / "validation.png").read_bytes().startswith(PNG)


def test_the_slope_left_of_the_elevation_is_that_of_the_errors() -> None:
    """Of each day, so that its standard error is over days; the sea does not count."""
    elevation = np.array([-5.0, 10.0, 500.0, 1500.0])
    days = [
        pd.DataFrame({"time": day, "elevation": elevation, "value": 280 - rate * elevation, "mean": 280.0})
        for day, rate in zip(pd.date_range("2020-01-01", periods=2), (0.004, 0.006), strict=True)
    ]
    assert np.allclose(validation.slope(pd.concat(days)), (-5, 1))


@pytest.mark.slow
def test_fits_from_base_and_from_nothing_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair of runs is a row; what is done is not done again, and without a base model it is an error."""
    tiny.write_all(tmp_path)
    monkeypatch.setattr("aenp.shipped.WEIGHTS", tmp_path / "weights")
    with pytest.raises(ValueError, match="there is no base model for a pttnp"):
        start.main(tmp_path, ("Italy",), minutes="1e-3", tasks=2, out=tmp_path)
    aenp.save(Base().model("tnp", "exact"), tmp_path / "weights" / "base" / "tnp-exact.safetensors")
    (tmp_path / "weights" / "base" / "tnp-exact.json").write_text("{}")
    for _ in range(2):
        start.main(tmp_path, ("stations",), minutes="1e-3", tasks=4, out=tmp_path)
    assert len(start.lines(tmp_path / "start.jsonl")) == 2
    (row,) = table((tmp_path / "start.md").read_text(), "case")
    assert row[:3] == ["stations", "0.001", "0"]


def test_starts_are_compared_on_the_same_days() -> None:
    """The error of a difference is that of the differences of each day, which may be far smaller than either's."""
    common = {"case": "Italy", "minutes": 1.0, "seed": 0, "tasks": 2, "threads": 1, "date": "2026-01-01"}
    runs = [
        common
        | {"start": name, "steps": 5, "days": {day: {"loglik": level + gain, "crps": level} for day, level in LEVELS}}
        for name, gain in (("base", 0.25), ("nothing", 0.0))
    ]
    (row,) = table(start.page(runs), "case")
    assert row[5:8] == ["3.250 ± 1.000", "3.000 ± 1.000", "0.250 ± 0.000"] and row[-1] == "0.000 ± 0.000"
    assert table(start.page(runs[:1]), "case") == []


def test_placements_are_compared_on_the_same_networks() -> None:
    scores = {"none": [[2.0, 1.0], [3.0, 2.0]], placement.SUGGESTED: [[1.0, 0.5], [2.5, 1.0]]}
    run = {"model": "m", "stations": 5, "number": 2, "seed": 0, "machine": "a machine", "scores": scores}
    none, suggested = table(placement.page([run], candidates=9, times=3), "model")
    assert none[:5] == ["m", "5 + 2", "0", "2", "none"] and [each.split(" ")[0] for each in none[7:]] == ["-0.7500"] * 2
    assert suggested[5].startswith("1.7500") and suggested[7:] == ["", ""]


def test_the_farthest_places_are_away_from_all_stations() -> None:
    observed = pd.DataFrame({"latitude": [0.0], "longitude": [0.0]})
    candidates = pd.DataFrame({"latitude": [1.0, 0.0, 0.0], "longitude": [0.0, 5.0, -4.0]})
    assert placement.farthest(observed, candidates, 2)["longitude"].tolist() == [5.0, -4.0]


@pytest.mark.slow
def test_the_base_model_is_compared_with_fitted_processes(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    pytest.importorskip("gpytorch", reason="needs gpytorch")
    page = written(tmp_path, "benchmarks.base", "--points", 10, "--tasks", 2, "--starts", 1)["base.md"].read_text()
    rows = table(page, "points")
    assert ", 1 core; Python" in page
    assert [row[:3] for row in rows[:2]] == [["10", "trained on", "2"], ["10", "Matérn, ν = 1", "2"]]
    assert all(0 <= float(share) <= 1 for row in rows for share in row[6:8])


@pytest.mark.slow
def test_the_base_models_intervals_are_counted(tmp_path: Path) -> None:
    words = ("--points", 3, 10, "--tasks", 2)
    page = written(tmp_path / "new", "benchmarks.calibration", *words)["calibration.md"].read_text()
    few, more = table(page, "points")
    shares = [float(cell.split(" ")[0]) for cell in (*few[1:-1], *more[1:-1])]
    assert (few[0], more[0], len(shares)) == ("3", "10", 18) and all(30 < share <= 100 for share in shares)


def test_expected_scores_of_a_normal_are_those_in_closed_form() -> None:
    """Of Y ~ N(0, 1) for N(m, s²): −((1 + m²) / s² + log 2πs²) / 2, and for N(0, 1) itself the CRPS 1 / √π."""
    truth, m, s = normal(torch.zeros(1), torch.ones(1)), 0.7, 1.5
    loglik, crps, share = expected(truth, truth)
    assert (crps, share) == (pytest.approx(math.pi**-0.5, rel=1e-4), pytest.approx(0.95, abs=1e-4))
    assert loglik == pytest.approx(-(1 + math.log(2 * math.pi)) / 2)
    loglik, _, share = expected(normal(torch.tensor([m]), torch.tensor([s])), truth)
    assert loglik == pytest.approx(-((1 + m**2) / s**2 + math.log(2 * math.pi * s**2)) / 2)
    below, above = (math.erf((sign * 1.959964 * s + m) / math.sqrt(2)) / 2 for sign in (-1, 1))
    assert share == pytest.approx(above - below, abs=1e-4)


def test_an_image_is_scored_where_it_is_hidden() -> None:
    pytest.importorskip("rdata", reason="needs rdata")
    from benchmarks.heaton import scores

    x, y = np.meshgrid(np.arange(20) / 20, np.arange(20) / 20)
    image = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "TrueTemp": 30 + 5 * np.sin(4 * x * y).ravel()})
    hidden = (abs(image["x"] - 0.5) < 0.1) & (abs(image["y"] - 0.5) < 0.1)
    found = scores(image[~hidden].assign(MaskTemp=image["TrueTemp"]), image[hidden])
    assert found["RMSE"] < 0.2 and found["MAE"] <= found["RMSE"] and found["95 %"] > 0.5
