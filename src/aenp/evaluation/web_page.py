"""Web pages: Markdown and its pictures as one HTML file that needs nothing else."""

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; color: #222; background: #fff; }}
body {{ max-width: 64rem; margin: auto; padding: 1rem; }}
h1, h2 {{ line-height: 1.2; }}
section {{ border-top: 2px solid #ccc; margin-top: 2.5rem; }}
a {{ color: #05a; }}
.wide, p:has(> img) {{ overflow-x: auto; }}
.wide {{ margin: 1rem 0; }}
table {{ border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.3rem 0.7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }}
th {{ vertical-align: bottom; white-space: normal; }}
th:first-child, td:first-child {{ text-align: left; position: sticky; left: 0; background: #fff; }}
td:first-child {{ white-space: normal; min-width: 7rem; }}
img {{ display: block; min-width: 36rem; max-width: 100%; }}
code {{ overflow-wrap: anywhere; background: #f3f3f3; }}
li {{ margin-bottom: 0.4rem; }}
li code {{ white-space: nowrap; }}
pre {{ overflow-x: auto; background: #f3f3f3; padding: 0.7rem; }}
ul {{ padding-left: 1.2rem; }}
</style>
</head>
<body>
<h1>{title}</h1>
<nav><ul>
{links}
</ul></nav>
{body}
</body>
</html>
"""


@dataclass(frozen=True)
class Section:
    """A part of a page: Markdown that starts with a heading of the first level, and where its pictures are."""

    text: str
    folder: Path = Path()

    @property
    def title(self) -> str:
        return self.text.splitlines()[0].removeprefix("# ")


def web_page(title: str, sections: Sequence[Section]) -> str:
    """One HTML page of all sections, with links to each; wide tables scroll, and pictures are part of the page."""
    titles = [re.sub(r"\W+", "-", section.title.lower()).strip("-") for section in sections]
    names = [f"{number}-{title}" for number, title in enumerate(titles)]
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("table_open", lambda *_: '<div class="wide"><table>\n')
    markdown.add_render_rule("table_close", lambda *_: "</table></div>\n")
    links, body = [], []
    for name, section in zip(names, sections, strict=True):
        tokens = markdown.parse(section.text)
        for token in tokens:
            _lower_heading(token)
            _embed_pictures(token, section.folder)
        links.append(f'<li><a href="#{name}">{markdown.renderInline(section.title)}</a></li>')
        body.append(f'<section id="{name}">\n{markdown.renderer.render(tokens, markdown.options, {})}</section>')
    return PAGE.format(title=title, links="\n".join(links), body="\n".join(body))


def _lower_heading(token: Token) -> None:
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"


def _embed_pictures(token: Token, folder: Path) -> None:
    for child in token.children or []:
        if child.type == "image" and (file := folder / unquote(str(child.attrs["src"]))).is_file():
            child.attrs["src"] = (
                f"data:{guess_type(file.name)[0] or 'image/png'};base64,{b64encode(file.read_bytes()).decode()}"
            )
