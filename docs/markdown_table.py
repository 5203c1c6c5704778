"""Formats tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table with the column titles `head`; each line ends with a newline."""
    rule = "|---" * len(head) + "|\n"
    return _line(head) + rule + "".join(map(_line, rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_one_line, cells))} |\n"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
