"""Untrusted files: damaged or hostile ones are refused with a clear message, run no code and take no memory."""

import json
import math
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_training import RECIPE, SOURCE, small_model

import aenp
from aenp.experiments.runs import RunConfig, train_model
from aenp.experiments.smoke.simulator import Box
from aenp.experiments.smoke.store import generate, load
from aenp.training.loop import train
from catalogue import build

pytestmark = pytest.mark.slow

FLIPS = 200
SETTINGS: dict[str, Any] = {"experiment": "gp", "model": "tnp", "symmetry": "exact", "steps": 1, "threads": 1}


def flipped(content: bytes, rng: random.Random) -> bytes:
    """The content with one bit changed."""
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]


def damaged(content: bytes) -> Iterator[bytes]:
    """The content with one bit changed, or cut off somewhere."""
    rng = random.Random(0)
    for _ in range(FLIPS):
        yield flipped(content, rng)
    for _ in range(20):
        yield content[: rng.randrange(len(content))]


def test_a_damaged_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    aenp.save(build("convcnp-approx", 1), file)
    for content in damaged(file.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"model\.safetensors"):
            aenp.load(file)


def test_a_damaged_checkpoint_is_refused_and_kept(tmp_path: Path) -> None:
    """Or, if nothing reads the damaged part, the run ends as it would have."""
    model = small_model()
    train(model, SOURCE, RECIPE, tmp_path)
    file = tmp_path / "last.ckpt"
    expected, harmless = model.state_dict(), 0
    for content in damaged(file.read_bytes()):
        file.write_bytes(content)
        again, refusal = small_model(), None
        try:
            train(again, SOURCE, RECIPE, tmp_path, resume=True)
        except ValueError as error:
            refusal = str(error)
        if refusal is None:
            harmless += 1
            assert all(torch.equal(value, expected[name]) for name, value in again.state_dict().items())
        else:
            assert "last.ckpt is " in refusal
        assert file.read_bytes() == content
    assert harmless < FLIPS / 4


