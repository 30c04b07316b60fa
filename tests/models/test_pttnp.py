"""Pseudo-tokens on a grid: what sets them apart from those of a fixed number."""

import pytest
import torch
from test_contract import assert_same, differs

import aenp
from aenp import Task
from aenp.evaluation.metrics import equivariance_error
from aenp.nn import local_attention
from aenp.symmetry import Translation
from catalogue import ATTENTION, TOKENS, build, random_task
from test_package import python


@pytest.mark.parametrize("name", ["pttnp-exact-grid", "pttnp-approx-grid"])
def test_few_targets_read_few_of_many_tokens(name, monkeypatch):
    """Chunks of two targets see fewer tokens than there are, a thousand copies of them more."""
    monkeypatch.setattr(local_attention, "SMALL", 0)
    model, task = build(name, 2), random_task(2)
    many = task.with_targets(task.xt.repeat(1, 1000, 1))
    expected = model(many)
    assert_same(aenp.predict(model, task, chunk=2), model(task))
    torch.testing.assert_close(model(task).mean, expected.mean[:, :7], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["pttnp-exact-grid", "pttnp-approx-grid"])
def test_small_grids_predict_what_large_ones_would(name, monkeypatch):
    """With all pairs of points and tokens compared, and with those near each other selected."""
    model, task = build(name, 2), random_task(2)
    expected = model(task)
    monkeypatch.setattr(local_attention, "SMALL", 0)
    assert_same(model(task), expected)


def test_targets_far_from_the_context_get_the_prediction_without_one():
    model, task = build("pttnp-exact-grid", 2), random_task(2)
    far = task.with_targets(task.xt + 20)
    assert_same(model(far), model(far.xc[:, :0], far.yc[:, :0], far.xt))
    assert differs(model(task), model(far))


def test_predictions_are_continuous_where_a_token_comes_into_sight_on_the_same_grid():
    """As a target moves past a token, and as a context point inside does that leaves the mean in its place."""
    model = build("pttnp-exact-grid", 1).double()
    xc = torch.tensor([[[-1.7], [-1.0], [0.0], [1.0], [1.7]]], dtype=torch.float64)
    y = torch.tensor([[[1.0, -1.0], [0.5, 2.0], [-2.0, 0.3], [0.1, -0.4], [1.5, 0.2]]], dtype=torch.float64)
    xt = torch.tensor([[[-1.0], [0.0], [1.0], [0.3]]], dtype=torch.float64)
    before, after = model(xc, y, xt - 1e-7), model(xc, y, xt + 1e-7)
    torch.testing.assert_close(before.mean, after.mean, rtol=0, atol=1e-4)
    moved = torch.tensor([[[0.0], [1.0], [0.0], [-1.0], [0.0]]], dtype=torch.float64) * 1e-7
    torch.testing.assert_close(model(xc - moved, y, xt).mean, model(xc + moved, y, xt).mean, rtol=0, atol=1e-4)


def test_the_grid_grows_where_the_outermost_point_leaves_its_cell():
    """A thousandth of a cell later, so that round-off decides nothing; there, predictions jump."""
    model = build("pttnp-exact-grid", 1).double()
    y = torch.tensor([[[1.0, -1.0], [0.5, 2.0]]], dtype=torch.float64)
    xt = torch.tensor([[[0.3]]], dtype=torch.float64)
    below, above = (torch.tensor([[[-edge], [edge]]], dtype=torch.float64) for edge in (1.001 - 1e-7, 1.001 + 1e-7))
    sizes = [model.encode(Task(xc, y, xt)).lattice.shape for xc in (-below, below, -above, above)]
    assert sizes == [(5,), (5,), (7,), (7,)]
    assert differs(model(above, y, xt), model(below, y, xt))


def test_four_dimensions_and_a_spacing_for_each():
    torch.manual_seed(0)
    model = aenp.PTTNP(4, 2, pseudo_spacing=[1.5, 2.0, 3.0, 4.0], **TOKENS, **ATTENTION).eval()
    assert equivariance_error(model, random_task(4), Translation(4).element([7.3, 0.1, -2.0, 100.0])) <= 1e-5


def test_a_context_too_wide_for_the_memory_is_refused():
    model, task = build("pttnp-exact-grid", 2), random_task(2)
    with pytest.raises(ValueError, match=r"the grid would need 3 × \d+ × \d+ cells .* Raise pseudo_spacing, or split"):
        model(Task(1e6 * task.xc, task.yc, task.xt))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attention": "mlp"}, "needs symmetry='exact', attention='spectral' and form='perceiver'; got 'exact', 'mlp'"),
        ({"form": "induced"}, "needs symmetry='exact', .*; got 'exact', 'spectral' and 'induced'"),
        ({"symmetry": "none"}, "needs symmetry='exact', .*; got 'none'"),
        ({"window": 4}, "window must be an odd number of tokens; got 4"),
        ({"pseudo_spacing": 0.0}, "pseudo_spacing must be one number or 2, between 1e-15 and 1e"),
        ({"pseudo_spacing": [1.0, 2.0, 3.0]}, "pseudo_spacing must be one number or 2"),
    ],
)
def test_options_that_do_not_fit_a_grid_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        aenp.PTTNP(2, 1, **TOKENS | options)


ONE_GRAPH = """
import warnings; warnings.simplefilter("ignore")
import torch, aenp
torch.manual_seed(0)
options = {"attention": "spectral", "form": "perceiver", "pseudo_tokens": "grid", "dim": 16, "heads": 2, "layers": 1}
model = aenp.PTTNP(1, 1, pseudo_spacing=0.1, fixed_inputs=aenp.FixedInputs(1, domain=[(-3, 3)]), **options).eval()
xc, yc, xt = torch.rand(3, 7, 1), torch.randn(3, 7, 1), torch.rand(3, 9, 1)
compiled = torch.compile(model, fullgraph=True, backend="eager")
torch.testing.assert_close(compiled(xc, yc, xt).mean, model(xc, yc, xt).mean, rtol=1e-5, atol=1e-5)
try:
    compiled(10 * xc, yc, xt)
except ValueError as error:
    assert "compiled for a grid" in str(error)
else:
    raise AssertionError("a grid that is too small went unnoticed")
"""


@pytest.mark.slow
def test_a_grid_of_tokens_is_traced_as_one_graph():
    python(ONE_GRAPH)
