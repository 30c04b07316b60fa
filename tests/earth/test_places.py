"""Where to predict: a table means the same places and times, whichever of its columns are its index."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from aenp.earth.places import open_places, open_target
from aenp.earth.points import open_points

TABLE = pd.DataFrame({"time": pd.to_datetime(["2020-01-01", "2020-01-01", "2020-01-02"]), "lat": [45.0, 46.0, 45.0]})
TABLE["lon"], TABLE["t2m"] = [7.0, 8.0, 9.0], [280.0, 281.0, 282.0]
OBSERVED = open_points(TABLE)
AWARE = TABLE.assign(time=TABLE["time"].dt.tz_localize("Europe/Rome"))


@pytest.mark.parametrize(
    "target",
    [
        TABLE.set_index("time"),
        TABLE.set_index("time").rename_axis(index=None),
        TABLE.set_index("time", drop=False),
        TABLE.astype({"time": str}).set_index("time"),
        TABLE.assign(time=TABLE["time"].dt.tz_localize("UTC")).set_index("time"),
        AWARE.assign(time=AWARE["time"] + pd.Timedelta(hours=1)).set_index("time"),
        TABLE.set_index(["lat", "lon"]),
        TABLE.set_index(["time", "lat", "lon"]),
        TABLE.set_index([pd.Index([0, 0, 1]), "lon"]),
    ],
)
def test_each_row_is_a_place_and_a_time(target: pd.DataFrame) -> None:
    coordinates = open_places(target, OBSERVED, any_time=False).coordinates
    names = {"time": "time", "latitude": "lat", "longitude": "lon"}
    assert all(np.array_equal(coordinates[kind], TABLE[name]) for kind, name in names.items())


@pytest.mark.parametrize("index", [["lat"], ["time", "lat", "lon"], "time"])
def test_observations_may_have_any_index_too(index: str | list[str]) -> None:
    pd.testing.assert_frame_equal(open_points(TABLE.set_index(index)), OBSERVED)
    pd.testing.assert_frame_equal(open_points(TABLE.set_index(index, drop=False)), OBSERVED)


@pytest.mark.parametrize("index", [None, "time", ["lat", "lon"]])
def test_one_row_is_one_place(index: str | list[str] | None) -> None:
    target = TABLE[:1] if index is None else TABLE[:1].set_index(index)
    coordinates = open_places(target, OBSERVED, any_time=False).coordinates
    assert [coordinates[kind].values.ravel().tolist() for kind in ("latitude", "longitude")] == [[45.0], [7.0]]


def test_a_column_may_be_called_index() -> None:
    table = pd.DataFrame({"index": [7.0, 9.0], "lat": [45.0, 46.0], "lon": [7.0, 8.0]})
    assert open_target(table)["index"].values.tolist() == [7, 9]


@pytest.mark.parametrize("index", [pd.Index([7, 9], dtype="Int64"), pd.CategoricalIndex(["a", "b"])])
def test_an_index_of_pandas_own_type_becomes_one_of_numpy(index: pd.Index, tmp_path: Path) -> None:
    table = pd.DataFrame({"lat": [45.0, 46.0], "lon": [7.0, 8.0]}, index.rename("station"))
    places = open_target(table)
    assert places["station"].values.tolist() == list(index) and isinstance(places["station"].dtype, np.dtype)
    places.to_netcdf(tmp_path / "places.nc")


@pytest.mark.parametrize("units", ["rad", "Radians"])
def test_angles_in_radians_are_places_too(units: str) -> None:
    table = pd.DataFrame({f"latitude [{units}]": [np.pi / 4], f"longitude [{units}]": [np.pi / 6]})
    coordinates = open_places(table, pd.DataFrame(), any_time=False).coordinates
    assert [float(coordinates[kind].item()) for kind in ("latitude", "longitude")] == pytest.approx([45, 30])


def test_angles_of_a_scan_are_no_places() -> None:
    scan = xr.Dataset(coords={name: (name, [-0.1, 0.1], {"units": "rad"}) for name in ("x", "y")})
    with pytest.raises(ValueError, match="needs a latitude and a longitude"):
        open_places(scan, pd.DataFrame(), any_time=False)


def test_an_index_that_is_a_grid_stays_one() -> None:
    """Each pair of a latitude and a longitude once, as xarray makes tables of fields."""
    field = xr.DataArray(np.ones((2, 3)), {"lat": [45.0, 46.0], "lon": [7.0, 8.0, 9.0]}, ("lat", "lon"), "topo")
    assert dict(open_target(field.to_dataframe()).sizes) == {"lat": 2, "lon": 3}
    assert dict(open_target(field.to_dataframe().iloc[1:]).sizes) == {"index": 5}


def test_a_mapping_has_no_names_of_further_dimensions() -> None:
    with pytest.raises(ValueError, match="elevation of the given mapping has several dimensions without names"):
        open_target({"latitude": [45.0], "longitude": [7.0], "elevation": [[1.0]]})


def test_stacked_fields_are_points() -> None:
    """xarray's own way to make points of a grid, with or without those that are missing."""
    field = xr.DataArray([[1.0, np.nan], [3.0, 4.0]], {"lat": [45.0, 46.0], "lon": [7.0, 8.0]}, ("lat", "lon"), "t2m")
    for points in (field.stack(point=["lat", "lon"]), field.stack(point=["lat", "lon"]).dropna("point")):
        pd.testing.assert_frame_equal(open_points(points), open_points(field))
        places = open_places(points, OBSERVED.drop(columns="time"), any_time=False)
        assert np.array_equal(places.coordinates["latitude"], points.lat) and set(places.labels) == {"lat", "lon"}


def test_an_index_that_pandas_cannot_hold_is_no_obstacle() -> None:
    """Of a curved grid, xarray's own for points."""
    where = {
        name: (("y", "x"), values)
        for name, values in zip(("lat", "lon"), np.random.default_rng(0).random((2, 3, 4)), strict=True)
    }
    curved = xr.Dataset({"t2m": (("y", "x"), np.ones((3, 4)))}, where)
    indexed = curved.set_xindex(("lat", "lon"), xr.indexes.NDPointIndex)
    pd.testing.assert_frame_equal(open_points(indexed), open_points(curved))


def test_dates_in_columns_of_their_parts_are_those_of_the_places() -> None:
    parts = TABLE.drop(columns="time").assign(year=2020, month=1, day=[1, 1, 2])
    assert np.array_equal(open_places(parts, OBSERVED, any_time=False).coordinates["time"], TABLE["time"])


def test_numbers_of_stations_stay_with_their_places() -> None:
    labels = open_places(TABLE.assign(wmo=[11035, 11036, 11037], code=1), OBSERVED, any_time=False).labels
    assert labels["wmo"].values.tolist() == [11035, 11036, 11037] and "code" in labels and "t2m" not in labels
