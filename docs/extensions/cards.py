"""Model cards, written from the facts beside each shipped model and from the results."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from aenp.models import FAMILIES
from aenp.shipped import shipped

ROOT = Path(__file__).parents[2]


class About(NamedTuple):
    """What the models of one experiment share."""

    title: str
    data: str
    licence: str
    unit: str
    use: str
    limits: str
    page: str


ERA5 = "ERA5 is under the Copernicus licence: name the Copernicus Climate Change Service as its source."
KELVIN = "standard deviations of the training data"
FIELD = """
import aenp

model = aenp.pretrained("{name}")
prediction = model.predict("stations.csv", "{target}")  # an xarray data set, in kelvin
"""
PROCESS = """
import aenp

model = aenp.pretrained("{name}")  # a torch module: model(xc, yc, xt) is a distribution
"""
STARTING = {
    "data": "Random fields drawn anew for each task, in patches of a grid and windows of stations as `aenp.fit` has "
    "them (`aenp.data.RandomWindows`); no observations of anything. Below, its tasks are *windows as in fit*; *fields "
    "as in training* are those of the KrigingNP.",
    "unit": "units in which a field has a standard deviation of 0.1 to 1",
    "use": "The weights at which fits of this family begin (`aenp.fit`).",
    "limits": "Not made to predict as it is: it is not indifferent to units, and knows fields only in those of `fit`, "
    "patches of 32 × 32 cells and windows of up to 512 stations. To map observations at once use `aenp.interpolate`.",
}
"What differs for the model of `base` at which fits start."
COVARIATE = {
    "title": "Random fields in the plane, with a covariate",
    "data": "Random fields that change linearly with a covariate, a random field too, drawn anew for each task, in "
    "patches of a grid and windows of stations as `aenp.fit` has them (`aenp.data.RandomWindows`); no observations of "
    "anything.",
    "use": "The weights at which fits of a `TNP` with covariates begin (`aenp.fit`).",
}
"What differs further for the model with a covariate."
TARGETS = {"era5-2d": "36.5,46.75,6.75,18.25,0.25", "era5-points-2d": "35,60,10,45,0.5"}

ABOUT = {
    "base": About(
        "Random fields in the plane",
        "Random fields drawn anew for each task (`aenp.data.RandomFields`); no observations of anything.",
        "Made by the program; no rights of others.",
        "standard deviations of the field",
        "Maps and estimates from one set of observations in the plane, through `aenp.interpolate`, `aenp interpolate` "
        "and `aenp.sklearn.Interpolator`, where there is nothing to train on.",
        "Its page, [the base model](/base.md), lists where it must not be trusted: trends, bounded values, more than "
        "60°, fewer than 3 observations, known causes such as elevation.",
        "/base.md",
    ),
    "gp": About(
        "Functions of one variable",
        "Samples of a Gaussian process with the Gibbs kernel, drawn anew for each task (`aenp.data.GibbsTasks`).",
        "Made by the program; no rights of others.",
        "y, whose variance is one",
        "Studying approximate equivariance where the best possible prediction is known; the demonstration and the "
        "first tutorial use these models.",
        "It knows this one process, with its two lengthscales, 0.1 and 4, and its noise, 0.2. For your own functions "
        "train a model on tasks like them.",
        "/experiments.md#d-regression-gp",
    ),
    "smoke": About(
        "Smoke plumes",
        "Simulated smoke that rises past an obstacle (`aenp data smoke`); patches of 32 × 32 cells.",
        "Made by the program; no rights of others.",
        "density of smoke",
        "Studying what a model learns about a place, here the obstacle, in fields that are simulated.",
        "A Normal has to describe densities that are mostly exactly zero: its intervals are too wide almost "
        "everywhere, as the coverage shows. It knows this obstacle and this inflow.",
        "/experiments.md#smoke-plumes-smoke",
    ),
    "era5-2d": About(
        "Surface temperature on a grid",
        "ERA5's 2 m temperature in Italy at 0.25°, every three hours from 1 May to 12 June 2022; tested on 16 to 30 "
        "June and on the UK in March 2019.",
        ERA5,
        KELVIN,
        "Maps of temperature from a handful of stations in Italy in early summer, and the study of local effects: "
        "elevation and coasts, which the model has never been shown.",
        "Six weeks of one season and one region. In another season local effects differ; outside the region, where "
        "`in_domain` is False, a model that is not exact falls back on its equivariant part or, without symmetry, "
        "fails. It does not replace a reanalysis.",
        "/experiments.md#temperatures-era5-2d-era5-points-2d-era5-4d",
    ),
    "era5-points-2d": About(
        "Surface temperature at scattered points",
        "Daily means of ERA5's 2 m temperature at the nodes nearest to the stations of NOAA's Global Summary of the "
        "Day, 35–60 N and 10–45 E, 2006 to November 2009; tested on 2010, and on points west or north of the box.",
        f"The table of points is CC BY 4.0 (NorskRegnesentral/downscaleToPoint, arXiv:2507.01692). {ERA5}",
        KELVIN,
        "Daily temperature between scattered stations in Europe, and the study of local effects at points.",
        "Values are ERA5's at the stations' nodes and not the stations' own, from which they differ by about 2 K. "
        "Between points the model knows nothing of elevation.",
        "/experiments.md#temperatures-era5-2d-era5-points-2d-era5-4d",
    ),
    "era5-4d": About(
        "Surface temperature in space, time and elevation",
        "The same points as those of `era5-points-2d`, in windows of four days, with elevation as an input; the days "
        "after the 24th of each month are left out of the training.",
        f"The table of points is CC BY 4.0 (NorskRegnesentral/downscaleToPoint, arXiv:2507.01692). Elevation: ITU-R "
        f"P.1511-2. {ERA5}",
        KELVIN,
        "Daily temperature at any place, day and elevation in Europe, from stations of the days around.",
        "It needs the elevation of every place. Windows are 12° wide and four days long; larger ones are new to it.",
        "/experiments.md#temperatures-era5-2d-era5-points-2d-era5-4d",
    ),
}
ABOUT["base-covariate"] = ABOUT["base"]._replace(**STARTING | COVARIATE)
SYMMETRIES = {
    "none": "without symmetry: it sees absolute positions only, and is a baseline",
    "exact": "exactly equivariant: it treats all places alike",
    "approx": "approximately equivariant: it treats places alike except for what it has learned about each",
}
METRICS = {
    "loglik": "log-likelihood",
    "equivariant_loglik": "log-likelihood of its equivariant part",
    "context_loglik": "log-likelihood of the context's own points",
    "crps": "CRPS",
    "coverage_50": "share in its 50 % interval",
    "coverage_90": "share in its 90 % interval",
    "coverage_95": "share in its 95 % interval",
    "equivariance_deviation": "equivariance deviation",
    "equivariance_distance": "equivariance distance",
}
FACTS = ("parameters", "steps", "minutes", "threads", "seed", "aenp", "torch", "command")
CARD = """\
# {name}

