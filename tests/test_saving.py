import json
import os

import pytest
import torch
from safetensors.torch import save_file

import aenp
from aenp.saving import FORMAT
from catalogue import build, random_task


@pytest.fixture
def path(tmp_path):
    aenp.save(build("convcnp-approx", 1), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_truncated_file(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        aenp.load(path)


def test_a_foreign_file(path):
    path.write_text("station,temperature\n1,280.3\n")
    with pytest.raises(ValueError, match="not a safetensors file"):
        aenp.load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="not a model saved by aenp"):
        aenp.load(path)


def test_a_newer_file(path):
    header = {"format": FORMAT + 1, "version": "99.0", "model": {"class": "?"}}
    save_file({"weight": torch.zeros(3)}, path, metadata={"aenp": json.dumps(header)})
    with pytest.raises(ValueError, match=r"aenp 99\.0 in format .* Upgrade"):
        aenp.load(path)


@pytest.mark.parametrize(
    "model", [{"class": "Unheard"}, {"class": "CNP", "dim_x": 1, "dim_y": 1}, {"class": "CNP", "q": 1}]
)
def test_a_file_that_does_not_fit_its_model(path, model):
    header = {"format": 1, "version": "0.1", "model": model}
    save_file({"weight": torch.zeros(3)}, path, metadata={"aenp": json.dumps(header)})
    with pytest.raises(ValueError, match="does not fit the model it describes"):
        aenp.load(path)


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no saved model"):
        aenp.load(tmp_path / "nothing.safetensors")


def test_a_failed_save_leaves_the_old_file_and_no_other(path, monkeypatch):
    before = path.read_bytes()

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        aenp.save(build("cnp", 1), path)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("header", ["{}", "[]", '{"format": "1"}', "nonsense", '{"format": 1, "model": "x"}'])
def test_a_file_with_another_header(path, header):
    save_file({"weight": torch.zeros(3)}, path, metadata={"aenp": header})
    with pytest.raises(ValueError, match="not a model saved by aenp"):
        aenp.load(path)


@pytest.mark.parametrize("name", ["tnp-exact", "tnp-exact-spectral", "convcnp-approx", "equivcnp-exact"])
def test_float64_weights_stay_float64(name, tmp_path):
    model, task = build(name, 2).double(), random_task(2)
    aenp.save(model, tmp_path / "model.safetensors")
    assert torch.equal(aenp.load(tmp_path / "model.safetensors")(task).mean, model(task).mean)


def test_a_users_own_model(tmp_path):
    class Mine(aenp.ConvCNP):
        def __init__(self, **arguments):
            super().__init__(**arguments)

    model, task = Mine(dim_x=1, dim_y=2, channels=8, layers=3).eval(), random_task(1)
    aenp.save(model, tmp_path / "model.safetensors")
    loaded = aenp.load(tmp_path / "model.safetensors")
    assert type(loaded) is Mine and torch.equal(loaded(task).mean, model(task).mean)


def test_a_model_of_half_precision(path):
    aenp.save(build("convcnp-approx", 1).half(), path)
    with pytest.raises(
        ValueError, match=r"model\.safetensors: the tensor .* is of torch\.float16, and models compute in"
    ):
        aenp.load(path)


def test_a_model_that_holds_nan(path):
    model = build("convcnp-approx", 1)
    with torch.no_grad():
        model.head[0].bias[0] = torch.nan
    aenp.save(model, path)
    with pytest.raises(ValueError, match=r"model\.safetensors: the tensor head\.\S+ holds NaN"):
        aenp.load(path)
