"""Both translation-equivariant attentions against their formulas, written out."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from aenp.nn.attention import Attention, DotProduct, masked_attention
from aenp.nn.pairwise import TILE, PairwiseMLP
from aenp.nn.spectral import Frequencies, Spectral

DIMENSIONS = pytest.mark.parametrize("dim_x", [1, 2, 3, 4])


def inputs(dim_x, batch=2, heads=2, queries=5, keys=4, size=4, dtype=torch.float64):
    torch.manual_seed(0)
    shapes = ((batch, heads, queries, size), (batch, heads, keys, size), (batch, heads, keys, size))
    points = ((batch, queries, dim_x), (batch, keys, dim_x))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in (*shapes, *points)]


def plain_pairwise(mlp, query, key, value, x, context_x, mask):
    """MLP([q·k, x_q − x_k]) for every pair, then softmax over the keys that count."""
    dots = torch.einsum("bhqd,bhkd->bqkh", query, key) / query.shape[-1] ** 0.5
    logits = mlp(torch.cat([dots, x.unsqueeze(2) - context_x.unsqueeze(1)], -1))
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None, :, None], -torch.inf)
    return torch.einsum("bqkh,bhkd->bhqd", logits.softmax(2), value)


def plain_spectral(omega, query, key, value, x, context_x, mask):
    """The logit and the turned values pair by pair, as complex numbers."""
    q, k, v = (torch.view_as_complex(u.unflatten(-1, (-1, 2)).contiguous()) for u in (query, key, value))
    angle = torch.einsum("bqkd,hpd->bhqkp", x.unsqueeze(2) - context_x.unsqueeze(1), omega)
    phase = torch.complex(angle.cos(), angle.sin())
    logits = (q.unsqueeze(3) * k.conj().unsqueeze(2) * phase).sum(-1).real / query.shape[-1] ** 0.5
    if mask is not None:
        logits = logits.masked_fill(~mask[:, None, None], -torch.inf)
    out = torch.einsum("bhqk,bhkp,bhqkp->bhqp", logits.softmax(-1).to(phase), v, phase.conj())
    return torch.view_as_real(out).flatten(-2)


MASKS = pytest.mark.parametrize("mask", [None, torch.tensor([[True, False, True, True], [False, True, False, False]])])


@DIMENSIONS
@MASKS
def test_tiles_match_the_plain_formula(dim_x, mask):
    values = inputs(dim_x)
    kernel = PairwiseMLP(dim_x, heads=2, width=8).double()
    ours, theirs = kernel(*values, mask), plain_pairwise(kernel.mlp, *values, mask)
    torch.testing.assert_close(ours, theirs)
    weights = [*values, *kernel.parameters()]
    direction = torch.randn_like(theirs)
    expected = torch.autograd.grad(theirs, weights, direction, allow_unused=True)
    for gradient, other in zip(torch.autograd.grad(ours, weights, direction), expected, strict=True):
        torch.testing.assert_close(gradient, other)


@DIMENSIONS
def test_tiles_pass_gradcheck(dim_x):
    kernel = PairwiseMLP(dim_x, heads=2, width=5).double()
    mask = torch.tensor([[True, False, True], [True, True, True]])

    def run(*arguments):
        return torch.func.functional_call(kernel, dict(zip(names, arguments[5:], strict=True)), (*arguments[:5], mask))

    names = [name for name, _ in kernel.named_parameters()]
    parameters = [p.detach().clone().requires_grad_() for p in kernel.parameters()]
    assert torch.autograd.gradcheck(run, [*inputs(dim_x, queries=3, keys=3, size=2), *parameters])


def test_many_tiles_in_single_precision():
    """More pairs than a tile holds, and not a multiple of it."""
    values = inputs(1, batch=3, heads=4, queries=50, keys=33, size=8, dtype=torch.float32)
    assert 4 * TILE < 3 * 50 * 33 and (3 * 50 * 33) % TILE
    kernel = PairwiseMLP(1, heads=4, width=32)
    ours, theirs = kernel(*values, None), plain_pairwise(kernel.mlp, *values, None)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    direction = torch.randn_like(theirs)
    weights = [*values, *kernel.parameters()]
    pairs = zip(*(torch.autograd.grad(out, weights, direction) for out in (ours, theirs)), strict=True)
    for gradient, expected in pairs:
        torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item() + 1e-5)


@DIMENSIONS
@MASKS
def test_spectral_attention_matches_its_formula(dim_x, mask):
    values = inputs(dim_x, size=8)
    frequencies = Frequencies(dim_x, heads=2, size=8, wavelengths=(0.5, 8.0)).double()
    with torch.no_grad():
        frequencies.change.normal_(0, 0.1)
    query, key, value, x, context_x = values
    ours = Spectral()(query, key, value, frequencies(x), frequencies(context_x), mask)
    still = Frequencies.still(8)
    omega = frequencies.frequencies.clone()
    omega[:, still:] *= 1 + frequencies.change.detach()
    torch.testing.assert_close(ours, plain_spectral(omega, *values, mask))


@DIMENSIONS
def test_spectral_attention_passes_gradcheck(dim_x):
    frequencies = Frequencies(dim_x, heads=2, size=4, wavelengths=[(0.5, 8.0)] * dim_x).double()

    def run(query, key, value, x, context_x, change):
        place = lambda at: torch.func.functional_call(frequencies, {"change": change}, at)  # noqa: E731
        return Spectral()(query, key, value, place(x), place(context_x), None)

    change = frequencies.change.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(run, [*inputs(dim_x, queries=3, keys=3), change])


@DIMENSIONS
@pytest.mark.parametrize("shift", [0.3, 7.3, 100.0])
def test_attention_sees_differences_only(dim_x, shift):
    """Before anchoring: in float64, where the shift itself loses no significant digits."""
    query, key, value, x, context_x = inputs(dim_x, size=8)
    pairwise = PairwiseMLP(dim_x, heads=2, width=8).double()
    frequencies = Frequencies(dim_x, heads=2, size=8, wavelengths=(0.5, 8.0)).double()
    kernels = (
        lambda a, b: pairwise(query, key, value, a, b, None),
        lambda a, b: Spectral()(query, key, value, frequencies(a), frequencies(b), None),
    )
    for attend in kernels:
        torch.testing.assert_close(attend(x + shift, context_x + shift), attend(x, context_x), rtol=1e-8, atol=1e-10)
        assert not torch.allclose(attend(x + shift, context_x), attend(x, context_x), rtol=1e-3)


@pytest.mark.parametrize("keys", [0, 3])
@pytest.mark.parametrize("kind", ["dot", "mlp", "spectral"])
def test_without_keys_the_output_is_zero(kind, keys):
    query, key, value, x, context_x = inputs(1, keys=keys, size=8)
    mask = torch.zeros(2, keys, dtype=torch.bool) if keys else None
    frequencies = Frequencies(1, heads=2, size=8, wavelengths=(0.5, 8.0)).double()
    kernel, place = {
        "dot": (DotProduct(), lambda at: None),
        "mlp": (PairwiseMLP(1, heads=2, width=8).double(), lambda at: at),
        "spectral": (Spectral(), frequencies),
    }[kind]
    out = kernel(query, key, value, place(x), place(context_x), mask)
    assert out.shape == query.shape and not out.any()
    (out.sum() + 0 * query.sum()).backward()
    assert all(v.grad is None or not v.grad.any() for v in (query, key, value))


@pytest.mark.parametrize("mask", [None, torch.arange(3000).unsqueeze(0) % 7 > 0], ids=["all keys", "some keys"])
def test_attention_never_holds_all_pairs(mask):
    """Of 3000 × 3000 pairs, 2 heads, no array of pairs is made: it would take 72 MB."""
    points = torch.randn(1, 2, 3000, 8)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        masked_attention(points, points, points, mask)
    assert max(event.self_cpu_memory_usage for event in profiler.events()) < 2**24


def test_wavelengths_cover_the_range_in_every_head():
    frequencies = Frequencies(1, heads=4, size=16, wavelengths=(0.1, 10.0)).frequencies[:, Frequencies.still(16) :, 0]
    wavelengths = 2 * torch.pi / frequencies
    torch.testing.assert_close(wavelengths.min(), torch.tensor(0.1))
    torch.testing.assert_close(wavelengths.max(), torch.tensor(10.0))
    assert (wavelengths.amin(1) < 0.25).all() and (wavelengths.amax(1) > 4).all()


def test_heads_initially_attend_near_the_query():
    """The logit of a bare query and key has its peak where they coincide, and each head has its own width."""
    torch.manual_seed(0)
    attention, frequencies = Attention(64, 4, Spectral()), Frequencies(1, 4, 16, (0.1, 10.0))
    for bias in (attention.to_query.bias, attention.to_key_value.bias):
        nn.init.zeros_(bias)
    frequencies.start_local(attention.to_query.bias, attention.to_key_value.bias[:64])
    query, key = (b.detach().view(1, 4, 1, 16) for b in (attention.to_query.bias, attention.to_key_value.bias[:64]))
    away = torch.linspace(0, 1, 101, dtype=torch.float64).view(1, -1, 1)
    phases = frequencies(away)
    logits = (torch.view_as_complex((query * key).unflatten(-1, (-1, 2))) * phases).real.sum(-1)[0] / 4
    torch.testing.assert_close(logits[:, 0], torch.full((4,), 3.0))
    assert (logits[:, 1:] < 3).all()
    half = (logits < 2.5).float().argmax(dim=1)
    assert half[0] < half[1] < half[2]


@pytest.mark.parametrize("wavelengths", [(0.0, 1.0), (2.0, 1.0), [(0.1, 1.0)] * 3])
def test_wavelengths_are_checked(wavelengths):
    with pytest.raises(ValueError, match="wavelengths must be"):
        Frequencies(2, 2, 8, wavelengths)
