"""Web pages: everything is in the one file, and headings, tables and pictures are what the Markdown says."""

import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

from aenp.evaluation.web_page import Section, web_page

TEXT = """\
# First & last

| model | score |
| --- | --- |
| TNP (T~) | < −10⁶ |

## Detail

![a dot](dot.png) <script>alert(1)</script>
"""


class Reader(HTMLParser):
    """The tags of a page with their attributes, in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags = list[tuple[str, dict[str, str | None]]]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def values(self, tag: str, attribute: str) -> list[str | None]:
        return [attrs[attribute] for name, attrs in self.tags if name == tag and attribute in attrs]


def test_a_page_holds_its_pictures_and_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG dot")
    reader = Reader(web_page("Report", [Section(TEXT, tmp_path)]))
    (source,) = reader.values("img", "src")
    assert b64decode(source.removeprefix("data:image/png;base64,")) == b"\x89PNG dot"
    assert not {"link", "script", "iframe"} & {tag for tag, _ in reader.tags}


def test_pictures_are_of_the_type_and_in_the_file_that_their_name_says(tmp_path: Path) -> None:
    (tmp_path / "a dot.svg").write_bytes(b"<svg/>")
    (source,) = Reader(web_page("Report", [Section("# A\n\n![dot](a%20dot.svg)\n", tmp_path)])).values("img", "src")
    assert b64decode(str(source).removeprefix("data:image/svg+xml;base64,")) == b"<svg/>"


def test_sections_with_the_same_title_have_links_of_their_own() -> None:
    reader = Reader(web_page("Report", [Section("# A\n"), Section("# A\n"), Section("# A 1\n")]))
    assert reader.values("a", "href") == [f"#{name}" for name in reader.values("section", "id")]
    assert len(set(reader.values("section", "id"))) == 3


def test_links_lead_to_sections_whose_headings_are_one_level_lower() -> None:
    reader = Reader(web_page("Report", [Section(TEXT), Section("# Other\n")]))
    assert reader.values("a", "href") == [f"#{name}" for name in reader.values("section", "id")]
    assert [tag for tag, _ in reader.tags if re.fullmatch(r"h\d", tag)] == ["h1", "h2", "h3", "h2"]


def test_tables_scroll_and_signs_of_html_are_shown_as_they_are() -> None:
    page = web_page("Report", [Section(TEXT)])
    assert '<div class="wide"><table>' in page and "<td>&lt; −10⁶</td>" in page and "&lt;script&gt;" in page
    assert page.count("<div") == page.count("</div>")
