"""Prints the table of running servers, one line each."""

from collections.abc import Iterable, Sequence

from sharpi.cli.output.tables import Column, output_console, print_table

_COLUMNS = (
    Column("MODEL"),
    Column("URL"),
    Column("STATE"),
    Column("ANSWERS"),
    Column("TOKENS/S", rank=1),
    Column("MEMORY"),
    Column("IDLE", rank=2),
    Column("PID"),
    Column("TIERS", rank=3, wraps_at=14),
)


def print_servers(rows: Iterable[Sequence[str]]) -> None:
    """Prints a row for each server, with the bytes of its model by tier at the end."""
    print_table(output_console(), _COLUMNS, rows)
