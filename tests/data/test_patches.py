"""Patches: tasks hold the fields' values, and every point is context or target."""

import numpy as np
import pytest
import torch

from aenp.data.patches import Patches

FIELDS = np.arange(3 * 12 * 9, dtype=np.float32).reshape(3, 12, 9)
AXES = (np.arange(12, dtype=np.float32) / 2, 10 + np.arange(9, dtype=np.float32))


def patches(**options: object) -> Patches:
    return Patches(FIELDS, AXES, **{"size": 4, "num_context": (2, 7), **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("equal_sizes", [False, True])
def test_each_point_of_a_patch_is_context_or_target(equal_sizes: bool) -> None:
    task = patches(equal_sizes=equal_sizes).batch(5, 0, 0)
    sizes = set()
    for one in (task[i] for i in range(5)):
        seen = one.xc[0] if one.context_mask is None else one.xc[one.context_mask]
        predicted = one.xt[0] if one.target_mask is None else one.xt[one.target_mask]
        points = torch.cat([seen, predicted])
        assert len(points.unique(dim=0)) == len(points) == 16
        assert (points.amax(0) - points.amin(0)).tolist() == [1.5, 3.0]
        assert 2 <= len(seen) <= 7
        sizes.add(len(seen))
    assert (len(sizes) == 1) == equal_sizes


def test_values_are_those_of_one_field_at_its_coordinates() -> None:
    task = patches(equal_sizes=True).batch(3, 0, 0)
    i, j = (2 * task.xt[..., 0]).long(), (task.xt[..., 1] - 10).long()
    field = (task.yt[:, 0, 0] // 108).long()
    assert torch.equal(task.yt[..., 0], torch.from_numpy(FIELDS)[field[:, None], i, j])
    assert sorted(field.tolist()) == [0, 1, 2]  # no field twice while there are enough


def test_batches_report_the_source_field() -> None:
    fields = FIELDS.copy()
    fields[1] = np.nan
    task, sources = Patches(fields, AXES, size=4, num_context=(2, 7)).batch_with_fields(6, 0, 0)
    assert sources == (task.yt[:, 0, 0] // 108).int().tolist()  # type: ignore[index]
    assert set(sources) == {0, 2}


def test_a_batch_depends_on_seed_and_number_alone() -> None:
    one, same = patches().batch(4, 2, 7), patches().batch(4, 2, 7)
    assert torch.equal(one.yt, same.yt) and torch.equal(one.xc, same.xc)
    assert not torch.equal(one.xt[..., 0], patches().batch(4, 3, 7).xt[:, : one.xt.shape[1], 0])


def test_patches_are_drawn_where_there_are_values_and_sizes_are_shares_of_them() -> None:
    fields = np.where(FIELDS % 2 == 0, FIELDS, np.nan).astype(np.float32)
    fields[1:] = np.nan
    fields[0, :6] = np.nan
    task = Patches(fields, AXES, size=4, num_context=(0.25, 0.5), min_points=4).batch(4, 0, 0)
    for one in (task[i] for i in range(4)):
        seen = one.xc.shape[1] if one.context_mask is None else int(one.context_mask.sum())
        predicted = one.xt.shape[1] if one.target_mask is None else int(one.target_mask.sum())
        assert seen + predicted in (4, 6, 8)  # two values in each row of a patch that is not missing
        assert (seen + predicted) // 4 <= seen <= (seen + predicted) // 2
    with pytest.raises(ValueError, match="has 9 values"):
        Patches(fields, AXES, size=4, num_context=(2, 3), min_points=9).batch(1, 0, 0)


def test_fewer_targets() -> None:
    assert patches(equal_sizes=True, num_targets=3).batch(2, 0, 0).xt.shape == (2, 3, 2)


def test_gaps_of_another_patch_hide_what_is_to_be_predicted() -> None:
    """Where every second row is missing, they leave all of a patch's rows or none, and else the context is random."""
    fields = np.where(np.arange(12)[:, None] % 4 < 2, FIELDS, np.nan)
    batches = [Patches(fields, AXES, size=4, num_context=(1, 1), gaps=1.0).batch(8, index, 0) for index in range(4)]
    shares = []
    for one in (batch[k] for batch in batches for k in range(8)):
        sets = (one.xc, one.context_mask), (one.xt, one.target_mask)
        rows, predicted = (x[0] if mask is None else x[mask] for x, mask in sets)
        shares.append(len(rows))
        assert len(rows) + len(predicted) == 8
        assert len(rows) == 1 or not set(rows[:, 0].tolist()) & set(predicted[:, 0].tolist())
    assert {1, 4} == set(shares)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_context": (2, 16)}, "no target left"),
        ({"size": 10}, "too small for a patch of 10 × 10"),
        ({"covariates": np.zeros((9, 12, 1))}, r"covariates of shape \(12, 9\) or \(3, 12, 9\), .* got \(9, 12, 1\)"),
    ],
)
def test_invalid_arguments_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        patches(**options)


@pytest.mark.parametrize("by_field", [False, True])
def test_covariates_are_those_of_the_point_and_of_the_field(by_field: bool) -> None:
    covariates = FIELDS[..., None] if by_field else FIELDS[0, ..., None]
    task = patches(equal_sizes=True, covariates=covariates).batch(3, 0, 0)
    for y, known in ((task.yc, task.context_covariates), (task.yt, task.target_covariates)):
        assert torch.equal(known, y if by_field else y % 108)
