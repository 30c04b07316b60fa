"""The documents: their examples run and print what is shown, their commands parse, their numbers match the results."""

import importlib.util
import json
import math
import re
import runpy
import shlex
import tomllib
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

import aenp
import tiny
from aenp.cli import parse
from aenp.experiments import experiment_class
from aenp.experiments.experiment import exact_counterpart

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("coming_from", "era5", "experiments", "how_it_works", "index", "theory")),
]
COLUMNS = {
    "gp": ("in distribution", "out of distribution"),
    "smoke": ("test", None),
    "era5-2d": ("Italy", "UK"),
    "era5-points-2d": ("Europe", "elsewhere"),
    "era5-4d": ("Europe", "elsewhere"),
    "era5-4d, 2010": ("Europe, 2010", None),
}
"The test sets of the results table, in the training region and elsewhere."
ORACLES = ("equivariant", "Bayes-optimal")
OTHERS = {
    "scikit-learn": "sklearn",
    "GPyTorch": "gpytorch",
    "neuralprocesses": "neuralprocesses",
    "DeepSensor": "deepsensor",
}
"The modules of the libraries that docs/coming_from.md compares with."


def blocks(document: Path) -> list[tuple[str, str]]:
    """The language and the text of each code block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)


def made_up_field() -> xr.DataArray:
    """Twenty days of temperature, waves that drift eastwards."""
    latitude, longitude, day = np.arange(44.0, 52.0, 0.25), np.arange(2.0, 12.0, 0.25), np.arange(20.0)
    values = 288 + 2 * np.sin(longitude + latitude[:, None] / 2 - day[:, None, None])
    coords = {"time": pd.date_range("2020-06-01", periods=20), "latitude": latitude, "longitude": longitude}
    return xr.DataArray(values, coords, tuple(coords), "t2m", {"units": "K"})


def write_inputs(folder: Path) -> None:
    """The user's files that the examples read."""
    field = made_up_field()
    field.to_netcdf(folder / "t2m.nc")
    field[-1:].to_dataframe().reset_index().sample(30, random_state=0).to_csv(folder / "stations.csv", index=False)
    (folder / "DIR").mkdir()
    for year in (2018, 2019):
        for month in (1, 2):
            times = pd.date_range(f"{year}-{month}-01", periods=2)
            coarse = field[:2, ::8, ::8].assign_coords(time=times).rename(latitude="lat", longitude="lon")
            coarse.rename("Tair").to_netcdf(folder / f"Tair_WFDE5_CRU_{year}{month:02}.nc")


def assert_same_output(printed: str, shown: str) -> None:
    """The same words, with numbers that differ by at most one unit of their last digit."""
    words, expected = printed.split(), shown.split()
    assert len(words) == len(expected), f"printed:\n{printed}\nshown:\n{shown}"
    for word, as_shown in zip(words, expected, strict=True):
        if re.fullmatch(r"-?\d+\.\d+", as_shown):
            unit = 10.0 ** -len(as_shown.partition(".")[2])
            assert abs(float(word) - float(as_shown)) < 1.01 * unit, f"{word} is printed; {as_shown} is shown"
        else:
            assert word == as_shown


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_python_examples_print_what_is_shown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = aenp.fit
    monkeypatch.setitem(vars(aenp), "fit", lambda *data, minutes, **options: fit(*data, **options, steps=2))
    write_inputs(tmp_path)
    namespace: dict[str, Any] = {}
    every = blocks(ROOT / name)
    with chdir(tmp_path):
        for (language, text), (after, shown) in zip(every, [*every[1:], ("", "")], strict=True):
            if language == "python":
                capsys.readouterr()
                exec(compile(text, name, "exec"), namespace)
                assert_same_output(capsys.readouterr().out, shown if after == "text" else "")
    if name == "README.md":
        assert set(namespace["prediction"]) >= {"mean", "std", "equivariant_mean", "local_effect", "in_domain"}
    if name == "docs/era5.md":
        assert {file.name for file in (tmp_path / "DIR").iterdir()} == {"wfde5_2018.nc", "wfde5_2019.nc"}


def examples_of_others() -> dict[str, str]:
    """The side of each other library that is installed."""
    sides = r"^\*\*([^*]+)\*\*\n```\{code-block\} python\n(.*?)^```$"
    found = dict(re.findall(sides, (ROOT / "docs/coming_from.md").read_text(), re.DOTALL | re.MULTILINE))
    assert found.keys() == OTHERS.keys()
    return {name: text for name, text in found.items() if importlib.util.find_spec(OTHERS[name])}


@pytest.mark.filterwarnings("ignore")  # they warn of their own affairs
@pytest.mark.parametrize("name", examples_of_others())
def test_the_same_task_runs_in_other_libraries(name: str, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    with chdir(tmp_path):
        exec(compile(examples_of_others()[name], name, "exec"), {})


def commands(*documents: Path) -> Iterator[str]:
    for document in documents:
        for language, text in blocks(document):
            if language == "sh":
                yield from text.replace("\\\n", "").splitlines()


@pytest.mark.parametrize("line", dict.fromkeys(commands(*DOCUMENTS)))
def test_shell_examples_are_valid(line: str) -> None:
    program, *words = shlex.split(line, comments=True)
    if program == "aenp":
        for argument in parse(words).keywords.values():  # type: ignore[attr-defined]
            if hasattr(argument, "experiment"):
                experiment_class(argument.experiment)
    elif program == "make":
        assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in words)
    elif program == "pip":
        assert words[:2] == ["install", "-c"] and (ROOT / words[2]).exists() and words[3:] == [".[all]"]
    elif words[:1] == ["-m"]:
        assert program == "python" and importlib.util.find_spec(words[1])
    else:
        assert program == "python" and (ROOT / words[0]).exists()


