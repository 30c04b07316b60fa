"""Windows: tasks hold the observations in a window of space and time, each of them once."""

import numpy as np
import pytest
import torch

from aenp.data.windows import Windows

RNG = np.random.default_rng(0)
PLACES = RNG.uniform(0, 10, (60, 3))
VALUES = np.where(RNG.random((9, 60)) < 0.2, np.nan, np.arange(540).reshape(9, 60)).astype(np.float32)
DAYS = np.arange(9.0) / 2


def windows(**options: object) -> Windows:
    return Windows(VALUES, **{"places": PLACES[:, :2], "extent": 4.0, **options})  # type: ignore[arg-type]


def points(task: object, which: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Inputs and outputs of one task, and how many of them are context."""
    one = task[which]  # type: ignore[index]
    sets = ((one.xc, one.yc, one.context_mask), (one.xt, one.yt, one.target_mask))
    kept = [(x[0], y[0]) if mask is None else (x[mask], y[mask]) for x, y, mask in sets]
    return torch.cat([x for x, _ in kept]), torch.cat([y for _, y in kept]), len(kept[0][0])


def test_a_task_holds_all_observations_in_a_window_at_one_time() -> None:
    task = windows().batch(6, 0, 0)
    for which in range(6):
        x, y, seen = points(task, which)
        number = y[:, 0].long()
        time, station = number // 60, number % 60
        assert len(time.unique()) == 1 and len(station.unique()) == len(station) >= 8
        assert torch.equal(x, torch.from_numpy(PLACES[station, :2]))
        assert ((x.amax(0) - x.amin(0)) <= 4).all()
        within = ((PLACES[:, :2] >= x.amin(0).numpy()) & (PLACES[:, :2] <= x.amax(0).numpy())).all(axis=1)
        known = np.flatnonzero(within & np.isfinite(VALUES[time[0]]))
        assert sorted(station.tolist()) == known.tolist()
        assert max(1, len(y) // 100) <= seen <= max(1, len(y) // 3)


def test_up_to_a_given_share_of_the_observations_is_context() -> None:
    task = windows(share=0.9, extent=10.0).batch(40, 0, 0)
    shares = [seen / len(y) for _, y, seen in (points(task, which) for which in range(40))]
    assert 0.7 < max(shares) <= 0.9 and min(shares) < 0.2
    assert len(windows(share=0.001, extent=10.0).batch(40, 0, 0)) == 40


def test_with_time_an_observation_is_a_place_and_a_day() -> None:
    task = windows(places=PLACES, times=DAYS, steps=3).batch(4, 0, 0)
    for which in range(4):
        x, y, _ = points(task, which)
        number = y[:, 0].long()
        time, station = number // 60, number % 60
        assert int(time.max() - time.min()) <= 2 and len(number.unique()) == len(number)
        assert torch.equal(x[:, 2], torch.from_numpy(DAYS[time]))
        assert torch.equal(x[:, [0, 1, 3]], torch.from_numpy(PLACES[station]))


def test_steps_of_a_window_may_lie_apart() -> None:
    task = windows(places=PLACES, times=DAYS, steps=3, stride=4).batch(8, 0, 0)
    for which in range(8):
        x, y, _ = points(task, which)
        time = y[:, 0].long() // 60
        assert time.unique().tolist() == [0, 4, 8]
        assert torch.equal(x[:, 2], torch.from_numpy(DAYS[time]))


def test_windows_in_a_box_hold_whole_patches_of_a_grid_up_to_its_edges() -> None:
    nodes = np.stack(np.meshgrid(np.arange(8.0), np.arange(6.0), indexing="ij"), axis=-1).reshape(-1, 2)
    patches = Windows(np.zeros((2, 48), np.float32), nodes, 4.0, box=((-0.5, 7.5), (-0.5, 5.5)))
    task, corners = patches.batch(40, 0, 0), set()
    for which in range(40):
        x, _, _ = points(task, which)
        assert len(x) == 16 and (x.amax(0) - x.amin(0)).tolist() == [3.0, 3.0]
        corners.add(tuple(x.amin(0).tolist()))
    assert {i for i, _ in corners} == set(range(5)) and {j for _, j in corners} == set(range(3))


def test_a_batch_depends_on_seed_and_number_alone_and_is_no_larger_than_requested() -> None:
    one, same = windows(max_points=9).batch(4, 2, 7), windows(max_points=9).batch(4, 2, 7)
    assert torch.equal(one.yt, same.yt) and torch.equal(one.xc, same.xc)
    assert all(len(points(one, which)[0]) <= 9 for which in range(4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 2}, "give `times`"),
        ({"share": 1.0}, "between 0 and 1; got 1.0"),
        ({"min_points": 1}, "2 ≤ min_points ≤ max_points"),
        ({"times": DAYS, "steps": 10}, "too few for a window of 10"),
        ({"times": DAYS, "steps": 3, "stride": 5}, "too few for a window of 11"),
        ({"box": ((0.0, 9.0), (0.0, 3.0))}, r"a window of 4.0 does not fit into the box"),
        ({"covariates": np.zeros((59, 2))}, r"covariates of shape \(60,\) or \(9, 60\), .* got \(59, 2\)"),
    ],
)
def test_invalid_arguments_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        windows(**options)


def test_windows_that_are_too_small_raise() -> None:
    with pytest.raises(ValueError, match="make `extent` larger"):
        windows(extent=1e-6).batch(1, 0, 0)


def test_fewer_targets_leave_the_context_unchanged() -> None:
    every, some = (windows(num_targets=number).batch(4, 0, 0) for number in (None, 5))
    assert torch.equal(every.xc, some.xc) and torch.equal(every.yc, some.yc)
    assert torch.equal(every.xt[:, :5], some.xt)


@pytest.mark.parametrize("by_time", [False, True])
def test_covariates_are_those_of_the_station_and_of_the_time(by_time: bool) -> None:
    stations, times = np.arange(60.0), np.arange(9.0)
    static = np.stack([stations, -stations], axis=-1)
    covariates = np.stack(np.broadcast_arrays(stations, times[:, None]), axis=-1) if by_time else static
    task = windows(places=PLACES, times=DAYS, steps=3, covariates=covariates).batch(4, 0, 0)
    for y, known, mask in (
        (task.yc, task.context_covariates, task.context_mask),
        (task.yt, task.target_covariates, task.target_mask),
    ):
        number = y[..., 0][mask].long()
        assert torch.equal(known[mask][:, 0], (number % 60).double())
        assert torch.equal(known[mask][:, 1], (number // 60 if by_time else -(number % 60)).double())


def test_unseen_stations_are_the_only_targets_and_never_context() -> None:
    unseen = np.arange(60) % 5 == 0
    task = windows(unseen=unseen).batch(6, 0, 0)
    for which in range(6):
        _, y, seen = points(task, which)
        hidden = unseen[y[:, 0].long().numpy() % 60]
        assert 0 < seen < len(y) and not hidden[:seen].any() and hidden[seen:].all()


def test_tasks_with_unseen_stations_are_no_larger_than_requested() -> None:
    task = windows(unseen=np.arange(60) % 5 > 0, extent=10.0, max_points=12).batch(6, 0, 0)
    assert max(len(points(task, which)[1]) for which in range(6)) == 12


def test_a_range_of_extents_has_small_windows_and_large_ones() -> None:
    task = windows(extent=(3.0, 9.0)).batch(40, 0, 0)
    sides = [float((points(task, which)[0].amax(0) - points(task, which)[0].amin(0)).max()) for which in range(40)]
    assert max(sides) <= 9 and min(sides) < 4 and max(sides) > 7


def test_a_duration_holds_irregular_times_with_both_ends() -> None:
    """However many steps these are; a window at the end of the data is shorter."""
    times = np.array([0.0, 0.1, 0.2, 1.0, 2.0, 2.5, 3.0, 3.1, 5.0])
    task = windows(times=times, duration=1.0, extent=20.0).batch(40, 0, 0)
    sets = set()
    for which in range(40):
        x, y, _ = points(task, which)
        steps = sorted((y[:, 0].long() // 60).unique().tolist())
        assert np.allclose(x[:, 2].numpy(), times[y[:, 0].long().numpy() // 60])
        inside = np.flatnonzero((times >= times[steps[0]]) & (times <= times[steps[0]] + 1.0))
        assert steps == inside.tolist()
        sets.add(tuple(steps))
    assert (0, 1, 2, 3) in sets and (8,) in sets
