import copy
import math

import pytest
import torch

import aenp
from aenp import FixedInputs, Task
from catalogue import build, random_task


def test_zero_outside_the_domain_only():
    t = FixedInputs(2, num=5, domain=[(0, 1), (10, 12)]).eval()
    inside = torch.tensor([[[0.0, 10.0], [1.0, 12.0], [0.5, 11.0]]])
    outside = torch.tensor([[[-1e-6, 11.0], [0.5, 12.00001], [1e8, -1e8]]])
    assert t(inside).abs().amin(-1).amax() > 0 and (t(inside) != 0).any(-1).all()
    assert (t(outside) == 0).all()
    assert t.contains(inside).all() and not t.contains(outside).any()


def test_unbounded_dimensions_and_sides():
    t = FixedInputs(3, domain=[None, (0.0, None), (None, math.inf)]).eval()
    points = torch.tensor([[[1e4, 0.0, -1e4], [0.0, -0.1, 0.0]]])
    assert t.contains(points).tolist() == [[True, False]]
    assert (t(points)[0, 0] != 0).any() and (t(points)[0, 1] == 0).all()


def test_positions_are_scaled_in_their_own_dtype():
    """A domain far away and narrow: float32 could not tell its points apart."""
    far = FixedInputs(1, num=4, domain=[(1e9, 1e9 + 1)]).eval()
    near = FixedInputs(1, num=4, domain=[(0, 1)]).eval()
    near.load_state_dict(far.state_dict())
    x = torch.rand(1, 20, 1, dtype=torch.float64)
    torch.testing.assert_close(far(1e9 + x), near(x), rtol=1e-4, atol=1e-5)


def test_taper_is_smooth_and_keeps_the_interior():
    sharp = FixedInputs(1, num=4, domain=[(0, 10)]).eval()
    tapered = FixedInputs(1, num=4, domain=[(0, 10)], taper=0.2).eval()
    tapered.load_state_dict(sharp.state_dict())
    x = torch.linspace(0, 10, 1001).view(1, -1, 1)
    ratio = (tapered(x) / sharp(x))[0, :, 0]
    assert ratio[0] == 0 and ratio[-1] == 0
    torch.testing.assert_close(ratio[201:800], torch.ones(599))
    assert (ratio.diff()[:200] >= -1e-6).all() and ratio.diff().abs().max() < 0.01
    torch.testing.assert_close(ratio[100], torch.tensor(0.5))


@pytest.mark.parametrize(("periods", "fourier"), [([None, 2.5], 3), ([None, (2.5, 0.5)], 0), ([1.25, 2.5], 2)])
def test_cycles_repeat_in_years_never_seen(periods, fourier):
    """The same phase is the same place of the cycle, near and far; another phase is not."""
    t = FixedInputs(2, num=4, domain=[None if periods[0] else (0, 1), None], periods=periods, fourier=fourier).eval()
    x = torch.rand(1, 20, 2, dtype=torch.float64)
    for cycles in (1, -3, 10**8):
        torch.testing.assert_close(t(x + torch.tensor([0.0, 2.5 * cycles])), t(x), rtol=1e-3, atol=1e-5)
    assert (t(x + torch.tensor([0.0, 1.0])) - t(x)).abs().max() > 1e-3
    assert periods[0] or (t(x + torch.tensor([2.0, 0.0])) == 0).all()


def test_without_cycles_a_dimension_has_no_part():
    t = FixedInputs(2, num=4, domain=[(0, 1), None], periods=[None, ()], fourier=2).eval()
    x = torch.rand(1, 20, 2)
    assert torch.equal(t(x + torch.tensor([0.0, 7.5])), t(x)) and t(x).std(dim=1).max() > 1e-3
    with pytest.raises(ValueError, match="domain must be None"):
        FixedInputs(1, domain=[(0, 1)], periods=[()])


def test_jitter_leaves_phases_as_they_are():
    t = FixedInputs(2, num=4, dropout=0.0, periods=[2.0, ()], jitter=1.0).train()
    x = torch.rand(1, 20, 2)
    assert torch.equal(t(x), t(x)) and torch.equal(t(x), t.eval()(x))


def test_cycles_are_saved_and_checked(tmp_path):
    t = FixedInputs(1, periods=[3.0])
    model = aenp.TNP(1, 1, dim=8, heads=2, layers=1, fixed_inputs=t).eval()
    aenp.save(model, tmp_path / "model.safetensors")
    again = aenp.load(tmp_path / "model.safetensors")
    x = torch.rand(1, 5, 1)
    assert torch.equal(again.fixed_inputs.eval()(x), t.eval()(x))
    for periods in ([1.0, 2.0], [0.0], [-1.0], [math.inf], [(1.0, -1.0)]):
        with pytest.raises(ValueError, match="periods"):
            FixedInputs(1, periods=periods)
    with pytest.raises(ValueError, match="domain must be None"):
        FixedInputs(1, domain=[(0, 1)], periods=[1.0])


