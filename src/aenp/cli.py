"""The command line."""

import sys

from tyro.extras import SubcommandApp

from aenp._version import __version__

DESCRIPTION = """Approximately equivariant neural processes.

Examples:
  aenp --version
  aenp families        every model with its measured equivariance errors, as Markdown
"""

app = SubcommandApp()


@app.command
def families(seed: int = 0, tasks: int = 4) -> None:
    """Print every model family at every symmetry, with parameter counts and measured equivariance errors.

    Args:
        seed: of the random parameters and tasks.
        tasks: number of tasks that the errors are measured on.
    """
    from aenp.report import families_page

    print(families_page(seed, tasks))


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        print(f"aenp {__version__}")
        return
    app.cli(prog="aenp", description=DESCRIPTION)
