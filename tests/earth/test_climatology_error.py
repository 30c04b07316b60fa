"""The climatology of a place that was never observed is itself uncertain, and predictions of anomalies say so."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from torch.distributions import Normal

import aenp
from aenp.earth import fitting
from aenp.earth.climatology import Climatology
from aenp.earth.field_model import FieldModel
from aenp.earth.fitting import FitOptions, fit_in
from aenp.likelihoods import Robust, blurred
from frames import frame

RNG = np.random.default_rng(0)
PLACES = pd.DataFrame({"latitude": RNG.uniform(40, 50, 150), "longitude": RNG.uniform(0, 10, 150)})
TIMES = pd.date_range("2019-01-01", "2020-12-31", freq="10D")
LEVELS = RNG.normal(0, 3, len(PLACES))
"How warm each place is: neighbours tell nothing of it."


def climatology(levels: np.ndarray) -> Climatology:
    values = levels + RNG.standard_normal((len(TIMES), len(levels)))
    return Climatology.of(TIMES.to_numpy(), PLACES["latitude"].to_numpy(), PLACES["longitude"].to_numpy(), values)


def new_places(number: int = 200) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"latitude": rng.uniform(40, 50, number), "longitude": rng.uniform(0, 10, number)}


def test_a_climatology_is_sure_of_its_own_places_and_less_so_farther_away() -> None:
    found = climatology(LEVELS)
    near = PLACES.assign(latitude=PLACES["latitude"] + 0.01)
    far = {"latitude": np.array([60.0]), "longitude": np.array([30.0])}
    assert found.doubt(PLACES).max() < 1e-3
    assert np.median(found.doubt(near)) < np.median(found.doubt(new_places())) < found.doubt(far)[0]
    assert np.isclose(found.doubt(far)[0], 3, rtol=0.3)  # no more than places differ by


def test_its_doubt_is_the_size_of_its_errors_at_new_places() -> None:
    rough, flat = (climatology(each).doubt(new_places()) for each in (LEVELS, np.zeros(len(PLACES))))
    assert 2 < np.sqrt(np.mean(rough**2)) < 5  # three, and what the mean of some neighbours adds
    assert np.sqrt(np.mean(flat**2)) < 0.3


def test_a_faulty_station_or_a_pair_of_them_does_not_decide_everywhere() -> None:
    """A sensor that is stuck, and two that stand together and differ a little."""
    values = np.zeros(len(PLACES)) + RNG.standard_normal((len(TIMES), len(PLACES)))
    sound = climatology(np.zeros(len(PLACES))).doubt(new_places())
    stuck = values.copy()
    stuck[:, 0] = 10
    where = PLACES["latitude"].to_numpy(), PLACES["longitude"].to_numpy()
    assert np.median(Climatology.of(TIMES.to_numpy(), *where, stuck).doubt(new_places())) < 2 * np.median(sound)
    pair = tuple(np.append(each, each[0] + 1e-4) for each in where)
    beside = Climatology.of(TIMES.to_numpy(), *pair, np.column_stack([values, values[:, 0] + 0.3]))
    there = {"latitude": where[0][:1] + np.array([0.01, 0.1, 1.0]), "longitude": np.repeat(where[1][:1], 3)}
    doubt = beside.doubt(there)
    assert doubt[0] < doubt[1] < doubt[2] < 2 * sound.max()


def test_one_place_is_all_that_is_known() -> None:
    one = Climatology([45.0], [5.0], [[280.0]], [2.0], [])
    assert one.doubt(new_places(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("prediction", [Normal(torch.zeros(1, 5, 1), 2.0), Robust()(torch.zeros(1, 5, 2))])
def test_an_independent_error_adds_its_variance(prediction: torch.distributions.Distribution) -> None:
    doubt = torch.linspace(0, 3, 5).view(1, 5, 1)
    found = blurred(prediction, doubt)
    assert torch.allclose(found.variance, prediction.variance + doubt.square())
    assert torch.equal(found.mean, prediction.mean)
    y = torch.full((1, 5, 1), 1.5)
    grid = torch.linspace(-40, 40, 20001, dtype=torch.float64).view(-1, 1, 1, 1)
    weights = Normal(0.0, doubt.double().clamp(min=1e-9)).log_prob(grid).exp()[:, :, 1:] * (grid[1] - grid[0])
    convolved = (weights * prediction.log_prob((y - grid).float()).double().exp()[:, :, 1:]).sum(0)
    assert torch.allclose(found.log_prob(y).exp()[:, 1:].double(), convolved, rtol=1e-4)


def test_intervals_of_anomalies_are_right_at_known_and_at_new_places(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Where weather is independent noise, a model need learn nothing, and only levels of new places are unknown."""
    monkeypatch.setitem(fitting.OPTIONS, "tnp", {"attention": "spectral", "dim": 16, "heads": 2, "layers": 1})
    days = pd.date_range("2019-01-01", "2020-12-31", freq="5D")
    noise = np.random.default_rng(2).standard_normal((len(days), len(PLACES)))
    wide = pd.DataFrame(280 + LEVELS + noise, days, pd.MultiIndex.from_frame(PLACES))
    table = wide.stack(["latitude", "longitude"], future_stack=True).rename("t").rename_axis(["time", *PLACES])
    rows = table.reset_index()
    hidden = PLACES[:30]
    is_hidden = rows["latitude"].isin(hidden["latitude"])
    options = FitOptions("tnp", "exact", anomalies=True, steps=150, likelihood="normal")
    model, _ = fit_in(tmp_path_factory.mktemp("run"), rows[~is_hidden & (rows["time"] < "2020-10-01")], options, False)
    late = rows[rows["time"] >= "2020-10-01"]
    new = model.validate(late, hidden, tasks=10).table.loc["model"]
    known = model.validate(late[~late["latitude"].isin(hidden["latitude"])], tasks=10).table.loc["model"]
    assert 0.8 < new["coverage"] < 0.98 and 0.8 < known["coverage"] < 0.98
    assert known["rmse"] < 1.3 and new["rmse"] > 2


