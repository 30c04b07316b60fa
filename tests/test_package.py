"""The package from outside: import, command line, compilation, and the documents that a command writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import aenp
from aenp.evaluation.families import all_models, facts
from aenp.models import FAMILIES, make

ROOT = Path(__file__).parent.parent


def run(*command, **environment):
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **environment}
    )


def python(code):
    """Runs code as a user would: without the checks of shapes, and with warnings as errors."""
    result = run(sys.executable, "-W", "error", "-c", code)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import aenp.cli", ("torch", "numpy", "tyro", "rich")),
        ("import aenp; aenp.TNP", ("torch._dynamo", "lightning", "xarray", "matplotlib", "tyro")),
        ("import aenp.earth.commands", ("torch._dynamo", "lightning", "matplotlib")),
    ],
)
def test_imports_leave_heavy_libraries_alone(code, heavy):
    """So that `aenp --help` is fast, a model needs only PyTorch, and predicting nothing that training needs."""
    assert python(f"{code}; import sys; print(*(m for m in {heavy!r} if m in sys.modules))").strip() == ""


def test_the_command_line_prints_its_version_and_help():
    program = Path(sys.executable).parent / "aenp"
    assert run(program, "--version").stdout.strip() == f"aenp {aenp.__version__}"
    assert "Examples" in run(program, "--help").stdout
    unknown = run(program, "nonsense")
    assert unknown.returncode != 0 and "families" in unknown.stdout + unknown.stderr


def test_the_page_of_models_is_up_to_date():
    page = (ROOT / "docs" / "models.md").read_text()
    for model in all_models():
        assert "| " + " | ".join(facts(model)) + " |" in page


def test_every_family_is_made_by_name():
    for family, kind in FAMILIES.items():
        for symmetry in kind.symmetries:
            model = make(family, symmetry, 1, 1, domain=[(-1.0, 1.0)] if symmetry == "approx" else None)
            assert type(model) is kind and model.symmetry == symmetry
    with pytest.raises(ValueError, match="comes with symmetry"):
        make("cnp", "exact", 1, 1)
    with pytest.raises(ValueError, match="family must be one of"):
        make("gnp", "exact", 1, 1)


def test_drawing_to_files_leaves_the_users_backend():
    """A notebook that calls it still shows its own figures."""
    code = "import matplotlib; import aenp.earth.maps; print(matplotlib.get_backend())"
    assert run(sys.executable, "-c", code, MPLBACKEND="svg").stdout.strip() == "svg"


COMPILE = """
import warnings; warnings.simplefilter("ignore")
import torch, aenp
torch.manual_seed(0)
t = lambda: aenp.FixedInputs(1, num=4, domain=[(-3, 3)])
model = {model}.eval()
xc, xt = torch.rand(3, 7, 1, dtype=torch.float64), torch.rand(3, 9, 1, dtype=torch.float64)
yc, yt = torch.randn(3, 7, 1), torch.randn(3, 9, 1)
compiled = torch.compile(model, fullgraph=True, backend="{backend}")
torch.set_grad_enabled({gradients})
for place in (0.0, 50.0):
    fast, plain = compiled(xc + place, yc, xt + place), model(xc + place, yc, xt + place)
    torch.testing.assert_close(fast.mean, plain.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fast.stddev, plain.stddev, rtol=1e-4, atol=1e-5)
"""
GRADIENTS = """
with model.equivariant():
    off = compiled(xc, yc, xt).mean
    torch.testing.assert_close(off, model(xc, yc, xt).mean, rtol=1e-4, atol=1e-5)
assert not torch.allclose(off, compiled(xc, yc, xt).mean, atol=1e-3)
fast.log_prob(yt).mean().backward()
gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
model.zero_grad()
plain.log_prob(yt).mean().backward()
for ours, theirs in zip(gradients, [p.grad for p in model.parameters() if p.grad is not None], strict=True):
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
if hasattr(model, "lattice"):
    try:
        compiled(10 * xc, yc, 10 * xt)
    except ValueError as error:
        assert "compiled for a grid" in str(error)
    else:
        raise AssertionError("a grid that is too small went unnoticed")
"""


@pytest.mark.slow
@pytest.mark.parametrize("model", ["TNP(1, 1, dim=16, heads=2, layers=1", "ConvCNP(1, 1, channels=8, layers=3"])
def test_models_compile_as_one_graph(model):
    """Predictions with fixed inputs and without, and gradients."""
    arguments = {"model": f"aenp.{model}, fixed_inputs=t())", "backend": "aot_eager", "gradients": True}
    python((COMPILE + GRADIENTS).format(**arguments))


@pytest.mark.slow
def test_a_model_compiles_down_to_machine_code(tmp_path, monkeypatch):
    """In a cache of its own: what was compiled for other instructions does not fit."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    model = "aenp.ConvCNP(1, 1, channels=8, layers=3, fixed_inputs=t())"
    python(COMPILE.format(model=model, backend="inductor", gradients=False))
