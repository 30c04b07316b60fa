"""Held-out blocks: what is predicted was not seen, and lies in one piece."""

import numpy as np
import torch

from aenp.data.blocks import hold_out_blocks

AXIS = np.arange(40) / 16
PLACES = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), axis=-1)
IMAGE = np.arange(1600, dtype=np.float32).reshape(40, 40)
IMAGE[5:9, 20:30] = np.nan


def test_blocks_are_kept_from_training_and_are_all_that_is_predicted() -> None:
    kept, tasks = hold_out_blocks(IMAGE, PLACES, side=0.5, extent=2.0)
    hidden = set(IMAGE[np.isnan(kept) & ~np.isnan(IMAGE)].tolist())
    assert 64 <= len(hidden) <= 0.1 * 1600 and np.array_equal(kept[~np.isnan(kept)], IMAGE[~np.isnan(kept)])
    for task in tasks:
        seen, predicted = task.yc[task.context_mask], task.yt if task.target_mask is None else task.yt[task.target_mask]
        assert set(predicted.ravel().tolist()) <= hidden and not set(seen.ravel().tolist()) & hidden
    assert sum(map(len, tasks)) == 64


def test_points_with_their_values() -> None:
    task = hold_out_blocks(IMAGE, PLACES, side=0.5, extent=2.0)[1][0][0]
    i, j = (16 * task.xt[0]).round().long().T
    assert (task.yt[0, :, 0] == 40 * i + j).all()
    sets = (task.xc, task.context_mask), (task.xt, task.target_mask)
    points = torch.cat([x[0] if mask is None else x[mask] for x, mask in sets])
    assert ((points.amax(0) - points.amin(0)) <= 2).all()


def test_few_values_stay_as_they_are() -> None:
    kept, tasks = hold_out_blocks(IMAGE[:10, :10], PLACES[:10, :10], side=0.5, extent=2.0)
    assert np.array_equal(kept, IMAGE[:10, :10]) and not tasks


def test_covariates_stay_with_their_points() -> None:
    places = np.random.default_rng(0).uniform(0, 10, (500, 2))
    values = np.arange(500.0)
    _, tasks = hold_out_blocks(values, places, 1.0, 4.0, 2 * values[:, None])
    for task in tasks:
        assert torch.equal(task.context_covariates, 2 * task.yc) and torch.equal(task.target_covariates, 2 * task.yt)
