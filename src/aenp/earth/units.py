"""Units: their names in files and tables, and conversions between them."""

from collections.abc import Mapping
from typing import Any

from cf_units import Unit, suppress_errors  # type: ignore[import-untyped]
from numpy import ndarray

LETTERS = {
    "k": "K",
    **{f"{degrees}{letter}": f"deg{letter.upper()}" for degrees in ("", "deg ", "degrees ") for letter in "cf"},
}
"Units of temperature that UDUNITS does not know or takes for a charge or a capacitance."


def converted(values: ndarray, units: str | None, to: str, what: str) -> ndarray:
    """The values in the units `to`; unchanged if either units are unknown.

    Args:
        values: numbers.
        units: their units, such as "degC".
        to: the units wanted, such as "K".
        what: the data in question, for the message.
    """
    if not units or not to or units.strip() == to.strip():
        return values
    old, new = _unit(units), _unit(to)
    if not old.is_convertible(new):
        raise ValueError(f"{what}: the units {units!r} and {to!r} differ and cannot be converted; check the variable")
    return old.convert(values, new)


def _unit(text: str) -> Unit:
    """The unit in any spelling that UDUNITS knows, or the unknown one, which converts to no other."""
    try:
        with suppress_errors():
            return Unit(LETTERS.get(text.strip().lower(), text))
    except ValueError:
        return Unit("unknown")


def units_of(attributes: Mapping[Any, Any]) -> str | None:
    """The units; None if they are unknown."""
    units = attributes.get("units")
    return None if units in (None, "", "unknown") else str(units)
