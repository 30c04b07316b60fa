"""Approximately equivariant neural processes: predictions with honest uncertainty from a handful of observations."""

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

__all__ = [
    "CNP",
    "PTTNP",
    "RCNP",
    "TNP",
    "ConvCNP",
    "EquivCNP",
    "FixedInputs",
    "NeuralProcess",
    "Normal",
    "NormalMixture",
    "RelaxedConvCNP",
    "Task",
    "__version__",
    "ar_sample",
    "load",
    "loglik",
    "points_per_unit",
    "predict",
    "pretrained",
    "save",
    "symmetry",
    "wavelengths",
]
