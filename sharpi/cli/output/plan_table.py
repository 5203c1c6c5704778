"""Prints plans: for one machine, and for several with the links between them."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from sharpi.cli.output.tables import left, output_console, print_table, right
from sharpi.cli.output.terminal import fitted
from sharpi.tiers.plan import GpuPlace, LayerPlan, PlanLine, SlotStatus, Tier, TierPlan
from sharpi.units import format_bytes, parse_size

if TYPE_CHECKING:
    from sharpi.cluster.link_rate import LinkRate
    from sharpi.cluster.rendezvous import Interface
    from sharpi.engine.cluster.hosts_file import Host
    from sharpi.tiers.layer_division import Division


_LABEL_WIDTH = 9
_VRAM_SLOTS = "VRAM slots"
_WHY = left("why", rank=1, wraps_at=24)
_LINE_COLUMNS = (*left("tier", "what"), *right("size"), *_WHY)
_LAYER_COLUMNS = (
    *left("layers", wraps_at=14),
    *left("dense"),
    *right("size", rank=3),
    *right("KV", rank=2),
    *right("experts"),
    *right("each", rank=4),
    *right(_VRAM_SLOTS, "RAM slots"),
    *right("recommended", rank=5),
    *left("status"),
    *_WHY,
)


def print_plan(path: Path, plan: TierPlan) -> None:
    """Prints the plan to stdout; equal layers share a row."""
    console = output_console()
    for text in _head(path, plan):
        print(fitted(text, sys.stdout, _LABEL_WIDTH))
    print_table(console, _LINE_COLUMNS, map(_line_cells, plan.lines))
    has_gpu = plan.vram_budget > 0
    columns = [each for each in _LAYER_COLUMNS if has_gpu or each.heading != _VRAM_SLOTS]
    rows = [tuple(_row(layers, has_gpu=has_gpu)) for layers in _alike(plan.layers)]
    print_table(console, columns, rows)
    speed = _speed(plan) if plan.fits else ()
    for text in (*speed, *(f"note     {note}" for note in plan.notes)):
        print(fitted(text, sys.stdout, _LABEL_WIDTH))


def _head(path: Path, plan: TierPlan) -> Iterator[str]:
    yield f"model    {path}"
    yield f"context  {plan.context_size} tokens"
    for tier, budget in ((Tier.VRAM, plan.vram_budget), (Tier.RAM, plan.ram_budget)):
        if budget:
            yield f"{tier.name:8} {format_bytes(plan.bytes_in(tier))} of {format_bytes(budget)}"
    if len(plan.gpus) > 1:
        yield from (f"GPU {each.gpu:<4} {_of_gpu(each)}" for each in plan.gpus)
    yield f"slots    {_status(plan)}"


def _of_gpu(place: GpuPlace) -> str:
    used, budget = format_bytes(place.num_bytes), format_bytes(place.budget)
    noun = "layer" if len(place.layers) == 1 else "layers"
    return f"{noun} {ranges(place.layers)}, {used} of {budget}"


def _status(plan: TierPlan) -> str:
    if plan.status is SlotStatus.BELOW_RECOMMENDED:
        return f"fewer than recommended: {100 * plan.ratio:.0f} % of that number"
    if plan.status is SlotStatus.EMPTY:
        return "none, as the model has no routed experts"
    return plan.status.value


def _line_cells(line: PlanLine) -> tuple[str, ...]:
    purpose = line.purpose.name.lower().replace("_", " ")
    return line.tier.value, purpose, format_bytes(line.num_bytes), line.reason


def _alike(layers: Iterable[LayerPlan]) -> Iterable[list[LayerPlan]]:
    """Groups layers that differ only in their index; groups are in order of their first layer."""
    groups: dict[LayerPlan, list[LayerPlan]] = {}
    for layer in layers:
        groups.setdefault(replace(layer, index=0), []).append(layer)
    return groups.values()


def ranges(indices: Iterable[int]) -> str:
    """Returns numbers as ranges: `0-3, 5`, or `3-11 by 2` if all are the same distance apart."""
    numbers = list(indices)
    steps = {second - first for first, second in pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}-{numbers[-1]} by {steps.pop()}"
    runs: list[list[int]] = []
    for index in numbers:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _row(layers: list[LayerPlan], *, has_gpu: bool) -> Iterator[str]:
    first = layers[0]
    yield ranges(layer.index for layer in layers)
    yield from (
        first.dense_weights.value,
        format_bytes(first.dense_weights_bytes),
        format_bytes(first.kv_bytes),
    )
    yield "none" if first.experts is None else f"{first.num_experts} {first.experts.value}"
    yield "unknown" if first.expert_bytes is None else format_bytes(first.expert_bytes)
    if has_gpu:
        yield str(first.vram_slots)
    yield from map(str, (first.ram_slots, first.recommended_slots))
    yield first.status.value.replace("-", " ")
    yield first.reason


def _hits(plan: TierPlan) -> str:
    """Returns a sentence with the expected hit rate of experts."""
    has_gpu = plan.first_gpu_layer < len(plan.layers)
    found = f"{100 * plan.speed.hit_rate:.0f} % of a token's experts are found in"
    about = "" if plan.speed.is_hit_rate_known else "about "
    return f"{about}{found} {'VRAM' if has_gpu else 'RAM'}"


def _speed(plan: TierPlan) -> Iterator[str]:
    speed = plan.speed
    read = ", ".join(f"{format_bytes(n)} {source}" for source, n in speed.bytes_per_token.items())
    yield (
        f"decode   {speed.least_tokens_per_second:.1f} to {speed.tokens_per_second:.1f}"
        f" tokens/s, bound by {speed.bound}; per token: {read}"
    )
    if plan.status is not SlotStatus.EMPTY:
        yield f"hits     {_hits(plan)}"
    yield from (f"assumed  {assumption}" for assumption in speed.assumptions)


_DIVISION_COLUMNS = (
    *right("rank"),
    *left("machine", "layers"),
    *right("needs", "has", "ms/token"),
)


def print_division(
    path: Path, division: "Division", hosts: Sequence["Host"], loans: Sequence[str] = ()
) -> None:
    """Prints a table of machines with their layers, then speed, missing RAM and lent experts."""
    record = division_record(path, division, hosts, loans)
    rows = [
        (
            str(rank),
            each["host"],
            _layers_of(each),
            format_bytes(each["num_bytes"]),
            _memory_of(host),
            f"{each['seconds_per_token'] * 1e3:.1f}",
        )
        for rank, (each, host) in enumerate(zip(record["ranks"], hosts, strict=True))
    ]
    print(f"model    {path}\n")
    print_table(output_console(), _DIVISION_COLUMNS, rows)
    one, full = record["tokens_per_second"], record["tokens_per_second_of_all"]
    count = sum(not host.only_lends for host in hosts)
    print(f"\nspeed    at most {one:.1f} tokens/s of one sequence, {full:.1f} of {count} or more")
    if division.overflow:
        print(f"missing  {format_bytes(division.overflow)} of RAM: experts are read from disk")
    for line in loans:
        print(fitted(f"lends    {line}", sys.stdout, 9))


def _layers_of(rank: dict[str, Any]) -> str:
    first, end = rank["first_layer"], rank["end_layer"]
    return f"{first} to {end - 1}" if end > first else "none: it lends"


def _memory_of(host: "Host") -> str:
    machine = host.machine()
    vram = f" + {format_bytes(parse_size(host.vram))} VRAM" if machine.vram else ""
    return f"{format_bytes(machine.ram)}{vram}"


def division_record(
    path: Path, division: "Division", hosts: Sequence["Host"], loans: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the division among machines, and the experts that they lend, as a JSON object."""
    from sharpi.engine.cluster.hosts_file import rates

    one, full = rates(division, list(hosts))
    ranks = zip(hosts, division.layers, division.rank_bytes, division.stage_seconds, strict=True)
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
                "num_bytes": num_bytes,
                "seconds_per_token": seconds,
            }
            for host, (first, end), num_bytes, seconds in ranks
        ],
    }


BACKEND = "gloo"


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
    print_table(output_console(), (*left("from", "to"), *right("8 KB", "bandwidth")), rows)


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
