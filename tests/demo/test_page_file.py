"""The page as a file: what it may hold, and which models it can compute."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import aenp
from aenp.demo.page import page
from aenp.demo.regions import coasts
from aenp.demo.weights import LARGE, check_known, rounded


def test_the_command_writes_and_opens_one_small_file(
    call: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    file = tmp_path / "page.html"
    assert f"Wrote {file}, " in call("demo", "--out", file, "--open")
    assert opened == [file.as_uri()] and file.stat().st_size < 3e6


def test_the_page_needs_no_network() -> None:
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\"'\s]*", page()))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_the_page_with_data_is_small_and_has_them(climate: Path) -> None:
    text = page(climate)
    assert len(text.encode()) < 3e6
    assert '"elevation": [' in text and "written without data" not in text


@pytest.mark.parametrize(("region", "port"), [("Italy", (44.4, 8.9)), ("Italy", (38.1, 13.4)), ("UK", (51.1, 1.3))])
def test_ports_lie_on_the_coasts(region: str, port: tuple[float, float]) -> None:
    nodes = np.concatenate([np.reshape(line, (-1, 2)) for line in coasts()[region]]) / 100
    assert np.hypot(*(nodes - port).T).min() < 0.2


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"itu1511v2_topo_1_12deg.nc does not exist"):
        page(tmp_path)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"attention": "mlp"}, "spectral attention"),
        ({"fixed_inputs": None}, "fixed inputs"),
        ({"likelihood": aenp.NormalMixture(2)}, "a Normal likelihood"),
        ({"values": "standardised"}, "raw or centred values"),
        ({"dim_covariates": 1}, "no covariates"),
        ({"fixed_inputs": aenp.FixedInputs(1, domain=[(-1, 1)], fourier=4, positions=False)}, "fixed inputs"),
        ({"fixed_inputs": aenp.FixedInputs(1, periods=[1.0])}, "fixed inputs"),
    ],
)
def test_a_model_that_the_page_cannot_compute_is_refused(options: dict[str, Any], missing: str) -> None:
    fixed = aenp.FixedInputs(dim_x=1, domain=[(-1, 1)])
    defaults: dict[str, Any] = {"dim": 16, "heads": 2, "layers": 1, "attention": "spectral", "fixed_inputs": fixed}
    check_known(aenp.TNP(dim_x=1, dim_y=1, **defaults))
    with pytest.raises(ValueError, match=f"only models with {missing}"):
        check_known(aenp.TNP(dim_x=1, dim_y=1, **defaults | options))


def test_pseudo_tokens_on_a_grid_are_refused() -> None:
    fixed = aenp.FixedInputs(dim_x=1, domain=[(-1, 1)])
    tokens: dict[str, Any] = {"attention": "spectral", "form": "perceiver", "pseudo_tokens": "grid"}
    with pytest.raises(ValueError, match="only models with the induced form of pseudo-tokens, on no grid"):
        check_known(aenp.PTTNP(1, 1, dim=16, heads=2, layers=1, fixed_inputs=fixed, **tokens))


def test_only_large_tensors_are_rounded_and_by_a_millionth_at_most() -> None:
    small, large = torch.randn(LARGE - 1), torch.randn(LARGE)
    np.testing.assert_array_equal(rounded(small), small)
    error = np.abs(rounded(large) - large.numpy()).max()
    assert 0 < error < 1e-6 * large.abs().max()
