"""The command that compares the constructions of the theorems with their bounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Float
from numpy import ndarray

from aenp.arguments import check_place
from aenp.evaluation.tables import markdown_table
from aenp.theory.examples import (
    SmoothedRoot,
    functions_of_norm,
    largest_error,
    linear_bound,
    linear_error,
    multiplication,
    smoothing,
)
from aenp.theory.theorems import linear_approximation, nonlinear_approximation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS, SIZES = 129, range(1, 42, 4)
COARSE, FUNCTIONS = 15, 100
HALVINGS = tuple(2 ** (-i / 2) for i in range(7))
WIDTHS = {1: HALVINGS, 3: HALVINGS, 5: HALVINGS[:2]}
"The widths h for each n: the number of fixed inputs grows faster than exponentially with n."
COLOURS = {1: "tab:orange", 3: "tab:green", 5: "tab:purple"}
TABLES = """\
Theorem 2: errors of smoothing, which is compact, with their bounds, and of multiplication, which is not

{linear}

Theorem 3: largest errors of a nonlinear operator, with the theorem's bounds

{nonlinear}
"""


class Row(NamedTuple):
    """One approximation of an operator, its error and a bound of it."""

    n: int
    width: float
    fixed_inputs: int
    error: float
    bound: float


class Approximations(NamedTuple):
    """Approximations of a compact operator, of one that is not, and of a nonlinear one."""

    compact: list[Row]
    other: list[Row]
    nonlinear: list[Row]

    def tables(self) -> str:
        return TABLES.format(linear=linear_table(self.compact, self.other), nonlinear=nonlinear_table(self.nonlinear))


def approximations() -> Approximations:
    """The approximations that the tables and the picture show."""
    compact, other = smoothing(POINTS, 0.08, 0.04), multiplication(POINTS)
    return Approximations(linear_rows(compact, SIZES), linear_rows(other, SIZES), nonlinear_rows(WIDTHS))


def theory(out: Path = Path("theory")) -> None:
    """Approximate three operators by equivariant maps with fixed inputs, print errors and bounds, and draw them.

    Example: aenp theory --out theory

    Args:
        out: directory of the picture, theory.png.
    """
    check_place(out, is_directory=True)
    results = approximations()
    print(results.tables())
    print(draw(*results, out / "theory.png"))


def linear_rows(operator: Float[ndarray, "points points"], sizes: Sequence[int]) -> list[Row]:
    """Errors of theorem 2 for each n beside the Hilbert–Schmidt norm of what is left out."""
    rows = []
    for n in sizes:
        made = linear_approximation(operator, n)
        rows.append(Row(n, 0.0, len(made.fixed_inputs), linear_error(operator, made), linear_bound(operator, n)))
    return rows


def nonlinear_rows(widths: Mapping[int, Sequence[float]]) -> list[Row]:
    """The largest errors of theorem 3 among functions of norm 1 for each n and h, beside its bound."""
    operator, functions = SmoothedRoot(smoothing(COARSE, 0.2, 0.1)), functions_of_norm(1, COARSE, FUNCTIONS, seed=0)
    rows = []
    for n, width in ((n, width) for n, each in widths.items() for width in each):
        made = nonlinear_approximation(operator, COARSE, n, radius=1, width=width)
        error = largest_error(operator, made, functions)
        rows.append(Row(n, width, len(made.fixed_inputs), error, operator.bound(n, 1, width)))
    return rows


def linear_table(compact: list[Row], other: list[Row]) -> str:
    header = ["n", "fixed inputs", "smoothing", "bound", "multiplication"]
    pairs = zip(compact, other, strict=True)
    cells = ((a.n, a.fixed_inputs, f"{a.error:.2g}", f"{a.bound:.2g}", f"{b.error:.2f}") for a, b in pairs)
    return markdown_table(header, [list(map(str, row)) for row in cells])


def nonlinear_table(rows: list[Row]) -> str:
    header = ["n", "h", "fixed inputs", "error", "bound"]
    cells = (
        (row.n, f"{row.width:.3f}", f"{row.fixed_inputs:,}", f"{row.error:.2f}", f"{row.bound:.2f}") for row in rows
    )
    return markdown_table(header, [list(map(str, row)) for row in cells])


def draw(compact: list[Row], other: list[Row], nonlinear: list[Row], file: Path) -> Path:
    """Errors as lines and bounds as dashes, against n or the number of fixed inputs."""
    from aenp.evaluation.plots import pyplot, save_figure

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot([row.n for row in other], [row.error for row in other], "s-", color="tab:red", markersize=4)
    _draw_rows(left, [row.n for row in compact], compact, "tab:blue")
    left.annotate("multiplication: not compact", (20, 1.1), color="tab:red", va="top")
    left.annotate("smoothing: compact", (17, 0.008), color="tab:blue", ha="right")
    for n, colour in COLOURS.items():
        rows = [row for row in nonlinear if row.n == n]
        _draw_rows(
            right, [row.fixed_inputs for row in rows], rows, colour, label=f"n = {n}, h = 1 … {rows[-1].width:.2g}"
        )
    left.set(
        title="Theorem 2: two linear operators", xlabel="n (with 2n fixed inputs)", ylabel="error in operator norm"
    )
    right.set(
        title="Theorem 3: a nonlinear operator", xlabel="fixed inputs", ylabel="largest error found where ‖f‖ = 1"
    )
    left.set_yscale("log")
    right.set(xscale="log", yscale="log", ylim=(0.1, 5))
    right.set_yticks(ticks := (0.1, 0.2, 0.5, 1, 2, 5), labels=map(str, ticks))
    right.minorticks_off()
    for axis in (left, right):
        axis.plot([], [], "--", color="0.4", label="bounds")
        axis.legend(fontsize=9)
        axis.grid(alpha=0.25)
    return save_figure(figure, file)


def _draw_rows(axis: "Axes", x: list[int], rows: list[Row], colour: str, label: str | None = None) -> None:
    axis.plot(x, [row.bound for row in rows], "--", color=colour, linewidth=1.2)
    axis.plot(x, [row.error for row in rows], "o-", color=colour, markersize=4, label=label)
