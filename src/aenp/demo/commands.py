"""The command that writes the demonstration."""

import webbrowser
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from aenp.arguments import File, Flag, check_place
from aenp.demo.page import page
from aenp.saving import written_whole


def demo(
    out: Path = Path("demo.html"),
    data: File = None,
    open_: Annotated[Flag, arg(name="open")] = False,
) -> None:
    """Write a page on which shipped models predict in the browser while you move observations.

    Example: aenp demo --open

    Args:
        out: the HTML file, which needs no server and no network.
        data: directory of ERA5 files, as docs/era5.md describes it: the map then has real days and elevation.
        open_: show the page in a browser.
    """
    check_place(out)
    text = page(data)
    with written_whole(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"Wrote {out}, {out.stat().st_size / 1e6:.1f} MB")
    if open_:
        webbrowser.open(out.resolve().as_uri())
