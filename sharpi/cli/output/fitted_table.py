"""A table that fits the terminal: trailing columns move below the row, others are left out.

On a wide terminal, or in a pipe, a table has all columns. Otherwise columns are left out by rank,
and the last line names them.
"""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from msgspec import Struct
from rich.console import Console
from rich.text import Text

PIPED_WIDTH = 160
_ANY_WIDTH = 10_000
_GAP = "  "
_INDENT = "    "
_WIDEST_FIRST = 14  # the widest first column, in cells; longer texts wrap


class Column(Struct, frozen=True):
    """A column of a table; on a narrow terminal, columns with a `rank` above 0 are left out.

    The highest rank is left out first.
    """

    heading: str
    is_right: bool = False
    rank: int = 0


class TrailingColumn(Struct, frozen=True):
    """A last column, which moves below its row if the table is too narrow for it."""

    heading: str
    label: str = ""  # printed before the cell when it is below the row


class FittedTable:
    """A table that fits the terminal; a row has a cell per column, also of trailing ones."""

    def __init__(self, columns: Sequence[Column], trailing: Sequence[TrailingColumn] = ()) -> None:
        self._columns, self._trailing = list(columns), list(trailing)
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Adds a row; missing cells at its end are empty."""
        missing = len(self._columns) + len(self._trailing) - len(cells)
        self._rows.append((*cells, *[""] * missing))

    def lines(self, width: int) -> list[str]:
        """Returns the heading and the rows, none wider than `width` if that is possible."""
        whole = [*self._columns, *(Column(each.heading) for each in self._trailing)]
        if _width(self._widths(whole, range(len(whole)))) <= width:
            return list(self._wide(whole))
        return list(self._narrow(width))

    def _widths(self, columns: Sequence[Column], kept: Sequence[int]) -> list[int]:
        return [
            max([len(columns[i].heading), *(len(row[i]) for row in self._rows)], default=0)
            for i in kept
        ]

    def _wide(self, columns: Sequence[Column]) -> Iterator[str]:
        kept = list(range(len(columns)))
        widths = self._widths(columns, kept)
        yield _line([each.heading for each in columns], columns, widths)
        for row in self._rows:
            yield _line(row, columns, widths)

    def _narrow(self, width: int) -> Iterator[str]:
        kept = self._fitting(width)
        columns = [self._columns[i] for i in kept]
        widths = self._limited(kept)
        yield _line([each.heading for each in columns], columns, widths)
        for row in self._rows:
            first, *more = textwrap.wrap(row[0], widths[0], break_on_hyphens=False) or [""]
            yield _line([first, *(row[i] for i in kept[1:])], columns, widths)
            yield from more
            yield from self._remarks_below(row, width)
        left_out = [each.heading for i, each in enumerate(self._columns) if i not in kept]
        if left_out:
            text = f"(a wider terminal shows {', '.join(left_out)} too)"
            yield from textwrap.wrap(text, width, break_on_hyphens=False)

    def _fitting(self, width: int) -> list[int]:
        """Returns the indices of the columns that fit into `width` cells.

        Columns of the highest rank are left out first.
        """
        kept = list(range(len(self._columns)))
        while _width(self._limited(kept)) > width:
            worst = max(kept, key=lambda i: self._columns[i].rank)
            if not self._columns[worst].rank:
                break
            kept.remove(worst)
        return kept

    def _limited(self, kept: Sequence[int]) -> list[int]:
        first, *rest = self._widths(self._columns, kept)
        words = [word for row in self._rows for word in row[0].split()]
        widest = max([_WIDEST_FIRST, len(self._columns[0].heading), *map(len, words)])
        return [min(first, widest), *rest]

    def _remarks_below(self, row: tuple[str, ...], width: int) -> Iterator[str]:
        cells = zip(self._trailing, row[len(self._columns) :], strict=True)
        text = "; ".join(f"{column.label}{cell}" for column, cell in cells if cell)
        yield from textwrap.wrap(
            text,
            width,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
        )


def _width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if column.is_right else cell.ljust(width)
        for cell, column, width in zip(cells, columns, widths, strict=True)
    )
    return _GAP.join(padded).rstrip()


def output_console(stream: TextIO | None = None) -> Console:
    """Returns a Rich console for `stream` (default stdout), 160 columns wide unless a terminal."""
    console = Console(file=stream, highlight=False, markup=False)
    if not console.is_terminal:
        return Console(file=stream, highlight=False, markup=False, width=PIPED_WIDTH)
    return console


def print_table(console: Console, table: FittedTable) -> None:
    """Prints a table with a bold heading, fitted to a terminal but complete in a pipe."""
    heading, *rows = table.lines(console.width if console.is_terminal else _ANY_WIDTH)
    console.print(Text(heading, style="bold"), soft_wrap=True)
    for row in rows:
        console.print(Text(row), soft_wrap=True)


def print_labelled(console: Console, line: str, label_width: int) -> None:
    """Prints a label and its text; wrapped lines are indented by `label_width`."""
    if len(line) <= console.width or not console.is_terminal:
        console.print(Text(line), soft_wrap=True)
        return
    indent = " " * label_width
    for part in textwrap.wrap(
        line,
        console.width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        console.print(Text(part), soft_wrap=True)
