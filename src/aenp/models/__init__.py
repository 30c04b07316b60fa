"""The model families, one file each, readable beside the paper's pseudo-code; they use tasks and layers, but no data.

A class that declares `family` and `symmetries` is registered under its name, wherever it is defined.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from aenp.fixed_inputs import Domain, FixedInputs
from aenp.process import NeuralProcess, Symmetry

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

FAMILIES = NeuralProcess.families


def make(
    family: str,
    symmetry: Symmetry,
    dim_x: int,
    dim_y: int,
    fixed_inputs: FixedInputs | None = None,
    domain: Domain | None = None,
    **options: Any,
) -> NeuralProcess:
    """A model of `family` at `symmetry`.

    Args:
        family: its name, a key of `FAMILIES`.
        symmetry: `none`, `exact` or `approx`.
        dim_x: input dimension.
        dim_y: output dimension.
        fixed_inputs: of an `approx` model; by default `FixedInputs(dim_x, domain=domain)`.
        domain: where the fixed inputs of an `approx` model may differ from zero; for `none`, the box that positions are
            scaled to.
        options: further arguments of the family's class.

    Example:
        >>> from aenp.models import FAMILIES, make
        >>> make("convcnp", "approx", dim_x=1, dim_y=1, domain=[(0, 1)]).label
        'ConvCNP (T~)'
        >>> FAMILIES["convcnp"].symmetries
        ('exact', 'approx')
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}; got {family!r}")
    kind = FAMILIES[family]
    if symmetry not in kind.symmetries:
        raise ValueError(f"{family} comes with symmetry {', '.join(kind.symmetries)}; got {symmetry!r}")
    if symmetry == "approx":
        options["fixed_inputs"] = fixed_inputs or FixedInputs(dim_x, domain=domain)
    elif fixed_inputs is not None or (domain is not None and symmetry == "exact"):
        raise ValueError(f"fixed_inputs is for symmetry='approx', domain for that and 'none'; got {symmetry!r}")
    elif domain is not None:
        options["domain"] = domain
    if "none" in kind.symmetries and len(kind.symmetries) > 1:
        options["symmetry"] = "none" if symmetry == "none" else "exact"
    return kind(dim_x, dim_y, **options)
