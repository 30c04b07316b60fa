"""Wrong command lines: each prints one line and exits with code 2, and nothing is written."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
import zarr
from safetensors.torch import save_file

from aenp import PTTNP, TNP, cli, save
from aenp.earth.field_model import FieldModel
from frames import frame

pytestmark = pytest.mark.slow

NO_NUMBER = ("", "x", "nan", "-inf", "1,5", "0x10", "1e", "-1")
NO_SEED = (*NO_NUMBER, "1.5", "inf", "1" + 40 * "0")
NO_COUNT = (*NO_SEED, "0")
NO_LIST = tuple(value for value in NO_SEED if "," not in value)
NO_AMOUNT = (*NO_NUMBER, "0", "inf", "1e300", "1e400")
NO_NAME = ("x", "TNP", "none,exact", "\N{SNOWMAN}")
NO_MODEL = ("nothing.safetensors", "", "directory", "binary.nc", "cut.safetensors", "foreign.safetensors", "field.nc")
NO_PLACES = (
    *("nothing.nc", "nothing.csv", "", "directory", "empty.zarr", "process.safetensors", "empty.nc", "empty.csv"),
    *("binary.nc", "binary.csv", "cut.nc", "bad.grib", "bad.csv.gz", "text.csv", "no_places.nc", "no_places.csv"),
)
NO_FIELD = (*NO_PLACES, "broken.nc", "broken.zarr")
NO_GRID = (
    "1,2,3",
    "41,45,2,-4,1",
    "41,45,-4,2,0",
    "41,45,-4,2,x",
    "nan,45,-4,2,1",
    "41,inf,-4,2,1",
    "41,45,-4,2,1e-15",
)
NO_DIRECTORY = ("text.csv", "text.csv/new", 300 * "x")
NO_FILE = ("directory", "text.csv/new.nc", 300 * "x")


@dataclass(frozen=True)
class Line:
    """A valid command line after its command, and invalid values of each option; "" stands for its first word."""

    words: str
    wrong: Mapping[str, Sequence[str]] = field(default_factory=dict)


FITTED = {
    "": NO_FIELD,
    "--family": (*NO_NAME, "rcnp"),
    "--symmetry": NO_NAME,
    "--minutes": NO_AMOUNT,
    "--variable": NO_NAME,
    "--region": ("1 2 3", "1 2 3 x", "nan nan nan nan", "1 2 3 inf", "-10 -5 100 110", "46 40 -6 4"),
    "--period": ("2020-01-01", "x y", "2050-01-01 2050-01-02", "2020-01-02 2020-01-01"),
    "--steps": NO_COUNT,
    "--seed": NO_SEED,
    "--out": NO_DIRECTORY,
}
LINES = {
    "train": [
        Line(
            "gp --model tnp --symmetry exact --steps 1 --threads 1 --out new/run",
            {
                "": (*NO_NAME, "", "GP", "gp,smoke"),
                "--model": (*NO_NAME, "", "cnp"),
                "--symmetry": (*NO_NAME, "", "approximate"),
                "--preset": NO_NAME,
                "--split": NO_NAME,
                "--steps": NO_COUNT,
                "--minutes": NO_AMOUNT,
                "--learning-rate": NO_AMOUNT,
                "--seed": NO_SEED,
                "--threads": NO_COUNT,
                "--devices": NO_COUNT,
                "--num-nodes": NO_COUNT,
                "--precision": (*NO_NAME, "bf16-true"),
                "--out": NO_DIRECTORY,
            },
        ),
        Line(
            "smoke --model pttnp --symmetry exact --steps 1 --threads 1 --data smoke.zarr --out new/run",
            {"--data": ("nothing", "text.csv", "directory", "empty.zarr", "field.zarr", "process.safetensors")},
        ),
        Line(
            "era5-2d --model pttnp --symmetry exact --steps 1 --threads 1 --data directory --out new/run",
            {"--data": ("nothing", "text.csv", "directory")},
        ),
    ],
    "ablate": [
        Line(
            "fixed-inputs gp --models tnp --num 1 --seeds 0 --steps 1 --tasks 1 --out new/page --runs new/runs",
            {
                "": (*NO_NAME, "", "gp"),
                "--models": (*NO_NAME, "", "tnp,x"),
                "--num": (*NO_LIST, "0,-1"),
                "--seeds": (*NO_LIST, "0,x"),
                "--dropout": ("0.5", "x", "2"),
                "--border": NO_NAME,
                "--split": NO_NAME,
                "--steps": NO_COUNT,
                "--minutes": NO_AMOUNT,
                "--threads": NO_COUNT,
                "--tasks": NO_COUNT,
                "--test-seed": NO_SEED,
                "--out": NO_DIRECTORY,
                "--runs": NO_DIRECTORY,
            },
        )
    ],
    "evaluate": [
        Line(
            "gp --model tnp --symmetry approx --tasks 1 --seed 1",
            {"--model": NO_NAME, "--symmetry": NO_NAME, "--tasks": NO_COUNT, "--seed": NO_SEED, "--split": NO_NAME},
        ),
        Line(
            "gp --weights process.safetensors --tasks 1",
            {"--weights": (*NO_MODEL, "model.safetensors", "plane.safetensors")},
        ),
    ],
    "plot": [
        Line(
            "gp --weights process.safetensors --seed 1 --out new/figures",
            {
                "--weights": (*NO_MODEL, "model.safetensors", "plane.safetensors"),
                "--seed": NO_SEED,
                "--out": NO_DIRECTORY,
                "--split": NO_NAME,
            },
        )
    ],
    "reproduce": [
        Line(
            "gp --tasks 1 --seed 1 --out new/results",
            {"--tasks": NO_COUNT, "--seed": NO_SEED, "--out": NO_DIRECTORY, "--split": NO_NAME},
        )
    ],
    "data": [
        Line(
            "smoke --num 1 --workers 1 --out new/smoke.zarr",
            {
                "": ("gp", "x", ""),
                "--num": NO_COUNT,
                "--workers": NO_COUNT,
                "--seed": NO_SEED,
                "--out": (*NO_DIRECTORY, "directory", "field.zarr", "empty.zarr"),
            },
        )
    ],
    "fit": [
        Line("field.nc --family pttnp --steps 1 --out new/fit", FITTED),
        Line("stations.csv --family pttnp --steps 1 --out new/fit", FITTED),
    ],
    "predict": [
        Line(
            "--weights model.safetensors --context stations.csv --target 41,45,-4,2,1 --out new/prediction.nc",
            {
                "--weights": (*NO_MODEL, "process.safetensors"),
                "--context": (*NO_FIELD, "celsius.csv"),
                "--target": (*NO_PLACES, *NO_GRID, "100,120,0,1,1"),
                "--variable": NO_NAME,
                "--out": (*NO_FILE, "directory.zarr", "text.zarr"),
                "--plot": (*NO_FILE, "new/map.xyz"),
                "--plot new/map.png --coast": NO_FIELD,
            },
        )
    ],
    "interpolate": [
        Line(
            "stations.csv --target 41,45,-4,2,1 --out new/prediction.nc",
            {
                "": NO_FIELD,
                "--target": (*NO_PLACES, *NO_GRID, "100,120,0,1,1"),
                "--variable": NO_NAME,
                "--seed": NO_SEED,
                "--out": (*NO_FILE, "directory.zarr", "text.zarr"),
                "--plot": (*NO_FILE, "new/map.xyz"),
                "--plot new/map.png --coast": NO_FIELD,
            },
        )
    ],
    "suggest": [
        Line(
            "stations.csv --weights model.safetensors --candidates 41,45,-4,2,2 --number 2 --out new/places.csv",
            {
                "": (*NO_FIELD, "celsius.csv"),
                "--weights": (*NO_MODEL, "process.safetensors"),
                "--candidates": (*NO_PLACES, *NO_GRID, "100,120,0,1,1"),
                "--target": (*NO_PLACES, *NO_GRID, "100,120,0,1,1"),
                "--number": (*NO_COUNT, "13"),
                "--variable": NO_NAME,
                "--out": (*NO_FILE, "places.nc"),
                "--plot": (*NO_FILE, "new/map.xyz"),
                "--plot new/map.png --coast": NO_FIELD,
            },
        )
    ],
    "validate": [
        Line(
            "field.nc --weights model.safetensors --tasks 1 --out new/table.csv",
            {
                "": NO_FIELD,
                "--weights": (*NO_MODEL, "process.safetensors"),
                "--days": ("2020-01-01", "x y", "2050-01-01 2050-01-02"),
                "--region": ("1 2 3", "1 2 3 x", "nan nan nan nan", "-10 -5 100 110"),
                "--fraction": (*NO_NUMBER, "0", "1"),
                "--tasks": NO_COUNT,
                "--variable": NO_NAME,
                "--seed": NO_SEED,
                "--out": (*NO_FILE, "table.nc"),
                "--plot": (*NO_FILE, "new/scores.xyz"),
            },
        )
    ],
    "test-symmetry": [
        Line(
            "field.nc --family pttnp --steps 1 --out new/symmetry",
            {
                **{name: FITTED[name] for name in FITTED if name not in ("--symmetry", "--period")},
                "--approximate": (*NO_MODEL, "process.safetensors", "model.safetensors"),
                "--exact": ("model.safetensors",),
                "--tasks": NO_COUNT,
            },
        )
    ],
    "demo": [Line("--out new/demo.html", {"--out": NO_FILE, "--data": ("nothing", "text.csv", "directory")})],
    "models": [Line("")],
    "families": [Line("--tasks 1 --seed 1", {"--tasks": NO_COUNT, "--seed": NO_SEED})],
    "theory": [Line("--out new", {"--out": NO_DIRECTORY})],
}
ONCE = ("data", "models", "plot", "predict", "suggest", "train", "validate")
QUICK = [*((command, 0) for command in ONCE), ("fit", 0), ("fit", 1)]


def misspelt(word: str, random: Random) -> str:
    """The word with an extra letter."""
    at = random.randrange(2, len(word))
    return word[:at] + random.choice("jqxz") + word[at:]


def without(words: list[str], option: str) -> list[str]:
    """The words without the option and its value."""
    at = words.index(option) if option in words else len(words)
    return words[:at] + words[at + 2 :]


def wrong_line(random: Random) -> list[str]:
    """A valid command line with one thing wrong."""
    command = random.choice(list(LINES))
    line = random.choice(LINES[command])
    words = line.words.split()
    options = [word for word in words if word.startswith("--")]
    fault = random.choice(["value"] * 8 + ["command", "option", "no value", "too much", "too little"])
    if fault == "value" and line.wrong:
        option = random.choice(list(line.wrong))
        value = random.choice(line.wrong[option]).split(" ")
        rest = [*without(words, option), *option.split(), *value] if option else [*value, *words[1:]]
    elif fault == "option" and options:
        option = random.choice(options)
        rest = [misspelt(option, random) if word == option else word for word in words]
    elif fault == "no value" and options and command != "plot":  # whose --weights may be none
        option = random.choice(options)
        rest = [*without(words, option), option]
    elif fault == "too little" and words and command not in ("demo", "families", "reproduce", "theory"):
        rest = words[2:] if words[0].startswith("--") else words[1:]
    elif fault == "command":
        return [misspelt(command, random), *words]
    else:
        rest = [*words, *random.choice((["more"], ["--more"], ["--more", "1"], ["-m"], ["--more=1"]))]
    return [command, *rest]


def wrong_lines(count: int) -> list[tuple[str, ...]]:
    """This many different ones."""
    random = Random(0)
    lines: dict[tuple[str, ...], None] = {}
    while len(lines) < count:
        lines[tuple(wrong_line(random))] = None
    return list(lines)


WRONG = wrong_lines(300)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the valid and invalid files that the command lines name."""
    place = tmp_path_factory.mktemp("place")
    write_models(place)
    write_data(place)
    rng = np.random.default_rng(0)
    for name in ("empty.nc", "empty.csv"):
        (place / name).touch()
    for name in ("binary.nc", "binary.csv", "bad.csv.gz"):
        (place / name).write_bytes(b"\xff" + rng.bytes(999))
    (place / "bad.grib").write_bytes(b"GRIB" + rng.bytes(999))
    for name in ("text.csv", "text.zarr"):
        (place / name).write_text("nothing\nbut text\n")
    for name in ("directory", "directory.zarr"):
        (place / name).mkdir()
        (place / name / "kept.txt").write_text("kept")
    zarr.create_group(place / "empty.zarr")
    return place


