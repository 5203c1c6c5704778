"""Tables that fit the terminal: texts wrap, and the least important columns are left out.

On a wide terminal, or in a pipe, a table has all columns. Otherwise the last line names those that
were left out.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 160
_ANY_WIDTH = 10_000
_GAP = 2  # cells between two columns


class Column(Struct, frozen=True):
    """A column of a table; those of the highest `rank` are left out first, those of rank 0 never.

    `wraps_at`: the least width to which its texts wrap, in cells; 0 if they do not wrap.
    """

    heading: str
    is_right: bool = False
    rank: int = 0
    wraps_at: int = 0


def left(*headings: str, rank: int = 0, wraps_at: int = 0) -> tuple[Column, ...]:
    """Returns columns of texts."""
    return tuple(Column(each, rank=rank, wraps_at=wraps_at) for each in headings)


def right(*headings: str, rank: int = 0) -> tuple[Column, ...]:
    """Returns columns of numbers."""
    return tuple(Column(each, is_right=True, rank=rank) for each in headings)


def print_table(console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table without its empty columns, fitted to a terminal but complete in a pipe."""
    width = console.width if console.is_terminal else _ANY_WIDTH
    heading, *lines = table_lines(columns, list(rows), width)
    console.print(Text(heading, style="bold"), soft_wrap=True)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Returns the heading, the rows, and perhaps a note on the columns that are left out."""
    cells = {
        each: [row[i] if i < len(row) else "" for row in rows] for i, each in enumerate(columns)
    }
    filled = {each: texts for each, texts in cells.items() if any(texts) or not rows}
    kept = _fitting(filled, width)
    lines = _rendered(_table({each: filled[each] for each in kept}, width), width + _GAP)
    left_out = [each.heading for each in filled if each not in kept]
    if left_out:
        note = Text(f"(a wider terminal shows {', '.join(left_out)} too)")
        lines += _rendered(note, width)
    return lines


def _fitting(columns: Mapping[Column, Sequence[str]], width: int) -> list[Column]:
    """Returns the columns that fit into `width` cells."""
    kept = list(columns)
    while sum(_least_width(each, columns[each]) + _GAP for each in kept) > width + _GAP:
        worst = max(kept, key=lambda each: each.rank)
        if not worst.rank:
            break
        kept.remove(worst)
    return kept


def _table(columns: Mapping[Column, Sequence[str]], width: int) -> Table:
    """Returns a table in which the last column that may wrap has all the room that is left."""
    widest = {each: _widest([each.heading, *texts]) for each, texts in columns.items()}
    if sum(widest.values()) + _GAP * (len(widest) - 1) > width:
        wrapping = [each for each in columns if each.wraps_at]
        widest |= {each: _least_width(each, columns[each]) for each in wrapping[:-1]}
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="")
    for each in columns:
        table.add_column(
            Text(each.heading),
            justify="right" if each.is_right else "left",
            no_wrap=not each.wraps_at,
            max_width=widest[each],
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _least_width(column: Column, texts: Sequence[str]) -> int:
    if not column.wraps_at:
        return _widest([column.heading, *texts])
    words = _widest(word for text in texts for word in text.split())
    return max(cell_len(column.heading), min(_widest(texts), max(words, column.wraps_at)))


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _rendered(content: Table | Text, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    lines = console.render_lines(content, pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


def output_console(stream: TextIO | None = None) -> Console:
    """Returns a Rich console for `stream` (default stdout), 160 columns wide unless a terminal."""
    width = None if (stream or sys.stdout).isatty() else PIPED_WIDTH
    return Console(file=stream, highlight=False, markup=False, width=width)
