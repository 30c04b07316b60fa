"""Machine: what a run computes on."""

from dataclasses import dataclass

PRECISIONS = ("32-true", "64-true", "16-mixed", "bf16-mixed")


@dataclass(frozen=True)
class Machine:
    """What a run computes on, and how.

    Args:
        devices: processes on this machine, each with batches of its own.
        num_nodes: machines.
        precision: of the arithmetic, 32-true, 64-true, 16-mixed or bf16-mixed.

    Example:
        >>> from aenp.training import Machine
        >>> Machine(devices=2, precision="bf16-mixed").num_nodes
        1
    """

    devices: int = 1
    num_nodes: int = 1
    precision: str = "32-true"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {self.precision!r}")
        if self.devices < 1 or self.num_nodes < 1:
            raise ValueError(f"devices and num_nodes must be at least 1; got {self.devices} and {self.num_nodes}")


ALONE = Machine()
"One process, in single precision."
