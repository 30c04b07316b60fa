"""Where a fit starts: at the weights of a base model, which has learned to interpolate from random fields."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aenp.inference import loglik
from aenp.process import NeuralProcess
from aenp.saving import written_whole
from aenp.shipped import pretrained, shipped
from aenp.task import Task

STARTS = ("base", "nothing")
RUN = "run.json"
"What a run was started with, in its directory."
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.25, 0.0)
"How far weights go from a base model's to the trained ones, with smaller steps near the latter."


@torch.no_grad()
def start_at_base(process: NeuralProcess, covariates: bool = False) -> str | None:
    """Gives a fresh network the weights of its family's shipped base model, and returns that model's name.

    Further inputs of the network, such as fixed inputs, have no effect yet, so that it predicts what the base model
    does; a third dimension of x is seen through the network's own frequencies, with which points that are equal in it
    are seen as by the base model. Where no base model suits the network, it stays as it is: None.

    Args:
        process: the network.
        covariates: whether the first of the network's covariates is a quantity such as elevation, which the base model
            is to be one with a covariate for, if there is one.
    """
    names = [f"base-covariate/{process.family}-exact"] * covariates + [f"base/{process.family}-exact"]
    name = next((name for name in names if name in shipped(name.split("/")[0])), None)
    if name is None or process.symmetry == "none":
        return None
    base = pretrained(name)
    own, weights = process.state_dict(), base.state_dict()
    alike = process.likelihood.relative and process.likelihood.num_params == base.likelihood.num_params
    if not alike or not _fit_into(weights, own):
        return None
    for key, weight in weights.items():
        if not key.startswith("frequencies."):
            own[key].zero_()
        own[key][tuple(map(slice, weight.shape))] = weight
    if process.fixed_inputs is not None:
        process.fixed_inputs.start_at_zero()
    embed_covariates = None if base.dim_covariates else getattr(process, "embed_covariates", None)
    for parameter in () if embed_covariates is None else embed_covariates[-1].parameters():
        parameter.zero_()
    return name


@torch.no_grad()
def stay_near(process: NeuralProcess, begun: Mapping[str, Tensor], tasks: Sequence[Task]) -> float:
    """Moves trained weights back towards those that the training began at, as far as suits tasks held out of it.

    Between both, networks often predict places unlike those of training better than the trained weights do. Returns the
    share of the way that is left. An interrupt leaves the weights as they were trained.
    """
    ended = {name: weight.clone() for name, weight in process.state_dict().items()}

    def go(share: float) -> None:
        process.load_state_dict({name: torch.lerp(begun[name], weight, share) for name, weight in ended.items()})

    scores = {}
    try:
        for share in SHARES:
            go(share)
            scores[share] = torch.cat([loglik(process, task) for task in tasks]).mean().item()
        best = max(scores, key=scores.__getitem__)
        go(best)
    except KeyboardInterrupt:
        print("aenp: interrupted; the trained weights are kept", file=sys.stderr)
        go(best := 1.0)
    return best


def _fit_into(weights: dict[str, Tensor], own: dict[str, Tensor]) -> bool:
    """Whether each tensor has its place in one of the same name, which may be larger in its last dimension."""
    return all(
        key in own and own[key].shape[:-1] == weight.shape[:-1] and own[key].shape[-1:] >= weight.shape[-1:]
        for key, weight in weights.items()
    )


def record(out: str | os.PathLike[str], settings: dict[str, Any], start: str | None) -> None:
    """Writes what a run was asked for, and the base model that it starts at, to its directory."""
    with written_whole(Path(out) / RUN) as file:
        file.write_text(json.dumps({"settings": settings, "start": start}, indent=1, default=str) + "\n")


def recorded(out: str | os.PathLike[str], settings: dict[str, Any], otherwise: str | None) -> str | None:
    """The base model that the run in a directory was started at, None if it was none; `otherwise` without a record.

    An error if the run was asked for with other settings, but for its length and its start, which is over.
    """
    file = Path(out) / RUN
    if not file.exists():
        return otherwise
    try:
        content = json.loads(file.read_text())
        start, known = content["start"], dict(content["settings"])
    except (ValueError, KeyError, TypeError, RecursionError):
        start, known = False, {}
    if not isinstance(start, str | None):
        raise ValueError(f"{file} does not tell where the run started; delete it, and the model beside it tells")
    for name, value in json.loads(json.dumps(settings, default=str)).items():
        if name not in ("minutes", "steps", "start") and name in known and known[name] != value:
            raise ValueError(f"the run in {out} has {name}={known[name]!r}; it cannot be resumed with {name}={value!r}")
    return start