{kind} with {parameters:,} parameters, {symmetry}. Experiment: [{title}]({page}).

```python
{load}
```

## Intended use

{use}

## Limits

{limits}

## Data and their licence

{data} {licence}

The weights are part of this package and under its licence, MIT.

## Training

{steps:,} steps in {minutes:.0f} minutes on {threads} {cores}, seed {seed}, aenp {aenp}, torch {torch}:

```sh
{command}
```

| | |
| --- | --- |
{recipe}

## Scores

{source} Log-likelihoods are in nats for each target; values are in {unit}. ± is a standard error.

{scores}

{notes}
"""
NOTES = """\
Coverage is the calibration: the share of targets that lie in the central intervals should be the intervals' own.
The *equivariance deviation* compares the means with and without fixed inputs, the *equivariance distance* the
predictions of a moved task with the moved predictions, both relative to the equivariant part."""


def write_cards(folder: Path) -> None:
    """Writes a page for each shipped model, and one that lists them."""
    models = shipped()
    for name, facts in models.items():
        file = folder / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(card(name, facts))
    (folder / "index.md").write_text(index(models))


def card(name: str, facts: dict[str, Any]) -> str:
    """The page of one model."""
    experiment, _, model = name.partition("/")
    about = ABOUT[experiment]
    if experiment == "base" and not model.startswith("krigingnp"):
        about = about._replace(**STARTING)
    scores, source = measured(experiment, model, facts)
    load = FIELD if experiment in TARGETS else PROCESS
    recipe = {key: value for key, value in facts["recipe"].items() if key != "steps"}  # a limit in minutes overrides it
    return CARD.format(
        **{key: facts[key] for key in FACTS},
        **about._asdict(),
        name=name,
        kind=FAMILIES[model.split("-")[0]].__name__,
        symmetry=SYMMETRIES[model.split("-")[1]],
        load=load.strip().format(name=name, target=TARGETS.get(experiment)),
        cores="core" if facts["threads"] == 1 else "cores",
        recipe="\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in recipe.items()),
        source=source,
        scores=table(scores),
        notes=NOTES,
    )


def measured(experiment: str, model: str, facts: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The scores of a model in the results, or else those that it was shipped with, and where they are from."""
    file = ROOT / "results" / experiment / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    if model in results.get("models", {}):
        page = f"[the results](/generated/results/{experiment}/README.md)"
        return results["models"][model], f"From {page}, on {_tasks(results['tasks'])}."
    return facts["scores"], f"On {_tasks(facts['tasks'])}."


