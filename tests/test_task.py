from dataclasses import replace

import pytest
import torch

from aenp import Task
from aenp.symmetry import C, D, Euclidean, Motion, Translation
from catalogue import random_task


def task(context=3, target=4, batch=2, dim_x=2, **options):
    torch.manual_seed(0)
    return Task(
        torch.randn(batch, context, dim_x),
        torch.randn(batch, context, 1),
        torch.randn(batch, target, dim_x),
        torch.randn(batch, target, 1),
        **options,
    )


def test_nan_outputs_become_masked():
    yc, yt = torch.zeros(1, 3, 2), torch.zeros(1, 4, 2)
    yc[0, 1, 0] = yt[0, 3, 1] = torch.nan
    masked = Task(torch.ones(1, 3, 1), yc, torch.ones(1, 4, 1), yt)
    assert masked.context_mask.tolist() == [[True, False, True]]
    assert masked.target_mask.tolist() == [[True, True, True, False]]
    assert masked.yc.isfinite().all() and masked.yt.isfinite().all()


def test_without_missing_points_there_are_no_masks():
    assert task().context_mask is None and task().target_mask is None
    assert task(context_mask=torch.ones(2, 3, dtype=torch.bool)).context_mask is None


def test_stack_pads_and_masks():
    small, large = task(context=0, target=2, batch=1), task(context=3, target=5)
    both = Task.stack([small, large])
    assert both.xc.shape == (3, 3, 2) and both.xt.shape == (3, 5, 2)
    assert both.context_mask.sum(1).tolist() == [0, 3, 3]
    assert both.target_mask.sum(1).tolist() == [2, 5, 5]
    assert torch.equal(both.xt[0, :2], small.xt[0]) and torch.equal(both.yc[1:], large.yc)


def test_stack_keeps_the_masks_it_is_given():
    masked = task(context_mask=torch.tensor([[True, False, True], [True, True, True]]))
    assert Task.stack([masked, task(context=1, batch=1)]).context_mask.tolist() == [
        [True, False, True],
        [True, True, True],
        [True, False, False],
    ]


def test_stack_takes_the_wider_dtype():
    wide = task().to(torch.float64)
    assert Task.stack([task(), wide]).xc.dtype == torch.float64


def test_stack_refuses_unlike_tasks():
    with pytest.raises(ValueError, match="same dim_x"):
        Task.stack([task(dim_x=1), task(dim_x=2)])
    with pytest.raises(ValueError, match="at least one"):
        Task.stack([])


def test_indexing_gives_batches():
    batch = task(batch=3, context_mask=torch.tensor([[True, False, True]] * 3))
    assert len(batch[1]) == 1 and torch.equal(batch[-1].xt, batch.xt[2:])
    assert len(batch[1:]) == 2 and batch[1:].context_mask.shape == (2, 3)
    assert sum(len(one) for one in batch) == 3
    with pytest.raises(IndexError):
        batch[3]


def test_to_changes_values_but_not_masks():
    masked = task(context_mask=torch.tensor([[True, False, True]] * 2)).to(torch.float64)
    assert masked.xc.dtype == masked.yt.dtype == torch.float64
    assert masked.context_mask.dtype == torch.bool


def test_a_target_without_an_outcome_keeps_its_place():
    missing = torch.tensor([[[1.0], [torch.nan]]])
    gap = Task(torch.zeros(1, 0, 1), torch.zeros(1, 0, 1), torch.tensor([[[5.0], [6.0]]]), missing)
    assert gap.target_mask.tolist() == [[True, False]] and gap.xt.flatten().tolist() == [5.0, 6.0]


def test_shift_moves_inputs_only():
    original = task()
    for offset in (1.5, [1.5, -2.0], torch.tensor([0.5, 3.0])):
        moved = original.shift(offset)
        expected = torch.as_tensor(offset, dtype=torch.float32)
        assert torch.equal(moved.xc, original.xc + expected) and torch.equal(moved.xt, original.xt + expected)
        assert torch.equal(moved.yc, original.yc) and torch.equal(moved.yt, original.yt)


def with_covariates(original, dim=2):
    at_context, at_targets = (
        torch.arange(v[..., 0].numel() * dim).view(*v.shape[:2], dim).float() for v in (original.xc, original.xt)
    )
    return replace(original, context_covariates=at_context, target_covariates=at_targets)


def test_covariates_travel_with_their_points():
    original = with_covariates(task(batch=3))
    for moved in (original.shift(1.5), D(8).elements()[3](original), original.map_inputs(torch.square)):
        assert torch.equal(moved.context_covariates, original.context_covariates)
        assert torch.equal(moved.target_covariates, original.target_covariates)
    assert torch.equal(original[1].target_covariates, original.target_covariates[1:2])
    assert original.to(torch.float64).context_covariates.dtype == torch.float64
    assert original.dim_covariates == 2 and task().dim_covariates == 0


