"""1-D regression with the Gibbs kernel: the experiment and the exact predictors it is compared with."""

from aenp.experiments.gp.experiment import Gibbs

__all__ = ["Gibbs"]
