"""Random fields as `fit` poses its tasks."""

import numpy as np
import pytest
import torch

from aenp.data.random_windows import RandomWindows, Window
from aenp.models.scales import points_per_unit

SOURCE = RandomWindows(num_targets=16)


def test_a_batch_is_a_function_of_its_arguments() -> None:
    """The same index gives the same batch, another one another."""
    one, same, other = (SOURCE.batch(2, index, seed=3) for index in (5, 5, 6))
    assert torch.equal(one.yc, same.yc) and torch.equal(one.xt, same.xt)
    assert one.xc.shape != other.xc.shape or not torch.equal(one.xc, other.xc)


def test_a_patch_has_the_cells_of_those_of_fit() -> None:
    """Its points are distinct nodes of a lattice with 16 of them in a unit, within two units."""
    rng = np.random.default_rng(0)
    task = SOURCE.task(rng, SOURCE.laws.field(rng), 0.5, None, Window(True, 2.0, 300))
    points = torch.cat([task.xc, task.xt], dim=1)[0]
    assert points_per_unit(task) == 16
    assert len(points.unique(dim=0)) == 316 and (points.amax(0) - points.amin(0) <= 31 / 16).all()


@pytest.mark.parametrize("side", [2.0, 6.0])
def test_stations_fill_their_window(side: float) -> None:
    """Stations are as far apart as their window is wide, and nearly all of them lie in it."""
    rng = np.random.default_rng(1)
    task = SOURCE.task(rng, SOURCE.laws.field(rng), 0.5, None, Window(False, side, 100))
    assert task.xc.shape == (1, 100, 2) and side / 2 < np.ptp(task.xc[0, :, 0].numpy()) < 2 * side


def test_the_amplitude_is_a_factor_of_the_values() -> None:
    """The same draws with another amplitude are multiples of each other."""
    ones, twos = (
        SOURCE.task(rng, SOURCE.laws.field(rng), amplitude, None, Window(False, 2.0, 10))
        for rng, amplitude in ((np.random.default_rng(2), 1.0), (np.random.default_rng(2), 2.0))
    )
    torch.testing.assert_close(twos.yt, 2 * ones.yt)


def test_values_change_linearly_with_the_covariate() -> None:
    """The same draws with another slope differ by its multiple of the covariate, times the amplitude."""
    source, tasks = RandomWindows(num_targets=16, covariate=True), []
    for slope in (0.0, 3.0):
        rng = np.random.default_rng(5)
        field, effect = source.laws.field(rng), source.effect(rng)
        assert effect is not None
        tasks.append(source.task(rng, field, 0.5, effect._replace(slope=slope), Window(False, 2.0, 200)))
    torch.testing.assert_close(tasks[0].context_covariates, tasks[1].context_covariates)
    torch.testing.assert_close(tasks[1].yt, tasks[0].yt + 1.5 * tasks[0].target_covariates)


def test_a_covariate_is_scaled_and_skewed() -> None:
    """Over many fields its mean, deviation and median are those of its law, which is Normal without skew."""
    effect = RandomWindows(covariate=True).effect(np.random.default_rng(6))
    assert effect is not None
    law = effect.law._replace(nugget=0.0, trend=np.zeros(5), octave=(0.0, 1.0))
    for skew, median in ((0.01, 1.0), (0.5, 0.559)):
        changed = effect._replace(law=law, skew=skew, spread=2.0, offset=1.0)
        each = np.stack([changed.draw(np.random.default_rng(i), np.zeros((1, 2))) for i in range(4000)])
        assert abs(each.mean() - 1) < 0.12 and abs(each.std() - 2) < 0.25
        assert abs(np.median(each) - median) < 0.12


def test_without_a_covariate_tasks_have_none() -> None:
    assert SOURCE.batch(2, 0, seed=0).context_covariates is None
    known = RandomWindows(num_targets=16, covariate=True).batch(2, 0, seed=0)
    assert known.context_covariates.shape == known.yc.shape and known.target_covariates.shape == known.yt.shape


def test_dense_windows_have_most_stations_in_the_context() -> None:
    """With a larger share, contexts of stations are larger, and those of patches are not."""
    rng = np.random.default_rng(4)
    windows = [RandomWindows(share=0.9).window(rng) for _ in range(200)]
    most = [max(each.seen for each in windows if each.gridded == gridded) for gridded in (True, False)]
    assert most[0] <= 32**2 // 3 and 300 < most[1] <= 0.9 * 512


def test_windows_are_of_both_kinds() -> None:
    """Patches and stations alternate at random; windows of stations are of many sizes, and always something is seen."""
    rng = np.random.default_rng(3)
    windows = [SOURCE.window(rng) for _ in range(200)]
    assert 50 < sum(window.gridded for window in windows) < 150 and min(window.seen for window in windows) >= 1
    sides = [window.side for window in windows if not window.gridded]
    assert 2 <= min(sides) < 3 and 6 < max(sides) <= 8


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_is_between_none_and_all(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1; got"):
        RandomWindows(share=share)


def test_a_tiny_share_leaves_the_least_context() -> None:
    rng = np.random.default_rng(0)
    assert {RandomWindows(share=0.001).window(rng).seen for _ in range(50)} >= {1}
