"""Progress of a run, as a bar on a terminal and as lines in a log."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """A bar with the share of the budget, the log-likelihood and, where it is known, its gap to the oracle.

    Args:
        steps: the budget, if it is in steps.
        minutes: the budget, if it is in minutes.
        oracle: the best possible log-likelihood of the validation tasks.
        quiet: show nothing.
    """

    def __init__(self, steps: int | None, minutes: float | None, oracle: float | None, quiet: bool) -> None:
        self.budget = f"{steps} steps" if minutes is None else f"{minutes:g} min"
        self.oracle, self.verdict = oracle, ""
        self.smooth: float | None = None
        self.console = Console(stderr=True, quiet=quiet)

    def __enter__(self) -> "Progress":
        columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
        self.bar = Bar(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=self.console, transient=True)
        self.line = self.bar.add_task(self.budget, total=1.0)
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def step(self, step: int, share: float, value: float) -> None:
        self.smooth = value if self.smooth is None else 0.98 * self.smooth + 0.02 * value
        description = f"step {step} of {self.budget}, log-likelihood {self.smooth:.3f}{self.verdict}"
        self.bar.update(self.line, completed=share, description=description)
        self.share = share

    def validated(self, step: int, value: float) -> None:
        self.verdict = f", held out {value:.3f}"
        if self.oracle is not None:
            self.verdict += f", gap to the oracle {self.oracle - value:.3f}"
        if not self.console.is_terminal:
            self.console.print(f"step {step}, {100 * self.share:.0f} % of {self.budget}{self.verdict}")