def test_samples_have_the_error_of_the_climatology() -> None:
    """Coherent in space, the same at all times and in all chunks, and nothing at places that are known."""
    torch.manual_seed(0)
    flat = Climatology(PLACES["latitude"], PLACES["longitude"], 280 + 9 * LEVELS[:, None], np.ones(len(PLACES)), [])
    model = FieldModel(aenp.CNP(2, 1, dim=8, layers=1), frame(40, 50, 0, 10).relative_to(flat), spread=1.2)
    seen = pd.concat([PLACES[:50].assign(t2m=280 + 9 * LEVELS[:50], time=time) for time in TIMES[:2]])
    new = pd.DataFrame(new_places(40))
    near = pd.concat([new, new.assign(latitude=new["latitude"] + 0.01)], ignore_index=True)
    found = model.predict(seen, near, samples=500)
    assert np.allclose(found["samples"].std("sample") / found["std"], 1, rtol=0, atol=0.15)
    of_first = np.corrcoef(found["samples"][:, 0].T)
    assert np.diagonal(of_first, 40).min() > 0.95 and np.median(np.abs(of_first[:40, :40])) < 0.1
    assert np.corrcoef(*(found["samples"].isel(time=number).values.ravel() for number in (0, 1)))[0, 1] > 0.99
    known = model.predict(seen, PLACES[:5], samples=50)
    assert (known["samples"].std("sample") <= 1.2 * known["std"]).all() and known["std"].max() < 2
    lazy = xr.Dataset(coords={name: ("place", values.to_numpy()) for name, values in near.items()})
    lazy = lazy.assign(empty=("place", np.zeros(80))).chunk(place=30)
    whole, parts = (model.predict(seen, each, samples=3)["samples"] for each in (near, lazy))
    assert parts.chunks is not None and np.allclose(whole, parts, rtol=1e-5)
