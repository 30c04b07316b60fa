"""Local attention against its formulas, written out for all pairs."""

import pytest
import torch

from aenp.nn import local_attention
from aenp.nn.lattice import Lattice
from aenp.nn.local_attention import ReadPoints, ReadTokens, Tokens, Window, among, in_a_row
from aenp.nn.spectral import Frequencies

BATCH, HEADS, SIZE, POINTS = 2, 2, 4, 11
SHAPES = pytest.mark.parametrize("shape", [(7,), (5, 4), (3, 2, 4)])
SIGHTS = pytest.mark.parametrize("sight", [1, 2])
SPACING = [0.5, 0.8, 0.3]


@pytest.fixture(params=["all pairs", "parts"])
def parts(request, monkeypatch):
    """All pairs at once; or few at a time, and blocks of few tokens, so that there are several of each."""
    if request.param == "parts":
        monkeypatch.setattr(local_attention, "SMALL", 0)
        monkeypatch.setattr(local_attention, "PAIRS", 16)
        monkeypatch.setattr(local_attention, "BLOCK", 8)


def scene(shape):
    """A grid of tokens, points on it and around it, and a frequency for each pair of channels."""
    torch.manual_seed(0)
    dim_x, spacing = len(shape), SPACING[: len(shape)]
    size = torch.tensor(shape, dtype=torch.float64).expand(BATCH, -1)
    lattice = Lattice(torch.zeros(BATCH, 1, dim_x, dtype=torch.float64), spacing, size, shape)
    extent = size[:, None] * torch.tensor(spacing, dtype=torch.float64)
    x = 1.4 * extent * torch.rand(BATCH, POINTS, dim_x, dtype=torch.float64) - 0.2 * extent
    v = lattice.offsets(1).flatten(0, -2).expand(BATCH, -1, -1)
    return lattice, x, v, Frequencies(dim_x, HEADS, SIZE, (0.5, 4.0)).double()


def channels(*counts):
    return [torch.randn(BATCH, HEADS, count, SIZE, dtype=torch.float64, requires_grad=True) for count in counts]


def weights(lattice, x, v, sight):
    """Π_d (1 − 3 Δ_d² + 2 |Δ_d|³), with Δ in units of `sight` cells, for every point and every token in sight."""
    away = (x.unsqueeze(2) - v.unsqueeze(1)).abs() / (sight * torch.tensor(lattice.spacing, dtype=torch.float64))
    return torch.where(away < 1, 1 - 3 * away**2 + 2 * away**3, 0.0).prod(-1)


def plain(frequencies, query, key, value, x, context_x, weight, nothing):
    """Σ_j w e^{logit} v / (nothing + Σ_j w e^{logit}) with the logits and turned values of every pair."""
    q, k, v = (torch.view_as_complex(u.unflatten(-1, (-1, 2)).contiguous()) for u in (query, key, value))
    angle = torch.einsum("bqkd,hpd->bhqkp", x.unsqueeze(2) - context_x.unsqueeze(1), frequencies.frequencies)
    phase = torch.complex(angle.cos(), angle.sin())
    logits = (q.unsqueeze(3) * k.conj().unsqueeze(2) * phase).sum(-1).real / SIZE**0.5
    share = weight.unsqueeze(1) * logits.exp()
    share = share / (nothing + share.sum(-1, keepdim=True))
    return torch.view_as_real(torch.einsum("bhqk,bhkp,bhqkp->bhqp", share.to(phase), v, phase.conj())).flatten(-2)


def assert_same_with_gradients(ours, theirs, inputs):
    torch.testing.assert_close(ours, theirs)
    direction = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, inputs, direction)
    for gradient, other in zip(torch.autograd.grad(ours, inputs, direction), expected, strict=True):
        torch.testing.assert_close(gradient, other)


