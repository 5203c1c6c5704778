"""Prints the table of running servers, one line each."""

from collections.abc import Iterable, Sequence

from sharpi.cli.output.fitted_table import (
    Column,
    FittedTable,
    TrailingColumn,
    output_console,
    print_table,
)

_COLUMNS = (
    Column("MODEL"),
    Column("URL"),
    Column("STATE"),
    Column("ANSWERS"),
    Column("TOKENS/S", rank=1),
    Column("MEMORY"),
    Column("IDLE", rank=2),
    Column("PID"),
)
_TIERS = TrailingColumn("TIERS")


def print_servers(rows: Iterable[Sequence[str]]) -> None:
    """Prints a row for each server, with the bytes of its model by tier at the end."""
    table = FittedTable(_COLUMNS, (_TIERS,))
    for row in rows:
        table.add(*row)
    print_table(output_console(), table)