def test_stack_pads_covariates():
    small, large = with_covariates(task(context=0, target=2, batch=1)), with_covariates(task(context=3, target=5))
    both = Task.stack([small, large])
    assert both.context_covariates.shape == (3, 3, 2) and both.target_covariates.shape == (3, 5, 2)
    assert torch.equal(both.target_covariates[:1, :2], small.target_covariates)
    assert torch.equal(both.context_covariates[1:], large.context_covariates)
    with pytest.raises(ValueError, match="same dim_covariates"):
        Task.stack([small, task()])


def test_a_context_point_without_a_covariate_is_masked():
    covariates = torch.ones(2, 3, 2)
    covariates[0, 1, 1] = torch.nan
    masked = task(context_covariates=covariates, target_covariates=torch.ones(2, 4, 2))
    assert masked.context_mask.tolist() == [[True, False, True], [True, True, True]]
    assert not masked.context_covariates[0, 1].any() and not masked.xc[0, 1].any()


def test_a_target_needs_its_covariates_unless_it_is_masked():
    at_targets = torch.ones(2, 4, 2)
    at_targets[1, 2, 0] = torch.nan
    covariates = {"context_covariates": torch.ones(2, 3, 2), "target_covariates": at_targets}
    with pytest.raises(ValueError, match="target_covariates has NaN or infinite covariates; mask such points or drop"):
        task(**covariates)
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[1, 2:] = False
    assert task(**covariates, target_mask=mask).target_covariates[1].tolist() == [[1, 1], [1, 1], [0, 1], [1, 1]]


def test_other_targets_need_their_own_covariates():
    original = with_covariates(task())
    with pytest.raises(ValueError, match="or at neither; it has no target_covariates"):
        original.with_targets(original.xt)
    moved = original.with_targets(original.xc, target_covariates=original.context_covariates)
    assert torch.equal(moved.target_covariates, original.context_covariates)


