"""Shipped models: small trained ones that come with the package, each with a file of facts."""

import json
from pathlib import Path
from typing import Any

from aenp.process import NeuralProcess
from aenp.report import markdown_table
from aenp.saving import load

WEIGHTS = Path(__file__).parent / "weights"


def pretrained(name: str) -> NeuralProcess:
    """The shipped model `name`, such as `gp/tnp-approx`, in evaluation mode. `aenp models` lists them."""
    if name not in shipped():
        alike = shipped(name.split("/")[0]) or shipped()
        raise ValueError(f"no model {name!r} is shipped; there are {', '.join(alike)}")
    return load(WEIGHTS / f"{name}.safetensors")


def shipped(experiment: str = "*") -> dict[str, dict[str, Any]]:
    """The facts of each shipped model, by name: how it was trained, and its scores."""
    files = sorted(WEIGHTS.glob(f"{experiment}/*.json"))
    return {f"{file.parent.name}/{file.stem}": json.loads(file.read_text()) for file in files}


def table() -> str:
    """What is shipped, as Markdown."""
    header = ["model", "parameters", "kB", "training", "test log-likelihood"]
    rows = []
    for name, facts in shipped().items():
        scores = ", ".join(f"{test} {score['loglik']['mean']:.3f}" for test, score in facts["scores"].items())
        size = f"{(WEIGHTS / f'{name}.safetensors').stat().st_size / 1000:.0f}"
        training = f"{facts['steps']:,} steps, {facts['minutes']:.0f} min on {facts['threads']} core(s)"
        rows.append([name, f"{facts['parameters']:,}", size, training, scores])
    return markdown_table(header, rows)
