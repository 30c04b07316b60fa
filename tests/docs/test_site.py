"""The site: it is built without a warning, its links lead somewhere, and it leaves nothing public out."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree, ignore_patterns
from urllib.parse import unquote

import pytest

from aenp.cli import COMMANDS
from aenp.shipped import shipped

ROOT = Path(__file__).parents[2]


def build(folder: Path) -> Path:
    """A copy of the documents, built; other folders of the repository are where they should be beside it."""
    copytree(ROOT / "docs", folder / "docs", ignore=ignore_patterns("_build", "generated"))
    for name in ("src", "results", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "docs", "site"]
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    result = subprocess.run(
        command, cwd=folder, env=os.environ | path, capture_output=True, text=True, check=False, timeout=1200
    )
    assert result.returncode == 0, result.stderr
    return folder / "site"


def broken_links(site: Path) -> Iterator[str]:
    """The links and pictures of the pages that lead to no file or to no place in one."""
    pages = {file: file.read_text() for file in site.rglob("*.html") if file.name != "demo.html"}
    places = {file: set(re.findall(r'\bid="([^"]+)"', text)) for file, text in pages.items()}
    for page, text in pages.items():
        for link in set(re.findall(r'<(?:a|img|iframe|link|script)\b[^>]*?\b(?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:", link) or link == "#":
                continue
            path, _, place = unquote(link).partition("#")
            file = (page.parent / path.split("?")[0]).resolve() if path else page
            if not file.is_file() or (place and file in places and place not in places[file]):
                yield f"{page.relative_to(site)}: {link}"


@pytest.mark.slow
def test_the_site_is_built_without_warnings_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    site = build(tmp_path)
    assert not list(broken_links(site))
    for name in shipped():
        assert (site / "generated" / "models" / f"{name}.html").is_file()
    commands = (site / "generated" / "command_line.html").read_text()
    assert all(f"usage: aenp {name} " in commands for name in COMMANDS)
    assert "<math" in (site / "how_it_works.html").read_text() and (site / "demo.html").stat().st_size > 1e5


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    page = '<a href="there.html">1</a> <a href="#here" id="here">2</a> <a href="https://a.b">3</a> <img src="no.png">'
    (tmp_path / "index.html").write_text(f'{page} <a class="x" href="there.html#gone">4</a>')
    (tmp_path / "there.html").write_text("")
    assert sorted(broken_links(tmp_path)) == ["index.html: no.png", "index.html: there.html#gone"]
