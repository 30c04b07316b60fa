"""Every family at every symmetry, small, for the contract that they all keep."""

from collections.abc import Callable
from dataclasses import replace

import torch

import aenp
from aenp import Task
from aenp.fixed_inputs import FixedInputs
from aenp.process import NeuralProcess

DOMAIN = (-4.0, 4.0)
ATTENTION = {"dim": 32, "heads": 4, "layers": 2}
TOKENS = {"attention": "spectral", "form": "perceiver", "pseudo_tokens": "grid", "window": 3}
GRID = {"channels": 16, "layers": 5}
KINDS = (
    "cnp",
    "tnp-none",
    "tnp-exact-spectral",
    "tnp-approx-targets",
    "pttnp-none",
    "pttnp-exact",
    "pttnp-approx-perceiver",
    "pttnp-approx-grid",
    "rcnp-exact",
    "rcnp-approx-distance",
    "convcnp-exact",
    "convcnp-approx",
    "relaxedconvcnp-approx",
    "equivcnp-exact-cnn",
    "equivcnp-approx-unet-c8",
    "krigingnp-exact",
)
"Each family at every symmetry, and tokens on a grid: all that is tested in 3-D and 4-D, and of code that models share."


def fixed(dim_x: int, **options) -> FixedInputs:
    return FixedInputs(dim_x, num=8, domain=[DOMAIN] * dim_x, width=16, **options)


def _cases(d: int) -> dict[str, Callable[[], NeuralProcess]]:
    cases: dict[str, Callable[[], NeuralProcess]] = {
        "cnp": lambda: aenp.CNP(d, 2, dim=32),
        "cnp-box-none": lambda: aenp.CNP(d, 2, dim=32, domain=[DOMAIN] * d, fourier=3),
        "tnp-box-none": lambda: aenp.TNP(d, 2, symmetry="none", domain=[DOMAIN] * d, fourier=3, **ATTENTION),
        "tnp-none": lambda: aenp.TNP(d, 2, symmetry="none", **ATTENTION),
        "tnp-exact": lambda: aenp.TNP(d, 2, **ATTENTION),
        "tnp-approx": lambda: aenp.TNP(d, 2, fixed_inputs=fixed(d, fourier=2), **ATTENTION),
        "tnp-approx-targets": lambda: aenp.TNP(d, 2, fixed_inputs=fixed(d), fixed_at_targets=True, **ATTENTION),
        "tnp-approx-concatenate": lambda: aenp.TNP(d, 2, fixed_inputs=fixed(d, concatenate=True), **ATTENTION),
        "tnp-exact-spectral": lambda: aenp.TNP(d, 2, attention="spectral", **ATTENTION),
        "tnp-approx-spectral": lambda: aenp.TNP(d, 2, attention="spectral", fixed_inputs=fixed(d), **ATTENTION),
        "pttnp-exact-spectral": lambda: aenp.PTTNP(d, 2, attention="spectral", pseudo_tokens=5, **ATTENTION),
        "pttnp-none": lambda: aenp.PTTNP(d, 2, symmetry="none", pseudo_tokens=5, **ATTENTION),
        "pttnp-exact": lambda: aenp.PTTNP(d, 2, pseudo_tokens=5, **ATTENTION),
        "pttnp-exact-perceiver": lambda: aenp.PTTNP(d, 2, form="perceiver", pseudo_tokens=5, **ATTENTION),
        "pttnp-approx": lambda: aenp.PTTNP(d, 2, fixed_inputs=fixed(d), pseudo_tokens=5, **ATTENTION),
        "pttnp-approx-targets": lambda: aenp.PTTNP(
            d, 2, fixed_inputs=fixed(d), fixed_at_targets=True, pseudo_tokens=5, **ATTENTION
        ),
        "pttnp-approx-perceiver": lambda: aenp.PTTNP(
            d, 2, form="perceiver", fixed_inputs=fixed(d), pseudo_tokens=5, **ATTENTION
        ),
        "krigingnp-exact": lambda: aenp.KrigingNP(d, 2, dim=16),
        "rcnp-exact": lambda: aenp.RCNP(d, 2, dim=16),
        "rcnp-exact-distance": lambda: aenp.RCNP(d, 2, relation="distance", dim=16),
        "rcnp-approx-distance": lambda: aenp.RCNP(d, 2, relation="distance", dim=16, fixed_inputs=fixed(d)),
        "rcnp-approx": lambda: aenp.RCNP(d, 2, dim=16, fixed_inputs=fixed(d)),
    }
    if d <= 3:
        grid = GRID if d <= 2 else {"channels": 8, "layers": 3}
        cases |= {
            "pttnp-exact-grid": lambda: aenp.PTTNP(d, 2, pseudo_spacing=1.0, **TOKENS, **ATTENTION),
            "pttnp-approx-grid": lambda: aenp.PTTNP(
                d, 2, pseudo_spacing=0.8, fixed_inputs=fixed(d), fixed_at_targets=True, **TOKENS, **ATTENTION
            ),
            "convcnp-exact": lambda: aenp.ConvCNP(d, 2, **grid),
            "convcnp-exact-cnn": lambda: aenp.ConvCNP(d, 2, network="cnn", **grid),
            "convcnp-approx": lambda: aenp.ConvCNP(d, 2, fixed_inputs=fixed(d, taper=0.1), **grid),
            "convcnp-approx-concatenate": lambda: aenp.ConvCNP(d, 2, fixed_inputs=fixed(d, concatenate=True), **grid),
            "relaxedconvcnp-approx": lambda: aenp.RelaxedConvCNP(d, 2, kernels=2, fixed_inputs=fixed(d), **grid),
        }
    if d <= 2:
        cases |= {
            "equivcnp-exact": lambda: aenp.EquivCNP(d, 2, **GRID),
            "equivcnp-exact-cnn": lambda: aenp.EquivCNP(d, 2, network="cnn", **GRID),
            "equivcnp-approx": lambda: aenp.EquivCNP(d, 2, fixed_inputs=fixed(d), **GRID),
        }
    if d == 2:
        cases["equivcnp-exact-unet"] = lambda: aenp.EquivCNP(d, 2, network="unet", **GRID)
        cases["equivcnp-approx-unet-c8"] = lambda: aenp.EquivCNP(
            d, 2, network="unet", group="C8", fixed_inputs=fixed(d), margin=0, **GRID
        )
        cases["equivcnp-exact-c8"] = lambda: aenp.EquivCNP(d, 2, group="C8", **GRID)
        cases["equivcnp-approx-fields"] = lambda: aenp.EquivCNP(
            d, 2, group="C4", fields=3, fixed_inputs=fixed(d), **GRID
        )
    return cases


