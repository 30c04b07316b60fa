"""The base model as an estimator of scikit-learn."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from aenp.inference import predict
from aenp.shipped import find_model
from aenp.task import Task


class Interpolator(RegressorMixin, BaseEstimator):
    """Interpolates values in the plane, or along a line, without training: `fit` only keeps the points.

    Predictions do not depend on the units of coordinates and values.

    Args:
        weights: a model that `aenp.save` wrote, or the name of a shipped one.
    """

    def __init__(self, weights: str = "base/krigingnp-exact") -> None:
        self.weights = weights

    def fit(self, X: ArrayLike, y: ArrayLike) -> "Interpolator":
        """Keeps places `(points, 2)` or `(points, 1)` and their values."""
        places, values = validate_data(self, X, y, dtype=float, y_numeric=True)
        self.X_, self.y_ = _plane(places), values.astype(float)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """The mean of what would be observed at each place and, if asked for, its standard deviation."""
        check_is_fitted(self)
        xt = _plane(validate_data(self, X, dtype=float, reset=False))
        shift, scale = self.y_.mean(), self.y_.std() or 1.0
        task = Task(*(torch.tensor(each)[None] for each in (self.X_, ((self.y_ - shift) / scale)[:, None], xt)))
        prediction = predict(find_model(self.weights), task)
        mean, std = (each[0, :, 0].double().numpy() * scale for each in (prediction.mean, prediction.stddev))
        return (mean + shift, std) if return_std else mean + shift


def _plane(places: Float[ndarray, "points features"]) -> Float[ndarray, "points 2"]:
    """The places in the plane; those on a line are on its first axis."""
    if places.shape[1] > 2:
        raise ValueError(f"the base model interpolates in one or two dimensions; got {places.shape[1]} features")
    return np.pad(places, [(0, 0), (0, 2 - places.shape[1])])
