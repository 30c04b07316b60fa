"""Tables in Markdown."""


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A table with one line for each row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