def write_models(place: Path) -> None:
    """A process on the line, one in the plane, a model of fields, and files that are none of these."""
    torch.manual_seed(0)
    save(TNP(1, 1, attention="spectral", dim=8, heads=2, layers=1), place / "process.safetensors")
    process = PTTNP(2, 1, attention="spectral", dim=8, heads=2, layers=1, pseudo_tokens=4)
    save(process, place / "plane.safetensors")
    FieldModel(process, frame(40, 47, -6, 4)).save(place / "model.safetensors")
    whole = (place / "model.safetensors").read_bytes()
    (place / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    save_file({"x": torch.zeros(2)}, place / "foreign.safetensors")


def write_data(place: Path) -> None:
    """A table of stations and a field, and damaged ones."""
    rng = np.random.default_rng(0)
    where = {"lat": rng.uniform(41, 46, 60), "lon": rng.uniform(-5, 3, 60)}
    stations = pd.DataFrame({"time": "2020-01-01"} | where | {"t2m [K]": rng.normal(280, 5, 60)})
    stations.to_csv(place / "stations.csv", index=False)
    stations.rename(columns={"t2m [K]": "t2m [degC]"}).to_csv(place / "celsius.csv", index=False)
    stations.rename(columns={"lat": "a"}).to_csv(place / "no_places.csv", index=False)
    axes = {"time": pd.date_range("2020-01-01", periods=2), "lat": np.arange(40.0, 47), "lon": np.arange(-6.0, 4)}
    values = rng.normal(280, 5, [len(axis) for axis in axes.values()])
    whole = xr.Dataset({"t2m": (tuple(axes), values, {"units": "K"})}, coords=axes)
    whole.to_netcdf(place / "field.nc", encoding={"t2m": {"fletcher32": True}})
    whole.rename(lat="a").to_netcdf(place / "no_places.nc")
    content = (place / "field.nc").read_bytes()
    (place / "cut.nc").write_bytes(content[: len(content) // 2])
    (place / "broken.nc").write_bytes(content.replace(values.tobytes(), bytes(values.nbytes)))
    for name in ("field.zarr", "broken.zarr"):
        whole.to_zarr(place / name, consolidated=False)
    for chunk in (place / "broken.zarr/t2m/c").rglob("0"):
        if chunk.is_file():
            chunk.write_bytes(b"broken")


def contents(place: Path) -> dict[str, tuple[int, int]]:
    """All files, with times and sizes."""
    return {str(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in place.rglob("*")}


def is_one_line(text: str) -> bool:
    return text.startswith("aenp: ") and text.endswith("\n") and len(text.splitlines()) == 1


def test_every_command_has_its_lines() -> None:
    assert LINES.keys() == cli.COMMANDS.keys()


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(words)[:100])
def test_a_wrong_command_line_prints_one_line(
    words: tuple[str, ...], place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["aenp", *words])
    before = contents(place)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed, error = capfd.readouterr()
    assert (stop.value.code, printed) == (2, "")
    assert is_one_line(error), error
    assert contents(place) == before


@pytest.mark.parametrize(
    "words",
    [Random(1).choice(WRONG), ("fit", "bad.grib", "--out", "new/fit")],
    ids=lambda words: " ".join(words)[:100],
)
def test_a_wrong_command_line_prints_one_line_in_a_process_of_its_own(words: tuple[str, ...], place: Path) -> None:
    before = contents(place)
    command = [sys.executable, "-c", "from aenp.cli import main; main()", *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr), done.stderr
    assert contents(place) == before


@pytest.mark.parametrize(("command", "number"), QUICK)
def test_without_faults_the_command_lines_work(
    command: str, number: int, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in place.glob("*.*"):
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["aenp", command, *LINES[command][number].words.split()])
    cli.main()
