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
from aenp.models.krigingnp import scale_of
from aenp.process import NeuralProcess
from aenp.shipped import BASE, base_model, find_model
from aenp.task import Task


class Interpolator(RegressorMixin, BaseEstimator):
    """Interpolates values in the plane, or along a line, without training: `fit` only keeps the points.

    Predictions do not depend on the units of coordinates and values.

    Args:
        weights: a model that `aenp.save` wrote, or the name of a shipped one.

    Example:
        >>> import numpy as np
        >>> from aenp.sklearn import Interpolator
        >>> places = np.random.default_rng(0).uniform(size=(50, 2))
        >>> model = Interpolator().fit(places, np.sin(3 * places[:, 0]))
        >>> mean, std = model.predict([[0.5, 0.5]], return_std=True)
        >>> bool(abs(mean[0] - np.sin(1.5)) < 0.05), std.shape
        (True, (1,))
    """

    def __init__(self, weights: str = BASE) -> None:
        self.weights = weights

    def fit(self, X: ArrayLike, y: ArrayLike) -> "Interpolator":
        """Keeps places `(points, 2)` or `(points, 1)` and their values."""
        places, values = validate_data(self, X, y, dtype=float, y_numeric=True)
        model = base_model() if self.weights == BASE else find_model(self.weights)
        _check(model, self.weights)
        self.X_, self.y_, self.model_ = _plane(places), values.astype(float), model
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """The mean of what would be observed at each place and, if asked for, its standard deviation."""
        check_is_fitted(self, "model_")
        xt = _plane(validate_data(self, X, dtype=float, reset=False))
        shift, scale = self.y_.mean(), scale_of(self.y_)
        task = Task(*(torch.tensor(each)[None] for each in (self.X_, ((self.y_ - shift) / scale)[:, None], xt)))
        prediction = predict(self.model_, task)
        mean, std = (each[0, :, 0].double().numpy() * scale for each in (prediction.mean, prediction.stddev))
        return (mean + shift, std) if return_std else mean + shift


def _check(model: object, name: str) -> None:
    """Raises an error unless the model predicts one value in the plane from places and values alone."""
    if not isinstance(model, NeuralProcess) or (model.dim_x, model.dim_y, model.dim_covariates) != (2, 1, 0):
        raise ValueError(
            f"weights must be of a model with dim_x=2, dim_y=1 and no covariates or physical units, which {name} is "
            "not; leave `weights` out for the base model"
        )


def _plane(places: Float[ndarray, "points features"]) -> Float[ndarray, "points 2"]:
    """The places in the plane; those on a line are on its first axis."""
    if places.shape[1] > 2:
        raise ValueError(f"the base model interpolates in one or two dimensions; got {places.shape[1]} features")
    return np.pad(places, [(0, 0), (0, 2 - places.shape[1])])
