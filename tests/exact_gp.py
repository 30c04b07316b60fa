"""A model for tests whose predictions are known: the posterior of a Gaussian process, and fields drawn from it."""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from aenp.earth.field_model import FieldModel
from aenp.process import NeuralProcess
from aenp.task import Task
from frames import frame

FRAME = frame(40.0, 50.0, -10.0, 10.0)


class ExactGP(NeuralProcess):
    """y = f(x) + ε with cov(f(x), f(x')) = exp(−|x − x'|² / 2 scale²)."""

    def __init__(self, scale: float = 0.5, noise: float = 0.1) -> None:
        super().__init__(2, 1)
        self.scale, self.noise, self.weight = scale, noise, nn.Parameter(torch.zeros(()))

    def encode(self, task: Task) -> Task:
        return task

    def decode(self, state: Task, xt: Float[Tensor, "batch target 2"]) -> Float[Tensor, "batch target 2"]:
        xc, yc = state.xc.double(), state.yc.double()
        mask = torch.zeros_like(xc[..., 0]) if state.context_mask is None else (~state.context_mask).double()
        gram = self.kernel(xc, xc) + torch.diag_embed(self.noise**2 + 1e9 * mask)
        weights = torch.linalg.solve(gram, self.kernel(xc, xt.double()))
        variance = 1 + self.noise**2 - (weights * self.kernel(xc, xt.double())).sum(1)
        scale = (variance.sqrt() - self.likelihood.min_scale).clamp(min=1e-6)
        return torch.stack([(weights * yc).sum(1), scale.expm1().log()], dim=-1).float()

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        return (-0.5 * (torch.cdist(a, b) / self.scale) ** 2).exp()


def gp_model(spread: float = 1.0) -> FieldModel:
    return FieldModel(ExactGP(), FRAME, spread).eval()


def drawn(days: int, stations: int = 100, seed: int = 0) -> pd.DataFrame:
    """Observations of the process at the same stations on several days, in kelvin."""
    rng = np.random.default_rng(seed)
    where = {"latitude": rng.uniform(40, 50, stations), "longitude": rng.uniform(-10, 10, stations)}
    x, process = torch.from_numpy(FRAME.x(where)), ExactGP()
    covariance = process.kernel(x, x).numpy() + process.noise**2 * np.eye(stations)
    values = 280 + 5 * rng.standard_normal((days, stations)) @ np.linalg.cholesky(covariance).T
    times = pd.date_range("2020-01-01", periods=days)
    tables = [pd.DataFrame({"time": time, **where, "t2m": day}) for time, day in zip(times, values, strict=True)]
    return pd.concat(tables, ignore_index=True)