@pytest.mark.parametrize("learn", [True, False])
def test_fourier_coefficients_are_learned_or_fixed(learn):
    t = FixedInputs(2, num=3, domain=[(-1, 1)] * 2, fourier=4, learn_frequencies=learn)
    assert t.frequencies.requires_grad is learn
    x = torch.rand(1, 6, 2)
    t(x).sum().backward()
    assert (t.frequencies.grad is not None) is learn


def test_without_positions_only_waves_enter_the_mlp():
    """Where they repeat themselves, at z and z + 4 for all k·π/2, t does too; with positions it does not."""
    for positions in (True, False):
        t = FixedInputs(1, num=3, domain=[(-8, 8)], fourier=4, positions=positions).eval()
        t.frequencies.data *= 8  # periods of half a unit in the scaled x, of 4 in x
        x = torch.linspace(-3, 3, 7)[None, :, None]
        assert torch.allclose(t(x), t(x + 4), atol=1e-4) is not positions
        assert t(x).std(dim=1).min() > 0


def test_dropout_without_a_host():
    """A user's own host need not draw the dropout itself."""
    t = FixedInputs(1, domain=[(0, 1)], dropout=1.0)
    assert not t(torch.rand(2, 6, 1)).any() and t.eval()(torch.rand(2, 6, 1)).any()


def test_dropout_is_for_whole_tasks_and_in_training_only():
    t = FixedInputs(1, num=4, domain=[(-1, 1)], dropout=0.3)
    torch.manual_seed(0)
    x = torch.rand(2000, 5, 1)
    kept = t(x, t.draw_keep(2000, x.device)) != 0
    whole = kept.any(-1)
    assert (whole.all(1) | ~whole.any(1)).all()
    assert whole.all(1).float().mean().item() == pytest.approx(0.7, abs=0.03)
    t.eval()
    assert t.draw_keep(2000, x.device) is None and (t(x) != 0).any(-1).all()


@pytest.mark.parametrize("name", ["tnp-approx-targets", "pttnp-approx", "convcnp-approx", "relaxedconvcnp-approx"])
def test_a_dropped_task_gets_the_equivariant_prediction(name):
    model, task = build(name, 1), random_task(1, batch=40)
    with_t, without = model.symmetry_breaking(task)
    model.train()
    torch.manual_seed(0)
    drawn = model(task).mean
    like_with = torch.isclose(drawn, with_t.mean, atol=1e-6).flatten(1).all(1)
    like_without = torch.isclose(drawn, without.mean, atol=1e-6).flatten(1).all(1)
    assert (like_with ^ like_without).all()
    assert 5 < like_without.sum() < 35


def test_pooled_layers_take_t_at_the_centres_of_their_blocks():
    """Each block is identified by the cells that it averages, which lie an eighth and a half of a unit apart."""
    options = {"points_per_unit": [8, 2], "channels": 4, "layers": 5, "fixed_inputs": FixedInputs(2, num=2)}
    model, task = aenp.RelaxedConvCNP(2, 2, **options), random_task(2)
    model.fixed_inputs.register_forward_hook(lambda module, inputs, t: inputs[0])
    lattice = model.lattice(task)
    i, j = torch.meshgrid(*map(torch.arange, lattice.shape), indexing="ij")
    cells = lattice.origin[:, None] + torch.stack([i / 8, j / 2], dim=-1)
    levels = model._break_symmetry(lattice, torch.zeros(3, *lattice.shape, 4))[1]
    assert len(levels) == 3
    for stride, level in zip((1, 2, 4), levels, strict=True):
        blocks = cells.unflatten(2, (-1, stride)).unflatten(1, (-1, stride))
        torch.testing.assert_close(level.t, blocks.mean(dim=(2, 4)))
        assert level.t.shape[:-1] == level.mask.shape[:-1]


@pytest.mark.parametrize("dim_x", [1, 2])
@pytest.mark.parametrize("name", ["tnp-approx", "tnp-approx-targets", "pttnp-approx", "pttnp-approx-targets"])
def test_t_acts_far_from_the_context_if_added_at_targets(name, dim_x):
    """The context, and the pseudo-tokens with it, lie outside the domain, and every other target within."""
    model, task = build(name, dim_x), random_task(dim_x, target=8)
    inside = torch.arange(8) % 2 == 0
    task = Task(task.xc + 100, task.yc, torch.where(inside[:, None], task.xt, task.xt + 100))
    with_t, without = model.symmetry_breaking(task)
    differs = (with_t.mean - without.mean).abs().amax(dim=-1) > 1e-4
    assert torch.equal(differs, (inside & name.endswith("targets")).expand(3, -1))


