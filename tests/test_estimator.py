"""The estimator keeps scikit-learn's contract, as far as it applies in the plane, and predicts with errors."""

import pickle

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="needs scikit-learn")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import cross_val_score  # noqa: E402

from aenp.sklearn import Interpolator  # noqa: E402
from test_package import python  # noqa: E402

CHECKS = """
import warnings
warnings.simplefilter("ignore")
from sklearn.utils.estimator_checks import check_estimator
from aenp.sklearn import Interpolator
results = check_estimator(Interpolator(), on_fail=None)
print(sum(each["status"] == "passed" for each in results))
failed = [each for each in results if each["status"] == "failed"]
print(*(each["check_name"] for each in failed if "two dimensions" not in str(each["exception"])))
"""


def waves(count: int = 80, features: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (count, features))
    return x, np.sin(5 * x).sum(axis=1) + 0.05 * rng.standard_normal(count)


@pytest.mark.parametrize("features", [1, 2])
def test_predictions_are_near_the_truth_with_honest_errors(features: int) -> None:
    x, y = waves(200, features)
    mean, std = Interpolator().fit(x[:100], y[:100]).predict(x[100:], return_std=True)
    assert mean.shape == std.shape == (100,)
    assert np.abs(mean - y[100:]).mean() < 0.12
    assert 0.85 < (np.abs(mean - y[100:]) < 2 * std).mean() <= 1


def test_units_do_not_matter() -> None:
    x, y = waves()
    one, other = Interpolator().fit(x, y), Interpolator().fit(1000 * x, 5 + 100 * y)
    np.testing.assert_allclose(other.predict(1000 * x), 5 + 100 * one.predict(x), atol=0.5)


def test_it_is_cross_validated_cloned_and_pickled_like_others() -> None:
    x, y = waves()
    assert cross_val_score(Interpolator(), x, y, cv=3).mean() > 0.8
    fitted = clone(Interpolator()).fit(x, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(x[:3]), fitted.predict(x[:3]))


def test_constant_values_are_predicted_without_claiming_to_be_exact() -> None:
    mean, std = Interpolator().fit(waves()[0], np.full(80, 280.1)).predict(waves()[0], return_std=True)
    np.testing.assert_allclose(mean, 280.1, atol=1e-3)
    assert std.min() > 1e-3


@pytest.mark.parametrize("weights", ["gp/tnp-exact", "era5-2d/pttnp-approx"])
def test_models_of_other_dimensions_raise(weights: str) -> None:
    with pytest.raises(ValueError, match=f"dim_x=2, dim_y=1 and no covariates or physical units, which {weights} is"):
        Interpolator(weights).fit(*waves())


def test_a_fit_that_fails_leaves_nothing() -> None:
    model = Interpolator("era5-2d/pttnp-approx")
    with pytest.raises(ValueError, match="weights must be of a model"):
        model.fit(np.zeros((3, 2)), np.zeros(3))
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((1, 2)))


def test_more_than_two_features_raise() -> None:
    with pytest.raises(ValueError, match="one or two dimensions; got 3 features"):
        Interpolator().fit(np.zeros((4, 3)), np.zeros(4))


@pytest.mark.slow
def test_checks_fail_only_where_they_need_more_than_two_features() -> None:
    """In a process of its own: with wrong types, too, which the checks of annotations would refuse."""
    passed, *unexpected = python(CHECKS).split()
    assert int(passed) > 20
    assert unexpected in ([], ["check_positive_only_tag_during_fit"])  # whose error hides that of the dimensions