def table(scores: dict[str, Any]) -> str:
    """A row for each metric and oracle, a column for each test."""
    rows = [[title, *(_number(test.get(metric)) for test in scores.values())] for metric, title in METRICS.items()]
    rows += [
        [f"log-likelihood below *{oracle}*", *(_number(test["gap"][oracle]) for test in scores.values())]
        for oracle in next(iter(scores.values())).get("gap", {})
    ]
    return markdown([["", *scores], *(row for row in rows if any(row[1:]))])


def index(models: dict[str, dict[str, Any]]) -> str:
    """The page that lists the models of each experiment."""
    parts = ["# Model cards", f"{len(models)} trained models come with the package; `aenp.pretrained(name)` loads one."]
    for experiment, about in ABOUT.items():
        own = {name: facts for name, facts in models.items() if name.startswith(f"{experiment}/")}
        tests = dict.fromkeys(test for facts in own.values() for test in facts["scores"])
        rows = [["model", "parameters", *(f"log-likelihood, {test}" for test in tests)]]
        for name, facts in own.items():
            scores = measured(experiment, name.split("/")[1], facts)[0]
            numbers = (_number(scores.get(test, {}).get("loglik")) for test in tests)
            rows.append([f"[{name}](/generated/models/{name}.md)", f"{facts['parameters']:,}", *numbers])
        contents = "\n".join(f"{name}" for name in own)
        parts += [f"## {about.title}", markdown(rows), f"```{{toctree}}\n:hidden:\n\n{contents}\n```"]
    return "\n\n".join(parts) + "\n"


def markdown(rows: list[list[str]]) -> str:
    """A table whose first row is its head."""
    head, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([head, "| --- " * len(rows[0]) + "|", *body])


def _tasks(tasks: dict[str, int]) -> str:
    return ", ".join(f"{number:,} tasks *{test}*" for test, number in tasks.items())


def _number(score: dict[str, float] | None) -> str:
    if score is None:
        return ""
    mean, error = score["mean"], score["standard_error"]
    return f"{mean:.0e}" if 0 < abs(mean) < 1e-4 else f"{mean:.3f} ± {error:.3f}"