def test_switching_off_is_reentrant_and_survives_errors():
    model, task = build("convcnp-approx", 1), random_task(1)
    on = model(task).mean
    with model.equivariant():
        off = model(task).mean
        with model.equivariant():
            assert torch.equal(model(task).mean, off)
        assert torch.equal(model(task).mean, off)
    assert torch.equal(model(task).mean, on) and not torch.equal(on, off)
    with model.equivariant():
        copied = copy.deepcopy(model)
    assert torch.equal(copied(task).mean, on)
    with pytest.raises(RuntimeError), model.equivariant():
        raise RuntimeError
    assert torch.equal(model(task).mean, on)
    model.train()
    model.fixed_inputs.dropout = 0.0
    with model.equivariant():
        assert torch.equal(model(task).mean, off)


def test_symmetry_breaking_of_an_exact_model_is_zero():
    both = build("tnp-exact", 1).symmetry_breaking(random_task(1))
    assert torch.equal(both.approximate.mean, both.equivariant.mean)


def test_domain_of_holds_every_point_that_counts():
    mask = torch.tensor([[True, False]])
    xc, xt = torch.tensor([[[0.0, 5.0], [-99.0, 99.0]]]), torch.tensor([[[2.0, -1.0]]])
    masked = Task(xc, torch.zeros(1, 2, 1), xt, torch.zeros(1, 1, 1), mask)
    assert FixedInputs.domain_of(masked) == [(0.0, 2.0), (-1.0, 5.0)]
    assert FixedInputs.domain_of([masked, masked.shift([1.0, 0.0])]) == [(0.0, 3.0), (-1.0, 5.0)]
    constant = FixedInputs(2, domain=FixedInputs.domain_of(masked.with_targets(xt * 0 + xc[:, :1]))).eval()
    assert constant.contains(xc[:, :1]).all() and constant(xc[:, :1]).isfinite().all()
    with pytest.raises(ValueError, match="at least one task"):
        FixedInputs.domain_of([])


def test_later_changes_are_saved(tmp_path):
    model = build("convcnp-approx", 1)
    model.fixed_inputs.domain = [(100.0, 108.0)]
    model.fixed_inputs.dropout, model.likelihood.min_scale = 0.1, 0.3
    aenp.save(model, tmp_path / "model.safetensors")
    loaded = aenp.load(tmp_path / "model.safetensors")
    assert loaded.fixed_inputs.domain == [(100.0, 108.0)]
    assert (loaded.fixed_inputs.dropout, loaded.likelihood.min_scale) == (0.1, 0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domain": [(0, 1)]}, "each of 2 dimensions"),
        ({"domain": [(0, 1), (3, 2)]}, "lower ≤ upper"),
        ({"domain": [(0, 1), (0, None)], "taper": 0.1}, "both bounds"),
        ({"fourier": -1}, "negative"),
        ({"positions": False}, "give fourier, at least 1"),
        ({"dropout": 1.5}, "probability"),
        ({"taper": 0.7}, "fraction"),
        ({"num": 0}, "at least 1"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ValueError, match=message):
        FixedInputs(2, **options)


def test_jitter_moves_the_places_of_t_in_training_only():
    t = FixedInputs(1, num=4, domain=[(0, 1)], dropout=0.0, jitter=0.1)
    x = torch.full((1, 500, 1), 0.5)
    with torch.no_grad():
        spread = t(x).std(dim=1)
        t.eval()
        assert (spread > 0).all() and (t(x).std(dim=1) < 1e-6).all()
        assert (t.train()(x + 1) == 0).all()  # outside the domain, wherever the jitter leads


def test_strength_scales_t_and_is_saved(tmp_path):
    t = FixedInputs(1, num=4, domain=[(0, 1)]).eval()
    x = torch.rand(1, 5, 1)
    full = t(x)
    t.strength = 0.25
    torch.testing.assert_close(t(x), 0.25 * full)
    model = aenp.TNP(1, 1, fixed_inputs=t, dim=8, heads=2, layers=1)
    aenp.save(model, tmp_path / "model.safetensors")
    assert aenp.load(tmp_path / "model.safetensors").fixed_inputs.strength == 0.25


@pytest.mark.parametrize(("name", "value"), [("jitter", -1.0), ("jitter", math.inf), ("strength", 1.5)])
def test_jitter_and_strength_are_checked(name, value):
    with pytest.raises(ValueError, match=f"{name} is a .*; got {value}"):
        FixedInputs(1, **{name: value})
