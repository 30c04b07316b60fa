"""Training data: what is held out of a scientist's own data is in no task for training."""

import numpy as np
import pandas as pd
import pytest
import torch

from aenp.earth.climatology import Climatology
from aenp.earth.training_data import Data, prepare
from aenp.task import Task


def stations(number: int, days: int = 40) -> pd.DataFrame:
    """A table in which a value tells its station and day: number of the day plus a thousandth of the station's."""
    rng = np.random.default_rng(0)
    latitude, longitude = rng.uniform(40, 50, number), rng.uniform(0, 10, number)
    day, station = (each.ravel() for each in np.meshgrid(np.arange(days), np.arange(number), indexing="ij"))
    return pd.DataFrame(
        {
            "time": pd.Timestamp("2020-01-01") + pd.to_timedelta(day, "D"),
            "latitude": latitude[station],
            "longitude": longitude[station],
            "t": day + station / 1000,
        }
    )


def points(tasks: list[Task], data: Data, part: str) -> tuple[set[int], set[int]]:
    """The days and the stations among the context or the targets."""
    days, numbers = set[int](), set[int]()
    for task in tasks:
        y, mask = (task.yc, task.context_mask) if part == "context" else (task.yt, task.target_mask)
        assert y is not None
        variable = data.frame.variables[0]
        values = np.round(1000 * (variable.mean + variable.std * (y if mask is None else y[mask]).double().numpy()))
        days |= set((values.ravel() // 1000).astype(int))
        numbers |= set((values.ravel() % 1000).astype(int))
    return days, numbers


@pytest.mark.parametrize("number", [30, 300])
def test_places_and_days_of_the_validation_are_not_in_training(number: int) -> None:
    data = prepare(stations(number))
    training = [data.source.batch(16, index, 0) for index in range(20)]
    days, context = points(data.validation, data, "context")
    new_days, targets = points(data.validation, data, "targets")
    assert data.new_places and days | new_days <= set(range(36, 40)) and not context & targets
    assert 0.05 * number <= len(targets) <= (0.25 if number == 30 else 0.2) * number
    for part in ("context", "targets"):
        old_days, seen = points(training, data, part)
        assert old_days <= set(range(36)) and not seen & targets


@pytest.mark.parametrize("table", [stations(12), stations(100, days=5)], ids=["few stations", "few days"])
def test_few_stations_or_days_are_all_for_training(table: pd.DataFrame) -> None:
    data = prepare(table)
    training = [data.source.batch(16, index, 0) for index in range(20)]
    everywhere = points(training, data, "context")[1] | points(training, data, "targets")[1]
    assert not data.new_places and everywhere == set(range(table[["latitude", "longitude"]].drop_duplicates().shape[0]))


@pytest.mark.parametrize("number", [30, 300])
def test_stations_on_a_line_are_seen_several_at_a_time(number: int) -> None:
    data = prepare(stations(number).assign(latitude=45.0))
    task = data.source.batch(16, 0, 0)
    assert data.new_places and (task.xc[..., 0].unique(return_counts=True)[1] >= 8).all()
    assert 0.5 < float(task.xt[..., 1].std()) < 20


def test_one_place_is_too_few() -> None:
    with pytest.raises(ValueError, match="from one place, which tells nothing about others; give several"):
        prepare(stations(1), time="20 days")


def test_neighbours_are_held_out_together() -> None:
    """A station beside one in training would be no new place."""
    table = stations(100)
    twins = pd.concat([table, table.assign(latitude=table["latitude"] + 1e-6)])
    data = prepare(twins)
    training = [data.source.batch(16, index, 0) for index in range(20)]
    kept, held_out = (
        torch.cat([task.xt[task.target_mask] for task in tasks]).unique(dim=0) for tasks in (training, data.validation)
    )
    nearest = (held_out[:, None] - kept).abs().amax(dim=-1).amin(dim=1)
    assert data.new_places and nearest.min() > 1e-5


def test_anomalies_at_held_out_places_are_from_the_climatology_around_them() -> None:
    data = prepare(stations(100), anomalies=True)
    assert data.new_places and isinstance(data.frame.reference, Climatology)
    assert all(bool(task.yt.isfinite().all()) for task in data.validation)  # type: ignore[union-attr]
    assert data.doubt is not None and all(bool((data.doubt(task.xt) > 0).all()) for task in data.validation)
    assert len(data.frame.reference.positions) == 100  # a model that is trained knows the climatology of all places
