"""Held-out tasks: nothing that is predicted is given, to the model or to a baseline."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from aenp.earth import holdout
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Frame
from aenp.earth.holdout import Choice, Holdout, hold_out
from exact_gp import FRAME, ExactGP, drawn

PLACE = ["latitude", "longitude"]


def trained(first: str, last: str) -> FieldModel:
    """A model that was trained in this period."""
    return FieldModel(ExactGP(), Frame(list(FRAME.axes.values()), FRAME.variables, (first, last)))


def field(days: int = 12) -> xr.DataArray:
    values = 280 + np.random.default_rng(0).normal(size=(days, 10, 12))
    values[:, 0] = np.nan
    axes = {"time": pd.date_range("2020-01-01", periods=days), "lat": 40 + np.arange(10.0), "lon": np.arange(12.0) - 6}
    return xr.DataArray(values, coords=axes, dims=tuple(axes), name="t2m", attrs={"units": "K"})


def dates(found: Holdout) -> tuple[set[int], set[int]]:
    """The days of the month that are predicted, and those that baselines learn from."""
    tested = pd.concat([split.target for split in found.splits])
    return set(tested["time"].dt.day), set(found.history["time"].dt.day)


@pytest.mark.parametrize(
    ("period", "days", "tested", "past", "note"),
    [
        (("2020-01-01", "2020-01-08"), None, range(9, 13), range(1, 9), ""),
        (("2020-01-05", "2020-01-12"), None, range(1, 5), range(5, 13), ""),
        (("2020-01-01", "2020-01-12"), None, [12], range(1, 12), "which includes times predicted here"),
        (("2019-01-01", "2019-01-12"), None, range(9, 13), range(1, 9), "baselines learned from other times"),
        (
            ("2020-01-01", "2020-01-08"),
            ("2020-01-08", "2020-01-10"),
            range(8, 11),
            range(1, 8),
            "training data are from",
        ),
    ],
)
def test_times_to_predict_are_outside_the_training_period_if_there_are_any(
    period: tuple[str, str], days: tuple[str, str] | None, tested: range, past: range, note: str
) -> None:
    found = hold_out(trained(*period), drawn(12, 10), Choice(days=days))
    assert dates(found) == (set(tested), set(past)) and note in found.note and bool(note) == bool(found.note)


def test_a_model_without_a_training_period_says_so() -> None:
    found = hold_out(FieldModel(ExactGP(), FRAME), drawn(12, 10), Choice())
    assert dates(found) == (set(range(9, 13)), set(range(1, 9))) and "does not know its training period" in found.note


def assert_apart(found: Holdout) -> None:
    for split in found.splits:
        assert split.context["time"].nunique() == 1 and not set(split.context["time"]) ^ set(split.target["time"])
        assert pd.merge(split.context, split.target, on=PLACE).empty


def test_a_fifth_of_stations_and_nine_tenths_of_cells_are_predicted() -> None:
    model = trained("2020-01-01", "2020-01-08")
    for data, sizes in ((drawn(12, 50), (40, 10)), (field(), (11, 97))):
        found = hold_out(model, data, Choice())
        assert_apart(found)
        assert {(len(split.context), len(split.target)) for split in found.splits} == {sizes}
        assert {(len(split.context), len(split.target)) for split in found.rehearsals} == {sizes}
        assert len({tuple(split.target["latitude"]) for split in found.splits}) == 4, "each time has its own targets"
    assert len(hold_out(model, drawn(12, 50), Choice(fraction=0.5, tasks=2)).splits) == 2


def test_named_stations_are_hidden_from_contexts_and_from_baselines() -> None:
    data = drawn(12, 20)
    unseen = data[PLACE].drop_duplicates().iloc[:3]
    found = hold_out(trained("2020-01-01", "2020-01-08"), data, Choice(stations=unseen))
    assert_apart(found)
    assert all(len(split.target) == 3 and len(split.context) == 17 for split in found.splits)
    assert pd.merge(found.history, unseen, on=PLACE).empty and len(found.history) == 8 * 17
    elsewhere = unseen.assign(latitude=44.0)
    with pytest.raises(ValueError, match=r"no observations at 3 of the stations, such as 44\.0"):
        hold_out(trained("2020-01-01", "2020-01-08"), data, Choice(stations=elsewhere))


def test_a_large_grid_is_thinned_but_as_many_cells_are_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "MAX_CELLS", 60)
    found = hold_out(trained("2020-01-01", "2020-01-08"), field(), Choice())
    count = len(found.splits[0].context) + len(found.splits[0].target)
    assert count <= 60 and len(found.splits[0].context) == round(0.2 * count)


def test_a_single_time_without_a_date_leaves_baselines_what_is_observed() -> None:
    found = hold_out(trained("2019-01-01", "2019-01-02"), drawn(1, 30).drop(columns="time"), Choice())
    assert_apart(found)
    assert len(found.splits) == 1 and len(found.history) == len(found.splits[0].context) == 24


def test_elevations_are_taken_from_the_topography_or_left_out() -> None:
    heights = field()[0].fillna(0).drop_vars("time").rename("topo").assign_attrs(units="m")
    data, model = drawn(3, 30).query("latitude < 49 and -6 < longitude < 5"), trained("2020-01-01", "2020-01-02")
    assert "elevation" not in hold_out(model, data, Choice()).history
    assert hold_out(model, data, Choice(elevation=heights)).history["elevation"].between(200, 300).mean() > 0.5
    gaps = data.assign(elevation=np.where(data["latitude"] > 45, 100.0, np.nan))
    assert "elevation" not in hold_out(model, gaps, Choice()).history


def test_a_region_is_cut_out_of_stations_and_fields() -> None:
    for data in (drawn(6, 60), field(6)):
        found = hold_out(trained("2020-01-01", "2020-01-03"), data, Choice(region=(42.0, 46.0, -4.0, 4.0)))
        tables = [found.history, *(table for split in found.splits for table in split)]
        assert all(t["latitude"].between(42, 46).all() and t["longitude"].between(-4, 4).all() for t in tables)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 1.0}, "fraction, the share of places observed, must be between 0 and 1; got 1.0"),
        ({"tasks": 0}, "tasks, the number of times to predict, must be at least 1; got 0"),
        ({"days": ("2021-01-01", "2021-01-02")}, "no data in period"),
        ({"region": (0.0, 1.0, 0.0, 1.0)}, "no data in region"),
        ({"variable": "rain"}, "no column 'rain'"),
    ],
)
def test_invalid_choices_raise(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hold_out(trained("2020-01-01", "2020-01-08"), drawn(12, 10), Choice(**options))  # type: ignore[arg-type]


def test_rows_of_one_place_with_different_elevations_are_one_as_in_training() -> None:
    """They become their mean, of values and elevations alike."""
    data = drawn(12, 20).assign(elevation=100.0)
    again = pd.concat([data, data.assign(t2m=data["t2m"] + 4, elevation=300.0)])
    model, choice = trained("2020-01-01", "2020-01-08"), Choice()
    one, mean = (hold_out(model, table, choice) for table in (data, again))
    for split, other in zip(one.splits, mean.splits, strict=True):
        for alone, averaged in zip(split, other, strict=True):
            assert np.allclose(averaged["value"], alone["value"] + 2) and (averaged["elevation"] == 200).all()
