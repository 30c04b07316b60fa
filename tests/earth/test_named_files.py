"""Errors of commands that were given files name these, however often data were converted before."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import aenp
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Axis, Covariate, Frame, Variable
from aenp.earth.points import open_points
from aenp.earth.sources import describe
from frames import frame

RNG = np.random.default_rng(0)
TIMES = pd.date_range("2020-01-01", periods=3)
FIELD = xr.DataArray(
    RNG.normal(280, 5, (3, 7, 9)),
    {"time": TIMES, "latitude": np.arange(40.0, 47), "longitude": np.arange(-6.0, 3)},
    name="t2m",
    attrs={"units": "K"},
)
TABLE = FIELD.to_dataframe().reset_index()


def save_model(out: Path, axes: list[Axis], covariates: list[Covariate]) -> None:
    own = frame(40, 47, -6, 4)
    own = Frame([*own.axes.values(), *axes], [Variable("t2m", 280.0, 5.0, "K")], covariates=covariates)
    torch.manual_seed(0)
    process = aenp.CNP(len(own.axes), 1, dim_covariates=len(covariates), dim=8, layers=1)
    FieldModel(process, own).save(out)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with models and data."""
    place = tmp_path_factory.mktemp("place")
    time = Axis("time", 1.0, 18262.0, window=2.0)
    save_model(place / "plain.safetensors", [], [])
    save_model(place / "times.safetensors", [time], [])
    save_model(place / "topo.safetensors", [], [Covariate("topo", 0.0, 1.0, "m")])
    TABLE.to_csv(place / "stations.csv", index=False)
    TABLE.assign(time="3 May").to_csv(place / "undated.csv", index=False)
    TABLE.assign(t2m=1e4).to_csv(place / "hot.csv", index=False)
    TABLE.assign(topo=1.0).to_csv(place / "with_topo.csv", index=False)
    TABLE.assign(time=TABLE["time"] + pd.Timedelta(days=99)).to_csv(place / "later.csv", index=False)
    (FIELD - 273.15).assign_attrs(units="mm").to_netcdf(place / "rain.nc")
    FIELD.to_netcdf(place / "field.nc")
    return place


LINES = {
    "predict --weights times.safetensors --context stations.csv --target later.csv": "stations.csv has no observ",
    "predict --weights plain.safetensors --context hot.csv --target stations.csv": "hot.csv: values are about 1e",
    "predict --weights plain.safetensors --context rain.nc --target stations.csv": "rain.nc and the model's training",
    "predict --weights plain.safetensors --context stations.csv --target undated.csv": "undated.csv: times are not d",
    "predict --weights topo.safetensors --context with_topo.csv --target stations.csv": "of stations.csv; add a col",
    "validate rain.nc --weights plain.safetensors": "rain.nc and the model's training data: the units 'mm' and",
    "validate stations.csv --weights plain.safetensors --region 0 9 0 9": "stations.csv has no data in region",
    "validate field.nc --weights topo.safetensors": "the covariate topo is not known at .* of field.nc; add a column",
    "suggest with_topo.csv --weights topo.safetensors --candidates stations.csv": "of stations.csv; add a column",
}


@pytest.mark.parametrize("line", LINES)
def test_an_error_of_a_command_names_the_file(
    line: str,
    place: Path,
    call: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    with pytest.raises(SystemExit):
        call(*line.split(), *("--out", "p.nc") * line.startswith("predict"))
    told = capsys.readouterr().err
    assert re.search(LINES[line], told) and len(told.splitlines()) == 1 and "the given" not in told


def test_tables_remember_their_file(tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "stations.csv", index=False)
    points = open_points(tmp_path / "stations.csv")
    assert describe(points) == describe(open_points(points)) == str(tmp_path / "stations.csv")
    assert describe(open_points(TABLE)) == "the given DataFrame"
