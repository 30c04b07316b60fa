"""Approximately equivariant neural processes: predictions with honest uncertainty from a handful of observations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aenp._version import __version__

if TYPE_CHECKING:
    from aenp import symmetry
    from aenp.earth.field_model import FieldModel
    from aenp.earth.fitting import fit
    from aenp.earth.interpolation import interpolate
    from aenp.fixed_inputs import FixedInputs
    from aenp.inference import ar_sample, loglik, predict
    from aenp.likelihoods import Bounded, NonNegative, Normal, NormalMixture, Robust
    from aenp.models.cnp import CNP
    from aenp.models.convcnp import ConvCNP
    from aenp.models.equivcnp import EquivCNP
    from aenp.models.krigingnp import KrigingNP
    from aenp.models.pttnp import PTTNP
    from aenp.models.rcnp import RCNP
    from aenp.models.relaxedconvcnp import RelaxedConvCNP
    from aenp.models.scales import points_per_unit, wavelengths
    from aenp.models.tnp import TNP
    from aenp.process import NeuralProcess
    from aenp.saving import load, save
    from aenp.shipped import pretrained
    from aenp.task import Task

PUBLIC = {
    "Bounded": "likelihoods",
    "CNP": "models.cnp",
    "ConvCNP": "models.convcnp",
    "EquivCNP": "models.equivcnp",
    "FieldModel": "earth.field_model",
    "FixedInputs": "fixed_inputs",
    "KrigingNP": "models.krigingnp",
    "NeuralProcess": "process",
    "NonNegative": "likelihoods",
    "Normal": "likelihoods",
    "NormalMixture": "likelihoods",
    "PTTNP": "models.pttnp",
    "RCNP": "models.rcnp",
    "RelaxedConvCNP": "models.relaxedconvcnp",
    "Robust": "likelihoods",
    "TNP": "models.tnp",
    "Task": "task",
    "ar_sample": "inference",
    "fit": "earth.fitting",
    "interpolate": "earth.interpolation",
    "load": "saving",
    "loglik": "inference",
    "points_per_unit": "models.scales",
    "predict": "inference",
    "pretrained": "shipped",
    "save": "saving",
    "wavelengths": "models.scales",
}
"The module of each public name, imported on first use, so that the command line starts quickly."

__all__ = [
    "__version__",
    "symmetry",
    *PUBLIC,
]


MODULES = (
    "data",
    "earth",
    "evaluation",
    "experiments",
    "inference",
    "models",
    "nn",
    "saving",
    "sklearn",
    "symmetry",
    "theory",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f"aenp.{name}")
    if name not in PUBLIC:
        raise AttributeError(f"module 'aenp' has no attribute {name!r}")
    try:
        return getattr(import_module(f"aenp.{PUBLIC[name]}"), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"aenp.{name} needs {error.name}: pip install 'aenp[environment,train]'", name=error.name
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
