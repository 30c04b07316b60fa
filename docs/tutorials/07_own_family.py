"""
A model family of your own
==========================

A family is one class in one file: a subclass of ``aenp.NeuralProcess`` that says how it represents the observations,
``encode``, and how it reads a prediction from that at any place, ``decode``. Likelihoods, training, samples, saving and
the command line then work for it. Here is a small one, a smoother with learned kernels, and the tests that it has to
pass.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

import aenp
from aenp.data import GibbsTasks
from aenp.evaluation.metrics import equivariance_error
from aenp.fixed_inputs import Injection
from aenp.likelihoods import Likelihood
from aenp.models import make
from aenp.nn.mlp import MLP
from aenp.process import context_mean, relative_context
from aenp.symmetry import Euclidean
from aenp.training import Recipe, train

STEPS = int(os.environ.get("AENP_TUTORIAL_STEPS", 1000))

# %%
# The family
# ----------
# Positions enter as distances, counted from the context's mean so that they are exact however far away the data lie.
# The *fixed inputs* t(x) are the one thing that may depend on the place itself: ``Injection`` adds them such that the
# model is exactly equivariant where they are zero. ``family`` registers the class under its name; a saved model is
# rebuilt from its arguments, of which ``likelihood`` must be one.


class SmootherState(NamedTuple):
    anchor: Tensor
    x: Tensor
    z: Tensor
    task: aenp.Task


class Smoother(aenp.NeuralProcess):
    """θ(x) = MLP([Σ_n w_n z_n / (1 + Σ_n w_n), log(1 + Σ_n w_n)]) with w_n = exp(−|x − x_n|² / 2l²) for several l."""

    family = "smoother"
    symmetries = ("exact", "approx")
    symmetry_group = "E"

    def __init__(
        self,
        dim_x: int,
        dim_y: int,
        dim: int = 64,
        lengthscales: Sequence[float] = (0.05, 0.2, 1.0, 4.0),
        fixed_inputs: aenp.FixedInputs | None = None,
        likelihood: Likelihood | None = None,
    ) -> None:
        super().__init__(dim_x, dim_y, likelihood, fixed_inputs)
        self.embed = MLP(dim_y, dim)
        if fixed_inputs is not None:
            self.inject = Injection(fixed_inputs, dim)
        self.log_lengthscales = nn.Parameter(torch.tensor(lengthscales).log())
        self.head = MLP((dim + 1) * len(lengthscales), self.num_params)

    def encode(self, task: aenp.Task) -> SmootherState:
        anchor = context_mean(task)
        z = self.embed(task.yc.to(self.dtype))
        if self.fixed_inputs is not None:
            z = self.inject(z, self.fixed_inputs(task.xc))
        return SmootherState(anchor, relative_context(task, anchor).to(self.dtype), z, task)

    def decode(self, state: SmootherState, xt: Tensor) -> Tensor:
        x = (xt - state.anchor).to(self.dtype)
        square = (x.unsqueeze(2) - state.x.unsqueeze(1)).square().sum(-1, keepdim=True)
        weight = (-square / (2 * self.log_lengthscales.exp().square())).exp()  # (batch, target, context, lengthscale)
        if state.task.context_mask is not None:
            weight = weight * state.task.context_mask[:, None, :, None]
        density = weight.sum(2)
        smooth = torch.einsum("btcl,bcd->btld", weight, state.z) / (1 + density.unsqueeze(-1))
        return self.head(torch.cat([smooth.flatten(2), density.log1p()], dim=-1))


# %%
# The contract
# ------------
# Every family keeps it, and ``tests/models/test_contract.py`` has all of it: without fixed inputs the prediction moves
# along with the data, the order of the observations does not matter, masked ones are ignored, and a saved model
# predicts what it did before.

torch.manual_seed(0)
model = make("smoother", "approx", dim_x=2, dim_y=1, domain=[(-3, 3), (-3, 3)]).eval()
xc, yc, xt = torch.randn(4, 10, 2, dtype=torch.float64), torch.randn(4, 10, 1), torch.randn(4, 20, 2).double()
task, mean = aenp.Task(xc, yc, xt), model(xc, yc, xt).mean
with model.equivariant():
    assert equivariance_error(model, task, Euclidean(2).sample(scale=100.0)) < 1e-5
torch.testing.assert_close(model(xc.flip(1), yc.flip(1), xt).mean, mean)
unseen = torch.cat([yc, torch.full_like(yc, torch.nan)], dim=1)
torch.testing.assert_close(model(torch.cat([xc, xc + 1], dim=1), unseen, xt).mean, mean)
with TemporaryDirectory() as folder:
    aenp.save(model, Path(folder, "model.safetensors"))
    torch.testing.assert_close(aenp.load(Path(folder, "model.safetensors"))(task).mean, mean)
print(f"{model.label} keeps the contract")

# %%
# Train it
# --------
# On functions that wiggle on one side of x = 0 only, as in the first tutorial. This family knows the place at the
# observations alone, so there is less to gain from it than for the shipped model there, which knows it at the targets
# too.

model = make("smoother", "approx", 1, 1, fixed_inputs=aenp.FixedInputs(1, domain=[(-7, 7)], fourier=4, dropout=0.2))
with TemporaryDirectory() as folder:
    train(model, GibbsTasks(equal_sizes=True), Recipe(STEPS, learning_rate=2e-3), folder)
tasks = GibbsTasks().batch(64, 0, seed=1)
with torch.no_grad():
    full = aenp.loglik(model, tasks).mean()
    with model.equivariant():
        print(f"log-likelihood of a target: {full:.2f}, without the place {aenp.loglik(model, tasks).mean():.2f}")

# %%

task = GibbsTasks(centre=(0, 0), num_context=(24, 24)).batch(1, 0, seed=1)
x = torch.linspace(-3, 3, 601)
figure, axis = plt.subplots(figsize=(8, 4), layout="constrained")
with torch.no_grad():
    predictions = model.symmetry_breaking(task.with_targets(x[None, :, None]))
names, colours = ("full prediction", "equivariant part"), ("tab:blue", "tab:red")
for name, colour, prediction in zip(names, colours, predictions, strict=True):
    mean, spread = prediction.mean.flatten(), 1.96 * prediction.stddev.flatten()
    axis.plot(x, mean, color=colour, label=name)
    axis.fill_between(x, mean - spread, mean + spread, color=colour, alpha=0.2)
axis.scatter(task.xc, task.yc, s=14, color="black", zorder=3, label="observations")
axis.set(xlabel="x [no unit]", ylabel="y [no unit]", title=f"{model.label}, with 95 % intervals")
axis.legend()
