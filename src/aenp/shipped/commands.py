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
    table = Table(box=None, pad_edge=False)
    table.add_column("model", no_wrap=True)
    for title in ("parameters", "kB", "steps", "minutes"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("test log-likelihood")
    for name, facts in shipped().items():
        scores = ", ".join(f"{test} {score['loglik']['mean']:.3f}" for test, score in facts["scores"].items())
        size = f"{(WEIGHTS / f'{name}.safetensors').stat().st_size / 1000:.0f}"
        table.add_row(name, f"{facts['parameters']:,}", size, f"{facts['steps']:,}", f"{facts['minutes']:.0f}", scores)
    console = Console()
    Console(width=max(console.width, 80) if console.is_terminal else 160).print(table)
