"""The commands that train models on own fields and stations: fit, test-symmetry."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from aenp.arguments import Count, Flag, OptionalCount, Seed, Text, check_place, number, optional
from aenp.earth.breaking import fit_pair, symmetry_test
from aenp.earth.commands import field_model
from aenp.earth.fitting import FitOptions, fit_in
from aenp.earth.regions import Period, Region
from aenp.training.directory import MODEL, told_if_interrupted

Names = Annotated[tuple[str, ...], optional("PATH ...")]


def fit(
    data: Positional[Path],
    options: Annotated[FitOptions, arg(name="training")],
    out: Path = Path("runs/fit"),
    resume: Flag = False,
    covariates: Names = (),
) -> None:
    """Train a model on your own field or stations. Ctrl-C saves it, and `--resume` continues.

    Example: aenp fit era5.nc --variable t2m,u10 --region 36 47 6 19 --minutes 20 --out runs/italy

    Args:
        data: a field in NetCDF, GRIB or Zarr, or a CSV table of stations with time, latitude, longitude and a value.
        out: directory for the model, logs and checkpoints.
        resume: continue the training in that directory, with the same arguments; minutes or steps may be larger.
        covariates: files of what is known everywhere, such as topo.nc lsm.nc, or names of columns or variables of data.
    """
    check_place(out, is_directory=True)
    with told_if_interrupted(out):
        outcome = fit_in(out, data, options, resume, covariates)[1]
    done = f"{outcome.steps} steps in {outcome.minutes:.1f} minutes"
    if not outcome.finished:
        again = [word for word in sys.argv[1:] if word != "--resume"]
        print(f"Stopped after {done}. Resume with:\n  {shlex.join(['aenp', *again, '--resume'])}")
        sys.exit(130)
    print(f"Finished after {done}. Predict with:")
    weights = shlex.quote(str(out / MODEL))
    files = [name for name in covariates if Path(name).exists()]
    further = f" --covariates {shlex.join(files)}" if files else ""
    print(f"  aenp predict --weights {weights} --context stations.csv --target grid.nc --out prediction.nc{further}")


def test_symmetry(
    data: Positional[Path],
    approximate: Text = None,
    exact: Text = None,
    family: str = "convcnp",
    minutes: float = 10.0,
    steps: OptionalCount = None,
    variable: Text = None,
    region: Annotated[Region | None, optional("S N W E"), number(float, -360, 360, 4)] = None,
    days: Annotated[Period | None, optional("FIRST LAST")] = None,
    tasks: Count = 60,
    seed: Seed = 0,
    out: Path = Path("runs/symmetry"),
) -> None:
    """Test whether places differ in your data, in a way that breaks the symmetry of models that treat all alike.

    An approximate and an exact model are fitted to the first 70 % of the dates and tested on the others. After Ctrl-C,
    the same command continues.

    Example: aenp test-symmetry t2m.nc --minutes 10

    Args:
        data: a field or a table of stations, as for `aenp fit`.
        approximate: a model with local effects that `aenp fit` wrote, or its directory; by default one is fitted.
        exact: an exact model to compare that one with; by default none.
        family: convcnp, pttnp, relaxedconvcnp, equivcnp or tnp, of the models that are fitted.
        minutes: how long to train each of them.
        steps: a number of training steps, in place of minutes.
        variable: name of the values; needed where there are several.
        region: south, north, west, east in degrees; by default all of the data.
        days: first and last date to test on; by default those after the training period.
        tasks: number of times to test on, spread over the days.
        seed: random seed of the training and of the choice of places and times.
        out: directory for the runs of the two models.
    """
    if exact is not None and approximate is None:
        raise ValueError("--exact is compared with a model that --approximate names; give both, or neither")
    one, other = (None if each is None else field_model(each) for each in (approximate, exact))
    if one is None:
        check_place(out, is_directory=True)
        options = FitOptions(family, "approx", minutes, variable, region, None, steps, seed)
        pair = fit_pair(out, data, options)
        if not all(outcome.finished for _, outcome in pair):
            print("Stopped. The same command continues.")
            sys.exit(130)
        one, other = (model for model, _ in pair)
    common: dict[str, Any] = {"variable": variable, "region": region, "seed": seed}
    print(symmetry_test(data, one, other, days=days, tasks=tasks, **common))
