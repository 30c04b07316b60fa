"""The run-time checker of types and shapes: beartype, which here accepts an int as a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
