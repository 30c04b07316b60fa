"""The command that lists the shipped models."""

import json as json_

from rich.console import Console
from rich.table import Table

from aenp.arguments import Flag
from aenp.shipped import WEIGHTS, shipped


def models(json: Flag = False) -> None:
    """List the shipped models: size, training and scores. `aenp.pretrained(name)` loads one.

    Args:
        json: print everything known about them as JSON.
    """
    if json:
        print(json_.dumps(shipped(), indent=1))
        return
    table = Table("model", "parameters", "kB", "steps", "minutes", "test log-likelihood", box=None, pad_edge=False)
    for name, facts in shipped().items():
        scores = ", ".join(f"{test} {score['loglik']['mean']:.3f}" for test, score in facts["scores"].items())
        size = f"{(WEIGHTS / f'{name}.safetensors').stat().st_size / 1000:.0f}"
        table.add_row(name, f"{facts['parameters']:,}", size, f"{facts['steps']:,}", f"{facts['minutes']:.0f}", scores)
    console = Console()
    (console if console.is_terminal else Console(width=160)).print(table)
