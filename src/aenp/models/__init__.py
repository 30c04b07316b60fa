"""The model families by name, each at the symmetries it has."""

from typing import Any

from aenp.fixed_inputs import Domain, FixedInputs
from aenp.models.cnp import CNP
from aenp.models.convcnp import ConvCNP
from aenp.models.equivcnp import EquivCNP
from aenp.models.pttnp import PTTNP
from aenp.models.rcnp import RCNP
from aenp.models.relaxedconvcnp import RelaxedConvCNP
from aenp.models.tnp import TNP
from aenp.process import NeuralProcess, Symmetry

FAMILIES: dict[str, tuple[type[NeuralProcess], tuple[Symmetry, ...]]] = {
    "cnp": (CNP, ("none",)),
    "tnp": (TNP, ("none", "exact", "approx")),
    "pttnp": (PTTNP, ("none", "exact", "approx")),
    "convcnp": (ConvCNP, ("exact", "approx")),
    "relaxedconvcnp": (RelaxedConvCNP, ("approx",)),
    "equivcnp": (EquivCNP, ("exact", "approx")),
    "rcnp": (RCNP, ("exact", "approx")),
}


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
        family: a key of `FAMILIES`.
        symmetry: `none`, `exact` or `approx`.
        dim_x: input dimension.
        dim_y: output dimension.
        fixed_inputs: of an `approx` model; by default `FixedInputs(dim_x, domain=domain)`.
        domain: where the fixed inputs of an `approx` model may differ from zero.
        options: further arguments of the family's class.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}; got {family!r}")
    kind, symmetries = FAMILIES[family]
    if symmetry not in symmetries:
        raise ValueError(f"{family} comes with symmetry {', '.join(symmetries)}; got {symmetry!r}")
    if symmetry == "approx":
        options["fixed_inputs"] = fixed_inputs or FixedInputs(dim_x, domain=domain)
    elif fixed_inputs is not None or domain is not None:
        raise ValueError(f"fixed_inputs and domain are for symmetry='approx'; got symmetry={symmetry!r}")
    if "none" in symmetries and len(symmetries) > 1:
        options["symmetry"] = "none" if symmetry == "none" else "exact"
    return kind(dim_x, dim_y, **options)
