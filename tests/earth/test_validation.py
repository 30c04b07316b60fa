"""Validation: scores are those of the predictions, in the user's units, and a model that is too sure is calibrated."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from scipy.stats import norm

import aenp
from aenp.earth import holdout
from aenp.earth.baselines import Moments
from aenp.earth.climatology import Climatology
from aenp.earth.field_model import FieldModel
from aenp.earth.frame import Frame, Variable
from aenp.earth.validation import Validation, exact_scores, scores
from exact_gp import FRAME, drawn, gp_model

DATA = drawn(30, 60)
DAYS = ("2020-01-21", "2020-01-30")


@pytest.fixture(scope="module")
def result() -> Validation:
    return gp_model().validate(DATA, days=DAYS)


def test_scores_are_those_of_a_normal_distribution() -> None:
    mean, std, y = np.array([280.0, 290.0]), np.array([2.0, 0.5]), np.array([281.0, 289.0])
    found = scores(Moments(mean, std), y)
    z = (y - mean) / std
    crps = std * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert np.allclose(found["crps"], crps) and np.allclose(found["loglik"], norm.logpdf(y, mean, std))
    assert np.allclose(found["pit"], norm.cdf(z)) and found["coverage"].tolist() == [1.0, 0.0]
    assert np.allclose(found["bias"], [-1, 1]) and np.allclose(found["mae"], 1) and np.allclose(found["square"], 1)


def test_the_table_summarises_the_predictions(result: Validation) -> None:
    rows = result.predictions[result.predictions["method"] == "model"]
    assert len(rows) == 10 * 12 and result.table.index[0] == "model"
    error = rows["mean"] - rows["value"]
    row = result.table.loc["model"]
    assert np.isclose(row["rmse"], np.sqrt((error**2).mean())) and np.isclose(row["mae"], error.abs().mean())
    assert np.isclose(row["bias"], error.mean())
    assert np.isclose(row["coverage"], (error.abs() / rows["std"] < 1.6449).mean())
    by_day = error.groupby(rows["time"]).mean()
    assert np.isclose(row["bias_se"], by_day.std() / np.sqrt(10))
    square = (error**2).groupby(rows["time"]).mean()
    assert np.isclose(row["rmse_se"], square.std() / np.sqrt(10) / (2 * row["rmse"]))
    assert np.allclose(result.pit.sum(axis=1), 1) and (result.pit.index == result.table.index).all()
    assert np.isclose(result.coverage(np.array([0.9])).loc["model"].item(), row["coverage"])


def test_a_place_where_every_method_fails_is_suspect(result: Validation) -> None:
    """One with wrong observations, if there are enough of them; without any, nothing is said."""
    places = DATA[["latitude", "longitude"]].drop_duplicates().iloc[:12]
    wrong = DATA.assign(t2m=DATA["t2m"] + 60 * (DATA["latitude"] == places["latitude"].iloc[3]))
    sound, faulty, once = (
        gp_model().validate(data, places, DAYS, tasks=tasks) for data, tasks in ((DATA, 10), (wrong, 10), (wrong, 4))
    )
    assert sound.suspects.empty and once.suspects.empty and "check" not in f"{sound}{once}{result}"
    (found,) = faulty.suspects.to_dict("records")
    assert (found["latitude"], found["longitude"]) == tuple(places.iloc[3]) and np.isclose(found["rmse"], 60, rtol=0.1)
    assert 0.9 < found["share"] < 1 and "At 1 place the errors of the model and of " in str(faulty)


def test_every_method_predicts_the_same_targets(result: Validation) -> None:
    values = result.predictions.pivot(index=["time", "latitude", "longitude"], columns="method", values="value")
    assert values.notna().all(axis=None) and (values.nunique(axis=1) == 1).all()
    assert set(values) == {"model", "climatology", "inverse distance", "kriging", "kriging of anomalies"}


def test_the_best_possible_model_beats_every_baseline_and_is_calibrated(result: Validation) -> None:
    assert result.table["crps"].idxmin() == result.table["loglik"].idxmax() == "model"
    assert 0.85 < result.table.loc["model", "coverage"] < 0.95
    assert result.table.loc["kriging", "rmse"] < 0.8 * result.table.loc["climatology", "rmse"]
    assert result.verdict.startswith("The model beats every baseline; the best of them is kriging")


def test_a_summary_says_that_a_model_loses_to_kriging() -> None:
    torch.manual_seed(0)
    untrained = FieldModel(aenp.CNP(2, 1), FRAME)
    told = str(untrained.validate(DATA, days=DAYS))
    assert told.splitlines()[-1].startswith("The model loses to kriging: CRPS ") and " K, difference " in told
    assert told.startswith("t2m [K]: 120 targets at 10 times") and "nan" not in told


def test_a_model_that_loses_to_kriging_of_anomalies_is_told_of_them() -> None:
    """Places that differ from each other, and weather that hardly does: unless it is fitted to anomalies already."""
    torch.manual_seed(0)
    level = DATA.groupby(["latitude", "longitude"])["t2m"].transform("first") - 280
    data = DATA.assign(t2m=280 + 10 * level + 0.01 * DATA["t2m"])
    known = Climatology([0.0], [0.0], [[280.0]], [1.0], [])
    raw, relative = (
        FieldModel(aenp.CNP(2, 1), each).validate(data, days=DAYS) for each in (FRAME, FRAME.relative_to(known))
    )
    assert "loses to kriging of anomalies" in raw.verdict and "loses to kriging of anomalies" in relative.verdict
    assert "anomalies=True" in str(raw) and "anomalies=True" not in str(relative)


def test_an_approximate_model_is_compared_with_its_equivariant_part() -> None:
    torch.manual_seed(0)
    process = aenp.CNP(2, 1)
    assert "equivariant part" not in FieldModel(process, FRAME).validate(DATA, days=DAYS, tasks=1).table.index
    fixed = aenp.FixedInputs(2, domain=FRAME.domain)
    process = aenp.TNP(2, 1, attention="spectral", dim=8, heads=2, layers=1, fixed_inputs=fixed)
    table = FieldModel(process, FRAME).validate(DATA, days=DAYS, tasks=2).table
    assert list(table.index[:2]) == ["model", "equivariant part"]
    assert table.loc["model", "rmse"] != table.loc["equivariant part", "rmse"]


def test_times_of_one_day_count_once_in_standard_errors(result: Validation) -> None:
    """Hours of one day resemble each other: a copy of each time makes no error smaller."""
    once = result.predictions
    twice = pd.concat([once, once.assign(time=once["time"] + pd.Timedelta("6h"))])
    tables = [Validation(rows, "t2m", "K").table for rows in (once, twice)]
    assert np.allclose(tables[0], tables[1])
    single = Validation(once[once["time"] == once["time"].min()], "t2m", "K")
    assert single.table["crps_se"].isna().all()
    assert single.verdict.startswith("On the one day predicted, too few to tell, the model is better than kriging")
    swapped = single.predictions.replace({"method": {"model": "kriging", "kriging": "model"}})
    assert "the model is worse than" in Validation(swapped, "t2m", "K").verdict


def test_calibration_restores_coverage_and_keeps_the_mean() -> None:
    data, sure = drawn(80, 100, seed=1), gp_model(spread=0.4)
    calibrated = sure.calibrate(data, days=("2020-01-01", "2020-02-09"), fraction=0.5)
    assert 0.9 < calibrated.spread < 1.1 and sure.spread == 0.4
    later = {"days": ("2020-02-10", "2020-03-20"), "fraction": 0.5}
    before, after = (each.validate(data, **later).table.loc["model"] for each in (sure, calibrated))
    assert before["coverage"] < 0.6 and 0.88 <= after["coverage"] <= 0.92
    assert after["loglik"] > before["loglik"] and np.isclose(after["rmse"], before["rmse"], rtol=1e-5)


def test_a_calibrated_model_can_be_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    calibrated = FieldModel(aenp.CNP(2, 1), FRAME).calibrate(DATA, days=DAYS, tasks=2)
    calibrated.save(tmp_path / "model.safetensors")
    loaded = FieldModel.load(tmp_path / "model.safetensors")
    context, grid = DATA[DATA["time"] == "2020-01-01"], "41,49,-9,9,1"
    assert loaded.spread == calibrated.spread != 1.0
    assert loaded.predict(context, grid).identical(calibrated.predict(context, grid))


def test_rain_is_scored_by_its_own_distribution() -> None:
    """Zeros count by their probability, and where a prediction is right its PIT is uniform."""
    torch.manual_seed(0)
    prediction = aenp.NonNegative()(torch.tensor([-0.3, 0.5]).expand(1, 4000, 2))
    y, scale = prediction.sample(), torch.full((1, 4000, 1), 5.0)
    found = exact_scores(prediction, y, scale, np.random.default_rng(0))
    dry = (y == 0).numpy().ravel()
    assert 0.3 < dry.mean() < 0.7
    assert np.allclose(found["loglik"][dry], prediction.cdf(torch.zeros_like(y)).log()[0, 0, 0])
    wet = prediction.log_prob(y).numpy().ravel()[~dry] - np.log(5)
    assert np.allclose(found["loglik"][~dry], wet, atol=1e-5)
    draws = 5 * prediction.sample((200,))[:, 0, :, 0].numpy()
    spread = np.abs(draws[:100] - draws[100:]).mean() / 2
    expected = np.abs(draws - 5 * y.numpy()[0, :, 0]).mean() - spread
    assert np.isclose(found["crps"].mean(), expected, rtol=0.03)
    assert np.abs(np.histogram(found["pit"], 10, (0, 1))[0] / 4000 - 0.1).max() < 0.02
    assert abs(found["coverage"].mean() - 0.9) < 0.02


def test_a_model_of_rain_is_validated_as_such() -> None:
    torch.manual_seed(0)
    rain = DATA.assign(rain=(DATA["t2m"] - 280).clip(lower=0)).drop(columns="t2m")
    axes = list(FRAME.axes.values())
    model = FieldModel(
        aenp.CNP(2, 1, likelihood=aenp.NonNegative()), Frame(axes, [Variable("rain", 0, 3, "mm", low=0)])
    )
    result = model.validate(rain, days=DAYS, tasks=3)
    own = result.predictions.query("method == 'model'")
    gaussian = scores(Moments(own["mean"].to_numpy(), own["std"].to_numpy()), own["value"].to_numpy())
    dry = (own["value"] == 0).to_numpy()
    assert "Normal" not in result.note and (own["loglik"].to_numpy()[dry] < 0).all()
    assert not np.allclose(own["crps"], gaussian["crps"], rtol=1e-2)


def test_of_very_many_places_some_are_drawn_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "MAX_CELLS", 20)
    one, same, other = (gp_model().validate(DATA, days=DAYS, tasks=2, seed=seed) for seed in (0, 0, 1))
    assert len(one.predictions[["latitude", "longitude"]].drop_duplicates()) <= 20
    assert "Of 60 places, 20 drawn at random are used." in str(one)
    assert one.table.equals(same.table) and not np.allclose(one.table["rmse"], other.table["rmse"])
    named = DATA[["latitude", "longitude"]].drop_duplicates().iloc[:4]
    unseen = gp_model().validate(DATA, named, DAYS, tasks=2)
    assert len(unseen.predictions[["latitude", "longitude"]].drop_duplicates()) == 4
    days = pd.date_range("2020-01-01", periods=12)
    axes = {"time": days, "latitude": np.linspace(41, 49, 6), "longitude": np.linspace(-9, 9, 7)}
    field = xr.DataArray(280 + 5 * np.random.default_rng(0).standard_normal((12, 6, 7)), axes, name="t2m")
    assert "Of 42 cells, 20 drawn at random are used." in gp_model().validate(field, tasks=1).note


def test_a_likelihood_with_bounds_cannot_be_calibrated() -> None:
    model = FieldModel(aenp.CNP(2, 1, likelihood=aenp.NonNegative()), FRAME)
    with pytest.raises(ValueError, match="NonNegative"):
        model.calibrate(DATA, days=DAYS)


def test_spread_scales_mixtures_too() -> None:
    torch.manual_seed(0)
    process = aenp.CNP(2, 1, likelihood=aenp.NormalMixture(3))
    context = DATA[DATA["time"] == "2020-01-01"]
    plain, wide = (
        FieldModel(process, FRAME, spread).predict(context, "41,49,-9,9,2", samples=3) for spread in (1.0, 1.5)
    )
    assert np.allclose(wide["std"], 1.5 * plain["std"], rtol=1e-4) and np.allclose(wide["mean"], plain["mean"])
    apart = [each["samples"] - each["mean"] for each in (plain, wide)]
    assert np.allclose(apart[1], 1.5 * apart[0], atol=1e-3)
    with pytest.raises(ValueError, match="spread, the factor of standard deviations, must be positive"):
        FieldModel(process, FRAME, 0.0)


def test_places_never_seen_can_be_named() -> None:
    unseen = DATA[["latitude", "longitude"]].drop_duplicates().iloc[:4]
    result = gp_model().validate(DATA, unseen, DAYS)
    assert len(result.predictions) == 5 * 10 * 4
    assert 0.5 < gp_model(0.5).calibrate(DATA, unseen).spread < 1.6


def test_from_the_command_line_to_a_table_and_a_chart(call: Callable[..., str], tmp_path: Path) -> None:
    torch.manual_seed(0)
    FieldModel(aenp.CNP(2, 1), FRAME).save(tmp_path / "model.safetensors")
    DATA.to_csv(tmp_path / "stations.csv", index=False)
    words = ("validate", tmp_path / "stations.csv", "--weights", tmp_path, "--days", *DAYS, "--tasks", 3)
    printed = call(*words, "--out", tmp_path / "table.csv", "--plot", tmp_path / "scores.png").splitlines()
    assert "The model loses to" in printed[-3]
    assert printed[-2:] == [str(tmp_path / "table.csv"), str(tmp_path / "scores.png")]
    table = pd.read_csv(tmp_path / "table.csv", index_col="method")
    assert {"rmse", "rmse_se", "crps", "coverage"} <= set(table) and "kriging of anomalies" in table.index
    assert (tmp_path / "scores.png").stat().st_size > 20_000
