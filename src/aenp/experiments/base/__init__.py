"""The base model, trained once on random fields, so that `aenp.interpolate` needs no training."""

from aenp.experiments.base.experiment import Base, BaseWithCovariate

__all__ = ["Base", "BaseWithCovariate"]