x, y = torch.zeros(2, 3, 1), torch.zeros(2, 3, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((x[0], y, x, y), r"xc must have shape \(batch, points, dim\)"),
        ((x, y[:1], x, y), "batch size"),
        ((x, y[:, :2], x, y), "context points"),
        ((x, y, x.expand(2, 3, 2), y), "dim_x"),
        ((x, y, x, y[:, :2]), "target points"),
        ((x, y, x, y.expand(2, 3, 2)), "dim_y"),
        ((x, y, x[:, :0], y[:, :0]), "at least one target point"),
        ((x.long(), y, x, y), "floating-point"),
        ((x, y, x.double(), y), "same dtype"),
        ((x.half(), y, x.half(), y), "float32 or float64"),
        ((x + torch.inf, y, x, y), "xc has NaN or infinite inputs"),
        ((x, y, x * torch.nan, y), "xt has NaN or infinite inputs"),
        ((x, y + torch.inf, x, y), "yc has infinite outputs"),
        ((x + 1e16, y, x, y), r"xc has inputs of 1e\+16, but the limit is 1e\+15"),
        ((x, y, x, y - 1e30), r"yt has outputs of 1e\+30, but the limit is 1e\+15"),
        ((x, y.half() - torch.inf, x, y), "yc has infinite outputs"),
        ((x, y, x, y, torch.ones(2, 2, dtype=torch.bool)), "context_mask must be"),
        ((x, y, x, y, None, torch.ones(2, 3)), "target_mask must be"),
        ((x[:0], y[:0], x[:0], y[:0]), "batch of at least 1"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        Task(*arguments)


@pytest.mark.parametrize(
    ("at_context", "at_targets", "message"),
    [
        (y, None, "at neither; it has no target_covariates"),
        (None, y, "at neither; it has no context_covariates"),
        (y[0], y, r"context_covariates must have shape \(batch, points, dim\)"),
        (y, y[:1], "the batch size and the number of points must agree"),
        (y[:, :2], y, "the batch size and the number of points must agree"),
        (y, y.expand(2, 3, 2), "dim_covariates, the last dimension, must agree"),
        (y[..., :0], y[..., :0], "dim_covariates of at least 1"),
        (y.long(), y, "context_covariates must be a floating-point tensor"),
        (y + torch.inf, y, "context_covariates has NaN or infinite covariates"),
        (y, y + 1e16, r"target_covariates has covariates of 1e\+16, but the limit is 1e\+15"),
    ],
)
def test_invalid_covariates_raise(at_context, at_targets, message):
    with pytest.raises(ValueError, match=message):
        Task(x, y, x, y, context_covariates=at_context, target_covariates=at_targets)


def test_masked_points_may_hold_anything():
    mask = torch.tensor([[True, False, True]] * 2)
    for anything in (torch.nan, 1e30):
        wild = torch.where(mask[..., None], x, anything)
        masked = Task(wild, y, wild, y, mask, mask, wild, wild)
        assert (masked.xc == x).all() and (masked.xt == x).all()
        assert (masked.context_covariates == x).all() and (masked.target_covariates == x).all()


@pytest.mark.parametrize("group", [Translation(2), Euclidean(2), C(8), D(8)], ids=repr)
def test_groups_act_on_tasks(group):
    """g·(h·ξ) = (g h)·ξ, g⁻¹·(g·ξ) = ξ, and distances stay as they are."""
    generator = torch.Generator().manual_seed(0)
    original = task().to(torch.float64)
    g, h = (group.sample(scale=5.0, generator=generator) for _ in range(2))
    torch.testing.assert_close(g(h(original)).xc, (g @ h)(original).xc)
    torch.testing.assert_close(g.inverse()(g(original)).xt, original.xt)
    torch.testing.assert_close(torch.cdist(g(original).xc, g(original).xt), torch.cdist(original.xc, original.xt))
    assert torch.equal(g(original).yc, original.yc)
    torch.testing.assert_close(group.identity()(original).xc, original.xc)


def test_a_rotation_about_a_centre_keeps_it():
    centre = torch.tensor([3.0, -1.0], dtype=torch.float64)
    turn = C(8).elements()[1].about(centre)
    torch.testing.assert_close(turn(centre), centre)
    torch.testing.assert_close(turn(centre + torch.tensor([1.0, 0.0])), centre + torch.tensor([0.5, 0.5]).sqrt())


@pytest.mark.parametrize(("group", "order", "exact"), [(C(4), 4, 4), (C(8), 8, 4), (D(8), 16, 8), (C(3), 3, 1)])
def test_a_lattice_represents_some_elements_exactly(group, order, exact):
    assert len(group.elements()) == order
    assert len(group.lattice_elements()) == exact


def test_every_translation_is_exact_but_few_rigid_motions_are():
    generator = torch.Generator().manual_seed(0)
    assert Translation(3).exact_on_lattice(Translation(3).sample(scale=100.0, generator=generator))
    assert not Euclidean(2).exact_on_lattice(Euclidean(2).sample(generator=generator))


def test_an_offset_of_other_dimensions_is_refused():
    with pytest.raises(ValueError, match="each of 2 dimensions"):
        task().shift([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="each of 2 dimensions"):
        Translation(2).element([1.0, 2.0, 3.0])


def test_euclidean_samples_reflections_too():
    generator = torch.Generator().manual_seed(0)
    signs = {round(float(torch.linalg.det(Euclidean(3).sample(generator=generator).matrix))) for _ in range(20)}
    assert signs == {-1, 1}


@pytest.mark.parametrize("offset", [torch.ones(2, 2), torch.ones(1, 2), torch.ones(0), 1j * torch.ones(2)])
def test_invalid_vectors_raise(offset):
    for move in (task().shift, Translation(2).element, C(4).elements()[1].about):
        with pytest.raises(ValueError, match="one number, or one for each of 2 dimensions; got"):
            move(offset)


@pytest.mark.parametrize(
    ("matrix", "offset", "message"),
    [
        (2 * torch.eye(2), torch.zeros(2), "orthogonal"),
        (torch.eye(2) * torch.nan, torch.zeros(2), "orthogonal"),
        (torch.eye(2), torch.tensor([0.0, torch.inf]), "finite offset"),
    ],
)
def test_invalid_motions_raise(matrix, offset, message):
    with pytest.raises(ValueError, match=message):
        Motion(matrix, offset)


def test_a_motion_does_not_round_to_whole_numbers():
    with pytest.raises(ValueError, match="points must be a floating-point tensor"):
        C(8).elements()[1](torch.tensor([[1, 2], [3, 4]]))


def test_tasks_with_and_without_outputs_are_not_stacked():
    with pytest.raises(ValueError, match="same dim_y, all with or all without yt"):
        Task.stack([task(), task().with_targets(task().xt)])


def test_some_targets_keep_everything_that_belongs_to_them():
    task = random_task(2, target=6, batch=2, dim_covariates=1)
    task = replace(task, target_mask=torch.tensor([[True] * 6, [True, False] * 3]))
    some = task.some_targets(torch.tensor([[5, 0], [1, 2]]))
    for row, chosen in enumerate([[5, 0], [1, 2]]):
        for name in ("xt", "yt", "target_mask", "target_covariates"):
            assert torch.equal(getattr(some, name)[row], getattr(task, name)[row, chosen])
    assert torch.equal(some.xc, task.xc) and torch.equal(some.context_covariates, task.context_covariates)
    places, covariates = task.at_targets(slice(2, 4))
    assert torch.equal(places, task.xt[:, 2:4]) and torch.equal(covariates, task.target_covariates[:, 2:4])
    assert len(random_task(2).at_targets()) == 1
