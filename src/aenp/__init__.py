"""Approximately equivariant neural processes: predictions with honest uncertainty from a handful of observations."""

from typing import TYPE_CHECKING, Any

from aenp import symmetry
from aenp._version import __version__
from aenp.fixed_inputs import FixedInputs
from aenp.functions import ar_sample, loglik, points_per_unit, predict, wavelengths
from aenp.likelihoods import Normal, NormalMixture
from aenp.models.cnp import CNP
from aenp.models.convcnp import ConvCNP
from aenp.models.equivcnp import EquivCNP
from aenp.models.pttnp import PTTNP
from aenp.models.rcnp import RCNP
from aenp.models.relaxedconvcnp import RelaxedConvCNP
from aenp.models.tnp import TNP
from aenp.process import NeuralProcess
from aenp.saving import load, save
from aenp.shipped import pretrained
from aenp.task import Task

if TYPE_CHECKING:
    from aenp.fields import FieldModel
    from aenp.fitting import fit

LAZY = {"FieldModel": "aenp.fields", "fit": "aenp.fitting"}
"What needs the extra `environment`, which is imported when it is used."

__all__ = [
    "CNP",
    "PTTNP",
    "RCNP",
    "TNP",
    "ConvCNP",
    "EquivCNP",
    "FieldModel",
    "FixedInputs",
    "NeuralProcess",
    "Normal",
    "NormalMixture",
    "RelaxedConvCNP",
    "Task",
    "__version__",
    "ar_sample",
    "fit",
    "load",
    "loglik",
    "points_per_unit",
    "predict",
    "pretrained",
    "save",
    "symmetry",
    "wavelengths",
]


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'aenp' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(LAZY[name]), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"aenp.{name} needs {error.name}: pip install 'aenp[environment,train]'", name=error.name
        ) from error