def shortened(words: list[str]) -> list[str]:
    """The command with a budget of two steps, and with few simulations."""
    line = re.sub(r"--minutes \S+", "--steps 2", shlex.join(words))
    return shlex.split(re.sub(r"--num \S+", "--num 30 --workers 1", line))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/experiments.md"])
def test_shell_examples_run(name: str, call: Callable[..., str], tmp_path: Path) -> None:
    """Except those that score or draw shipped models, which take longer; the tests of the experiments run these."""
    write_inputs(tmp_path)
    tiny.write_all(tmp_path / "DIR")
    with chdir(tmp_path):
        for program, *words in (shlex.split(line, comments=True) for line in commands(ROOT / name)):
            if program == "aenp" and words[0] in ("data", "fit", "predict", "train"):
                assert call(*shortened(words)), words


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_environment_variables_of_tests_are_documented() -> None:
    texts = [(ROOT / "tests" / name).read_text() for name in ("conftest.py", "tiny.py")]
    names = {name for text in texts for name in re.findall(r'"(AENP_\w+)"', text)}
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    assert names and all(f"`{name}`" in guide for name in names)


def results_table() -> list[list[str]]:
    """The cells of each row, with plain minus signs and without markup."""
    section = (ROOT / "README.md").read_text().split("## Results")[1].split("## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip(" `*").replace("`", "").replace("−", "-") for cell in row[1:-1].split("|")] for row in rows]


def names(model: str) -> list[str]:
    """The models of a row, as the results name them: one without symmetry, or exact and approximate."""
    family, _, without = model.lower().partition(", ")
    return [f"{family}-none"] if without else [exact_counterpart(f"{family}-approx"), f"{family}-approx"]


def scores(experiment: str, model: str, test: str | None) -> tuple[list[float], list[float]]:
    """Our numbers in a row and the paper's."""
    name = experiment.split(",")[0]
    results = json.loads((ROOT / "results" / name / "results.json").read_text())
    if test is None:
        return [], []
    if model == "oracle":
        return [results["oracles"][oracle][test]["loglik"]["mean"] for oracle in ORACLES], []
    paper = experiment_class(name).paper.get(test, {})
    ours = [results["models"][each][test]["loglik"]["mean"] for each in names(model)]
    printed = {name: score for name, (score, error) in paper.items() if not math.isnan(error)}
    return ours, [printed[each] for each in names(model) if each in printed]


def assert_rounded(shown: str, values: list[float]) -> None:
    """The numbers shown are the values to the digits shown."""
    numbers = shown.split(" → ") if shown else []
    assert len(numbers) == len(values), f"{shown!r} is shown for {values}"
    for number, value in zip(numbers, values, strict=True):
        unit = 10.0 ** -len(number.partition(".")[2])
        assert math.isclose(float(number), value, rel_tol=0, abs_tol=unit / 2 + 1e-9), f"{number} is shown for {value}"


@pytest.mark.parametrize("row", results_table(), ids=lambda row: " ".join(row[:2]))
def test_numbers_in_the_results_table_are_those_of_the_results(row: list[str]) -> None:
    experiment, model, *cells = row
    for test, ours, paper in zip(COLUMNS[experiment], cells[::2], cells[1::2], strict=True):
        expected = scores(experiment, model, test)
        assert_rounded(ours, expected[0])
        assert_rounded(paper, expected[1])


def test_every_model_has_a_row_in_the_results_table() -> None:
    shown = {(experiment, name) for experiment, model, *_ in results_table() for name in names(model)}
    for experiment in COLUMNS:
        results = json.loads((ROOT / "results" / experiment.split(",")[0] / "results.json").read_text())
        assert {(experiment, name) for name in results["models"]} <= shown


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_to_files(document: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        assert link.startswith("https://") or (document.parent / link).exists(), link


@pytest.mark.slow
def test_pictures_are_drawn(climate: Path, tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "docs" / "pictures.py"))["main"](climate, tmp_path)
    shown = {Path(link).name for link in re.findall(r"!\[.*\]\(([^)]+)\)", (ROOT / "README.md").read_text())}
    assert {file.name for file in tmp_path.iterdir()} == shown
    assert all(file.stat().st_size < 300_000 for file in (ROOT / "docs" / "pictures").iterdir())


def test_citation_metadata_and_ci_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == aenp.__version__
    assert citation["license"] == project["license"]
    assert citation["authors"] == project["authors"]
    assert citation["references"][0]["url"] == project["urls"]["Paper"]
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]
    prefix = "Programming Language :: Python :: "
    versions = [c.removeprefix(prefix) for c in project["classifiers"] if c.startswith(f"{prefix}3.")]
    assert job["strategy"]["matrix"]["python"] == versions
    assert job["steps"][-1]["run"] == ".ci/run"