CASES = {(name, d): make for d in (1, 2, 3, 4) for name, make in _cases(d).items() if d <= 2 or name in KINDS}
EACH_KIND = [(name, min(d for each, d in CASES if each == name)) for name in KINDS]


def build(name: str, dim_x: int, seed: int = 0, dim_covariates: int = 0) -> NeuralProcess:
    """A model whose parameters are all random, including those that start as zeros or ones; in evaluation mode."""
    torch.manual_seed(seed)
    model = CASES[name, dim_x]()
    if dim_covariates:
        model = type(model)(**model.arguments, dim_covariates=dim_covariates)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def random_task(
    dim_x: int, context: int = 9, target: int = 7, batch: int = 3, seed: int = 1, dim_covariates: int = 0
) -> Task:
    """Points in [−2, 2]^dim_x in float64, outputs and covariates in float32."""
    generator = torch.Generator().manual_seed(seed)

    def points(count: int) -> torch.Tensor:
        return 4 * torch.rand(batch, count, dim_x, dtype=torch.float64, generator=generator) - 2

    def values(count: int, dim: int = 2) -> torch.Tensor:
        return torch.randn(batch, count, dim, generator=generator)

    task = Task(points(context), values(context), points(target), values(target))
    if not dim_covariates:
        return task
    covariates = values(context, dim_covariates), values(target, dim_covariates)
    return replace(task, context_covariates=covariates[0], target_covariates=covariates[1])


def train(model: NeuralProcess) -> None:
    """A step of training, then back to evaluation mode."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    task = random_task(model.dim_x, seed=0, dim_covariates=model.dim_covariates)
    (-aenp.loglik(model.train(), task).mean()).backward()
    optimiser.step()
    model.eval()