def test_a_damaged_data_set_is_refused(tmp_path: Path) -> None:
    """Each file in turn: reading it fails with a clear message, or gives the same densities."""
    out = tmp_path / "smoke.zarr"
    assert list(generate(out, 10, box=Box(size=16, obstacle=(8.0, 12.0), obstacle_radius=2.0, steps=2), workers=1))
    expected, refused = load(out, "train"), 0
    for file in sorted(path for path in out.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        for number, content in enumerate(damaged(whole)):
            if number % 10:
                continue
            file.write_bytes(content)
            try:
                found = load(out, "train")
            except ValueError as error:
                refused += "smoke.zarr" in str(error)
            else:
                assert np.array_equal(found, expected)
        file.write_bytes(whole)
    assert refused > 50
    (out / "density/c/0/0/0").unlink()
    with pytest.raises(ValueError, match="1 of its chunks are missing"):
        load(out, "train")


class Hostile:
    """Unpickled, it writes a marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("write", [torch.save, lambda content, file: file.write_bytes(pickle.dumps(content))])
def test_a_hostile_checkpoint_runs_no_code(write: Callable[[Any, Path], Any], tmp_path: Path) -> None:
    marker, out = tmp_path / "marker", tmp_path / "run"
    out.mkdir()
    write(
        {"state_dict": Hostile(marker), "steps": 1, "seconds": 1.0, "global_step": 1, "best_score": 0.0},
        out / "last.ckpt",
    )
    (out / "run.json").write_text(json.dumps({"settings": SETTINGS, "commands": ["aenp train gp"]}))
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged or not a checkpoint"):
        train_model(out, RunConfig("gp"), resume=True)
    assert not marker.exists()


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"state_dict": {}},
        {"state_dict": {}, "steps": -1, "global_step": -1, "seconds": 0.0},
        {"state_dict": {}, "steps": 1, "global_step": 2, "seconds": 0.0},
        {"state_dict": {}, "steps": 1, "global_step": 1, "seconds": math.nan},
        {"state_dict": {}, "steps": "1", "global_step": "1", "seconds": 0.0},
        {"state_dict": {}, "steps": 1, "global_step": 1, "seconds": 0.0, "best_score": math.nan},
        [1, 2],
    ],
)
def test_a_checkpoint_with_other_content_is_refused(content: object, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"last\.ckpt is not a checkpoint"):
        train(small_model(), SOURCE, RECIPE, tmp_path, resume=True)


@pytest.mark.parametrize("damage", ["small moments", "no moments", "no loops", "more parameters"])
def test_a_checkpoint_whose_optimiser_does_not_fit_is_refused(damage: str, tmp_path: Path) -> None:
    """Fused AdamW would read and write beyond arrays that are too small."""
    train(small_model(), SOURCE, RECIPE, tmp_path)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    moments = state["optimizer_states"][0]["state"]
    if damage == "small moments":
        moments[1] |= {"exp_avg": torch.zeros(1), "exp_avg_sq": torch.zeros(1)}
    elif damage == "no moments":
        del state["optimizer_states"]
    elif damage == "no loops":
        del state["loops"]
    else:
        moments[10**6] = moments[0]
    torch.save(state, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"last\.ckpt is not a checkpoint of this model"):
        train(small_model(), SOURCE, replace(RECIPE, steps=8), tmp_path, resume=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"devices": 1000}, "devices=1000 is more than this machine has"),
        ({"threads": 10**4}, "threads=10000 is more than this machine has"),
        ({"devices": 0}, "devices must be between 1 and 65536; got 0"),
        ({"devices": True}, "devices must be int; got True"),
        ({"devices": "2"}, "devices must be int; got '2'"),
        ({"num_nodes": 10**6}, "num_nodes must be between 1 and 1000"),
        ({"steps": 10**30}, "steps must be between 1 and 1e"),
        ({"steps": None, "minutes": math.nan}, "minutes must be float | None; got nan"),
        ({"steps": None, "minutes": math.inf}, "minutes must be float | None; got inf"),
        ({"learning_rate": -1.0}, "learning_rate must be between"),
        ({"seed": 2**70}, "seed must be between 0 and"),
        ({"seed": -1}, "seed must be between 0 and"),
        ({"precision": "1-true"}, "precision must be one of"),
        ({"symmetry": "perfect"}, "symmetry must be"),
        ({"preset": ["cpu"]}, "preset must be"),
        ({"experiment": "../gp"}, "experiment must be one of"),
        ({"model": "../tnp"}, "gp has the models"),
        ({"data": 3}, "data must be str | None; got 3"),
        ({"password": 1}, "password"),
    ],
)
def test_hostile_settings_of_a_run_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"settings": SETTINGS | settings, "commands": []}))
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        train_model(tmp_path, RunConfig("gp"), resume=True)
    assert (tmp_path / "run.json").read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "[]", "nonsense", '{"settings": {}}', "[" * 100_000, '{"settings": 1, "commands": 2}']
)
def test_invalid_run_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ValueError, match=r"run\.json does not describe a run"):
        train_model(tmp_path, RunConfig("gp"), resume=True)


def test_more_devices_than_the_machine_has_can_be_forced() -> None:
    settings = RunConfig(**SETTINGS | {"devices": 1000})
    with pytest.raises(ValueError, match="--oversubscribe allows it"):
        settings.check_machine()


HUGE = 10**9
MODELS: list[dict[str, Any]] = [
    {"class": "TNP", "dim_x": 1, "dim_y": 1, "layers": HUGE},
    {"class": "TNP", "dim_x": 1, "dim_y": 1, "dim": HUGE},
    {"class": "FieldModel", "process": [{"class": "TNP", "dim_x": 1, "dim_y": 1, "layers": HUGE}], "frame": None},
    {"class": "TNP", "dim_x": 1, "dim_y": 1, "dim": 40_000, "heads": 8},
    {"class": "TNP", "dim_x": HUGE, "dim_y": 1},
    {"class": "TNP", "dim_x": 1, "dim_y": HUGE},
    {"class": "TNP", "dim_x": 1, "dim_y": 1, "attention": "spectral", "heads": HUGE, "dim": HUGE},
    {"class": "PTTNP", "dim_x": 1, "dim_y": 1, "pseudo_tokens": HUGE},
    {"class": "PTTNP", "dim_x": 1, "dim_y": 1, "pseudo_tokens": 10**400},
    {"class": "ConvCNP", "dim_x": 1, "dim_y": 1, "layers": HUGE + 1, "growth": 2},
    {"class": "ConvCNP", "dim_x": 1, "dim_y": 1, "channels": 100_000},
    {"class": "ConvCNP", "dim_x": 1, "dim_y": 1, "kernel": HUGE + 1},
    {"class": "ConvCNP", "dim_x": 1, "dim_y": 1, "lengthscales": HUGE},
    {"class": "EquivCNP", "dim_x": 2, "dim_y": 1, "kernel": HUGE + 1},
    {"class": "RelaxedConvCNP", "dim_x": 1, "dim_y": 1, "kernels": HUGE},
    {"class": "CNP", "dim_x": 1, "dim_y": 1, "layers": HUGE},
    {"class": "CNP", "dim_x": 1, "dim_y": 1, "likelihood": {"class": "NormalMixture", "components": HUGE}},
    {"class": "RCNP", "dim_x": 2, "dim_y": 1, "fixed_inputs": {"class": "FixedInputs", "dim_x": 2, "fourier": HUGE}},
    {"class": "RCNP", "dim_x": 2, "dim_y": 1, "fixed_inputs": {"class": "FixedInputs", "dim_x": HUGE, "domain": None}},
    {"class": "RCNP", "dim_x": 2, "dim_y": 1, "fixed_inputs": {"class": "FixedInputs", "dim_x": 2, "width": HUGE}},
]
LOAD = """
import resource, sys
import aenp, aenp.models, aenp.saving
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
for file in sys.argv[1:]:
    try:
        aenp.load(file)
    except ValueError as error:
        assert file in str(error), error
    else:
        raise AssertionError(f"{file} was loaded")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_a_file_that_describes_a_huge_model_takes_no_memory(tmp_path: Path) -> None:
    """Within 256 MB each is refused with a clear message."""
    files = []
    for number, model in enumerate(MODELS):
        files.append(str(tmp_path / f"{number}.safetensors"))
        header = {"format": 1, "version": "0.1", "model": model}
        save_file({"weight": torch.zeros(1000)}, files[-1], metadata={"aenp": json.dumps(header)})
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *files], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_second_process_in_a_run_directory_is_refused(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from aenp.training.directory import alone_in\n"
        "with alone_in(Path(sys.argv[1])):\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", code + "    print('in', flush=True); sys.stdin.read()", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None and first.stdin is not None and first.stdout.readline() == "in\n"
    with pytest.raises(FileExistsError, match="another process is training in"):
        train(small_model(), SOURCE, RECIPE, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.lock"]
    first.kill()
    first.communicate(timeout=600)
    assert train(small_model(), SOURCE, RECIPE, tmp_path).finished
