"""Prints the links between the machines that will run one model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sharpi.cli.output.tables import Column, output_console, print_table

if TYPE_CHECKING:
    from sharpi.cluster.link_rate import LinkRate
    from sharpi.cluster.rendezvous import Interface

BACKEND = "gloo"
_COLUMNS = (
    Column("from"),
    Column("to"),
    Column("8 KB", is_right=True),
    Column("bandwidth", is_right=True),
)


def print_links(
    hosts: Sequence[str], interfaces: Sequence["Interface"], links: Sequence["LinkRate"]
) -> None:
    """Prints the network interface of each machine, and a table of latency and bandwidth."""
    print(f"backend  {BACKEND}, between CPUs")
    for rank, (host, interface) in enumerate(zip(hosts, interfaces, strict=True)):
        where = f"{interface.name}, {interface.address}, MTU {interface.mtu} bytes"
        print(f"rank {rank}   {host}: {where}")
    rows = [
        (
            f"rank {link.source}",
            f"rank {link.target}",
            f"{link.latency * 1e3:.3f} ms",
            f"{link.rate / 1e9:.3f} GB/s",
        )
        for link in links
    ]
    print()
    print_table(output_console(), _COLUMNS, rows)


def link_record(
    hosts: Sequence[str], interfaces: Sequence["Interface"], links: Sequence["LinkRate"]
) -> dict[str, Any]:
    """Returns machines and links as a JSON object, with seconds and bytes per second."""
    return {
        "backend": BACKEND,
        "ranks": [
            {"host": host, "interface": own.name, "address": own.address, "mtu": own.mtu}
            for host, own in zip(hosts, interfaces, strict=True)
        ],
        "links": [
            {
                "from": link.source,
                "to": link.target,
                "latency_seconds": link.latency,
                "bytes_per_second": link.rate,
            }
            for link in links
        ],
    }