@SHAPES
@SIGHTS
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.usefixtures("parts")
def test_tokens_and_points_read_each_other(shape, sight, masked):
    lattice, x, v, frequencies = scene(shape)
    points = among(lattice, x, frequencies(x), sight)
    tokens = Tokens(in_a_row(frequencies(v)), shape)
    q, k, value = channels(v.shape[1], POINTS, POINTS)
    weight, mask = weights(lattice, x, v, sight), torch.rand(BATCH, POINTS) > 0.3 if masked else None
    seen = weight if mask is None else weight * mask.unsqueeze(-1)
    ours = ReadPoints()(q, k, value, tokens, points, mask)
    assert_same_with_gradients(ours, plain(frequencies, q, k, value, v, x, seen.mT, 1), (q, k, value))
    q, k, value = channels(POINTS, v.shape[1], v.shape[1])
    mask = torch.rand(BATCH, v.shape[1]) > 0.3 if masked else None
    seen = weight if mask is None else weight * mask.unsqueeze(1)
    ours = ReadTokens()(q, k, value, points, tokens, mask)
    assert_same_with_gradients(ours, plain(frequencies, q, k, value, x, v, seen, 1), (q, k, value))


@SHAPES
@pytest.mark.parametrize("reach", [0, 1, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.usefixtures("parts")
def test_a_window_is_attention_to_near_tokens(shape, reach, masked):
    """Whatever the blocks, and as if those that are not there did not exist."""
    lattice, _, v, frequencies = scene(shape)
    q, k, value = channels(*[v.shape[1]] * 3)
    mask = torch.rand(BATCH, v.shape[1]) > 0.3 if masked else None
    there = torch.ones(BATCH, v.shape[1], dtype=torch.bool) if mask is None else mask
    cells = (v / torch.tensor(lattice.spacing, dtype=torch.float64)).round()
    near = ((cells.unsqueeze(2) - cells.unsqueeze(1)).abs() <= reach).all(-1)
    near = near & (there.unsqueeze(1) | ~there.unsqueeze(2))
    tokens = Tokens(in_a_row(frequencies(v)), shape)
    ours = Window(reach)(q, k, value, tokens, tokens, mask)
    theirs = plain(frequencies, q, k, value, v, v, near.double(), 0)
    counts = there[:, None, :, None].expand_as(ours)
    assert ours.isfinite().all()
    assert_same_with_gradients(ours[counts], theirs[counts], (q, k, value))


@pytest.mark.usefixtures("parts")
def test_large_logits_do_not_overflow():
    lattice, x, v, frequencies = scene((5, 4))
    points, tokens = among(lattice, x, frequencies(x), 2), Tokens(in_a_row(frequencies(v)), (5, 4))
    q, k, value = channels(v.shape[1], POINTS, POINTS)
    assert ReadPoints()(1e4 * q, k, value, tokens, points, None).isfinite().all()
    q, k, value = channels(POINTS, v.shape[1], v.shape[1])
    assert ReadTokens()(1e4 * q, k, value, points, tokens, None).isfinite().all()


@SHAPES
@SIGHTS
def test_weights_have_one_sum_on_the_grid_and_vanish_beyond_it(shape, sight):
    """The sum is sight^dim_x, far from the grid's border where some of the tokens that a point would see are not."""
    lattice, x, _, frequencies = scene(tuple(count + 2 for count in shape))
    last = lattice.offsets(1).flatten(0, -2).amax(0)
    inner = torch.tensor(lattice.spacing, dtype=torch.float64) * (sight - 1)
    inside = among(lattice, x.clamp(min=inner).minimum(last - inner), frequencies(x), sight)
    expected = torch.full((BATCH * POINTS,), float(sight ** len(shape)), dtype=torch.float64)
    torch.testing.assert_close(inside.weight.sum(-1), expected)
    assert not among(lattice, x + 100, frequencies(x), sight).weight.any()
    assert not among(lattice, x - 100, frequencies(x), sight).weight.any()
