"""Prints how a model would be divided among machines."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpi.cli.output.tables import Column, output_console, print_table
from sharpi.cli.output.terminal import fitted
from sharpi.units import format_bytes, parse_size

if TYPE_CHECKING:
    from sharpi.engine.cluster.hosts_file import Host
    from sharpi.tiers.layer_division import Division

_COLUMNS = (
    Column("rank", is_right=True),
    Column("machine"),
    Column("layers"),
    Column("needs", is_right=True),
    Column("has", is_right=True),
    Column("ms/token", is_right=True),
)


def print_division(
    path: Path, division: "Division", hosts: Sequence["Host"], loans: Sequence[str] = ()
) -> None:
    """Prints a table of machines with their layers, then speed, missing RAM and lent experts."""
    print(f"model    {path}")
    rows = [
        (
            str(rank),
            host.name,
            f"{first} to {end - 1}" if end > first else "none: it lends",
            format_bytes(division.rank_bytes[rank]),
            _memory(host),
            f"{division.stage_seconds[rank] * 1e3:.1f}",
        )
        for rank, (host, (first, end)) in enumerate(zip(hosts, division.layers, strict=True))
    ]
    print()
    print_table(output_console(), _COLUMNS, rows)
    print()
    one, full = _rates(division, hosts)
    count = sum(not host.only_lends for host in hosts)
    print(f"speed    at most {one:.1f} tokens/s of one sequence, {full:.1f} of {count} or more")
    if division.overflow:
        print(f"missing  {format_bytes(division.overflow)} of RAM: experts are read from disk")
    for line in loans:
        print(fitted(f"lends    {line}", sys.stdout, 9))


def _memory(host: "Host") -> str:
    machine = host.machine()
    vram = f" + {format_bytes(parse_size(host.vram))} VRAM" if machine.vram else ""
    return f"{format_bytes(machine.ram)}{vram}"


def division_record(
    path: Path, division: "Division", hosts: Sequence["Host"], loans: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the division among machines, and the experts that they lend, as a JSON object."""
    one, full = _rates(division, hosts)
    return {
        "model": str(path),
        "fits": not division.overflow,
        "overflow": division.overflow,
        "tokens_per_second": one,
        "tokens_per_second_of_all": full,
        "loans": list(loans),
        "ranks": [
            {
                "host": host.name,
                "first_layer": first,
                "end_layer": end,
                "num_bytes": division.rank_bytes[rank],
                "seconds_per_token": division.stage_seconds[rank],
            }
            for rank, (host, (first, end)) in enumerate(zip(hosts, division.layers, strict=True))
        ],
    }


def _rates(division: "Division", hosts: Sequence["Host"]) -> tuple[float, float]:
    from sharpi.engine.cluster.hosts_file import rates

    return rates(division, list(hosts))
