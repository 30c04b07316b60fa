"""The page: HTML, style and scripts of this folder with models and, if there are any, data in one text."""

import json
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from aenp._version import __version__
from aenp.data.gp import GibbsTasks
from aenp.demo.regions import map_facts
from aenp.demo.weights import facts, pack
from aenp.shipped import pretrained

LINE = ("gp/tnp-approx", "gp/convcnp-approx")
MAP = "era5-2d/pttnp-approx"
WORKER = ("model.js", "gp.js", "worker.js")
SCRIPT = ("gp.js", "ui.js", "line.js", "map.js")
COASTS = "Coasts: Natural Earth."
WITH_DATA = f"Days: ERA5, Copernicus Climate Change Service. {COASTS}"
WITHOUT_DATA = (
    "This page was written without data, so it has no elevation and no real days; "
    f"<code>aenp demo --data DIR</code> adds them. {COASTS}"
)


def page(data: Path | None = None) -> str:
    """The demonstration as one HTML document that needs nothing else."""
    field = pretrained(MAP)
    processes = {name: pretrained(name) for name in LINE} | {MAP: field.process}
    source = GibbsTasks()
    known: dict[str, Any] = {
        "models": {name: facts(process) for name, process in processes.items()},
        "line": LINE,
        "map": map_facts(field, MAP, data),
        "source": {name: getattr(source, name) for name in ("lengthscales", "noise", "centre", "width", "margin")},
    }
    return Template(text("page.html")).substitute(
        style=text("page.css"),
        worker="\n".join(map(text, WORKER)),
        script="\n".join(map(text, SCRIPT)),
        facts=json.dumps(known),
        weights=pack(processes.values()),
        short=source.lengthscales[0],
        long=source.lengthscales[1],
        noise=source.noise,
        cell=known["map"]["regions"][0]["step"],
        origin=WITHOUT_DATA if data is None else WITH_DATA,
        period=" to ".join(field.frame.period),
        names=", ".join(processes),
        version=__version__,
    )


def text(name: str) -> str:
    return files("aenp.demo").joinpath(name).read_text(encoding="utf-8")
