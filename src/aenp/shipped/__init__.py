"""Shipped models: small trained ones that come with the package, each with a file of facts.

`aenp.experiments.shipping` trains, scores and puts them here.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from aenp.saving import load

WEIGHTS = Path(__file__).parent / "weights"
BASE = "base/krigingnp-exact"


def pretrained(name: str) -> Any:
    """The shipped model `name`, such as `gp/tnp-approx`, in evaluation mode; `aenp models` lists them.

    Those of the temperature experiments are `FieldModel`s, which predict in kelvin.

    Example:
        >>> import aenp
        >>> aenp.pretrained("gp/tnp-approx").label
        'TNP (T~)'
        >>> aenp.pretrained("era5-2d/pttnp-approx").frame.variables[0].name
        't2m'
    """
    if name not in shipped():
        alike = [known for known in shipped() if known.startswith(name.split("/")[0])]
        elsewhere = "`aenp models` lists those that are. If this is a path, there is no such file"
        choice = f"choose from {', '.join(alike)}" if alike else elsewhere
        raise ValueError(f"no model {name!r} is shipped; {choice}")
    return load(WEIGHTS / f"{name}.safetensors")


@cache
def base_model() -> Any:
    """The model that interpolates without training, read once."""
    return pretrained(BASE)


def find_model(name: str) -> Any:
    """The model in a file of this name, or in the directory of a run, or else the shipped one."""
    if name in shipped():
        return pretrained(name)
    if name and Path(name).is_dir():
        return load(Path(name, "model.safetensors"))
    return load(name) if Path(name).is_file() or name.endswith(".safetensors") else pretrained(name)


def shipped(experiment: str = "*") -> dict[str, dict[str, Any]]:
    """The facts of each shipped model, by name: how it was trained, and its scores."""
    files = sorted(WEIGHTS.glob(f"{experiment}/*.json"))
    return {f"{file.parent.name}/{file.stem}": json.loads(file.read_text()) for file in files}
