"""Baselines: kriging is the best linear prediction, climatology knows each place, and odd data break neither."""

import numpy as np
import pandas as pd
import pytest
from numpy import ndarray

from aenp.earth.baselines import (
    SLOPE,
    Anomalies,
    InverseDistance,
    Kriging,
    Split,
    fit_baselines,
)
from aenp.earth.climatology import Climatology, positions


def places(count: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    where = {"latitude": rng.uniform(40, 50, count), "longitude": rng.uniform(0, 15, count)}
    return pd.DataFrame(where | {"elevation": rng.uniform(0, 2000, count)})


def matern(a: pd.DataFrame, b: pd.DataFrame, scale: float) -> ndarray:
    """Written out for each pair of places."""
    pairs = [[np.sqrt(((p - q) ** 2).sum()) for q in positions(b)] for p in positions(a)]
    r = np.sqrt(3) * np.array(pairs) / scale
    return (1 + r) * np.exp(-r)


def simulated(days: int, count: int, std: float, scale: float, nugget: float) -> list[pd.DataFrame]:
    rng, tables = np.random.default_rng(1), []
    for day in range(days):
        table = places(count, seed=day)
        covariance = std**2 * (matern(table, table, scale) + nugget * np.eye(count))
        tables.append(table.assign(value=280 + np.linalg.cholesky(covariance) @ rng.standard_normal(count)))
    return tables


@pytest.mark.parametrize("slope", [0.0, 1e3])
def test_kriging_solves_the_equations_of_the_best_unbiased_prediction(slope: float) -> None:
    """With an unknown mean and, where the slope is as good as unknown, a linear drift with elevation."""
    context, target = places(30).assign(value=np.random.default_rng(2).normal(280, 5, 30)), places(7, seed=1)
    found = Kriging(2.0, 300.0, 0.1, slope).predict(context, target)
    drifts = [[np.ones(len(table)), *([table["elevation"] / 1000] if slope else [])] for table in (context, target)]
    one, at = (np.stack(each) for each in drifts)
    gram = matern(context, context, 300.0) + 0.1 * np.eye(30)
    system = np.block([[gram, one.T], [one, np.zeros((len(one), len(one)))]])
    right = np.concatenate([matern(context, target, 300.0), at])
    solution = np.linalg.solve(system, right)
    assert np.allclose(found.mean, solution[:30].T @ context["value"], rtol=0, atol=1e-3)
    assert np.allclose(found.std, 2 * np.sqrt(1.1 - (solution * right).sum(0)), rtol=1e-3)


def test_distances_are_chords() -> None:
    table = pd.DataFrame({"latitude": [0.0, 0.0, 90.0], "longitude": [0.0, 180.0, 77.0]})
    first, opposite, pole = positions(table)
    assert np.isclose(np.linalg.norm(first - opposite), 2 * 6371) and np.isclose(first @ pole, 0, atol=1e-6)


def test_kriging_recovers_the_parameters_of_its_own_fields() -> None:
    found = Kriging.fit(simulated(8, 150, std=3.0, scale=250.0, nugget=0.1))
    assert 2.4 < found.std < 3.6 and 190 < found.scale < 320 and 0.05 < found.nugget < 0.2


def test_kriging_with_elevation_learns_that_mountains_are_cold() -> None:
    tables = [
        table.assign(value=table["value"] - 6.5e-3 * table["elevation"]) for table in simulated(4, 80, 1, 400, 0.1)
    ]
    without, aware = (Kriging.fit(tables[:3], slope) for slope in (0.0, SLOPE))
    context, target = tables[3].iloc[:60], tables[3].iloc[60:]
    errors = [np.abs(each.predict(context, target).mean - target["value"]).mean() for each in (without, aware)]
    assert errors[1] < 0.5 * errors[0]


def test_kriging_has_answers_for_odd_data() -> None:
    usual = simulated(2, 40, 3.0, 250.0, 0.1)
    twice = [pd.concat([table, table]) for table in usual]
    equal = [table.assign(value=280.0) for table in usual]
    for tables in (usual, twice, equal, [table.assign(value=0.0) for table in usual], [usual[0], usual[1].iloc[:0]]):
        kriging = Kriging.fit(tables, SLOPE)
        for context in (tables[0], tables[0].iloc[:1]):
            mean, std = kriging.predict(context, places(5, seed=9))
            assert np.isfinite(mean).all() and np.isfinite(std).all() and (std > 0).all()
    assert np.allclose(Kriging.fit(equal).predict(equal[0], places(5)).mean, 280)
    with pytest.raises(ValueError, match="at least 3 observations"):
        Kriging.fit([usual[0].iloc[:2]])


def dated(table: pd.DataFrame, times: pd.DatetimeIndex) -> pd.DataFrame:
    return table.merge(pd.DataFrame({"time": times}), how="cross")


def cycle(table: pd.DataFrame) -> pd.Series:
    """A yearly and a daily cycle, whose amplitudes grow to the north."""
    day = (table["time"] - pd.Timestamp("2001-01-01")) / pd.Timedelta("1D")
    year = np.cos(2 * np.pi * day / 365.25) + 0.3 * np.sin(4 * np.pi * day / 365.25)
    return 280 - table["latitude"] * (0.2 * year + 0.1 * np.cos(2 * np.pi * day))


def test_climatology_finds_yearly_and_daily_cycles_of_each_place() -> None:
    history = dated(places(6), pd.date_range("2001-01-01", "2003-12-31", freq="19h"))
    history = history.assign(value=cycle(history)).sample(frac=0.7, random_state=0)
    later = dated(places(6), pd.date_range("2004-06-01", periods=20, freq="7h"))
    mean, std = Climatology.fit(history).predict(later.iloc[:0], later)
    assert np.abs(mean - cycle(later)).max() < 0.2 and std.max() < 0.5


def test_climatology_without_a_year_of_data_is_the_mean() -> None:
    history = dated(places(3), pd.date_range("2001-05-01", periods=40)).assign(value=lambda t: t["latitude"])
    climatology = Climatology.fit(history)
    later = dated(places(3), pd.DatetimeIndex(["2001-12-01"]))
    assert len(climatology.cycles) == 0
    assert np.abs(climatology.predict(later, later).mean - later["latitude"]).max() < 0.3


def test_climatology_of_an_unknown_place_is_that_of_its_neighbours() -> None:
    known = pd.DataFrame({"latitude": [45.0, 45.0], "longitude": [5.0, 6.0]})
    history = dated(known, pd.date_range("2001-05-01", periods=40)).assign(value=lambda t: 10 * t["longitude"])
    at = pd.DataFrame({"latitude": 45.0, "longitude": [5.001, 5.5, 5.999]})
    mean = Climatology.fit(history).predict(at, at).mean
    assert np.allclose(mean, [50, 55, 60], atol=0.5)


def test_anomalies_are_easier_where_places_differ() -> None:
    """A field that is the same everywhere plus a constant of each place: the anomalies of a few places tell all."""
    rng = np.random.default_rng(0)
    where = places(60).assign(own=rng.normal(0, 5, 60))
    times = pd.DataFrame({"time": pd.date_range("2001-01-01", periods=60), "level": rng.normal(0, 3, 60)})
    table = where.merge(times, how="cross").assign(value=lambda t: t["own"] + t["level"])
    days = [day for _, day in table.groupby("time")]
    splits = [Split(day.iloc[:40], day.iloc[40:]) for day in days]
    baselines = fit_baselines(pd.concat(days[:50]), splits[:50])
    errors = {
        name: np.mean([np.abs(each.predict(*split).mean - split.target["value"]).mean() for split in splits[50:]])
        for name, each in baselines.items()
    }
    assert isinstance(baselines["kriging of anomalies"], Anomalies) and "kriging with elevation" in errors
    assert errors["kriging of anomalies"] < 0.3 * min(errors[name] for name in errors if "anomalies" not in name)


def test_inverse_distances_reproduce_observations_and_average_between_them() -> None:
    context = pd.DataFrame({"latitude": [45.0, 45.0], "longitude": [5.0, 6.0], "value": [10.0, 20.0]})
    target = pd.DataFrame({"latitude": [45.0, 45.0], "longitude": [5.0, 5.5], "value": [10.0, 18.0]})
    baseline = InverseDistance.fit([Split(context, target)])
    assert np.allclose(baseline.predict(context, target).mean, [10, 15], atol=1e-3)
    assert np.isclose(baseline.std, np.sqrt((0 + 9) / 2), atol=1e-3)
