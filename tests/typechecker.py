"""The run-time checker of types and shapes: beartype, where an int will do for a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
