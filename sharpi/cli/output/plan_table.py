"""Prints a TierPlan: budgets, what fills them, the layers in ranges, and the speed."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from sharpi.tiers.plan import LayerPlan, SlotStatus, Tier, TierPlan
from sharpi.units import format_bytes

_PIPED_WIDTH = 160


def print_plan(path: Path, plan: TierPlan) -> None:
    """Prints the plan to stdout; equal layers share a row."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=_PIPED_WIDTH)
    for text in _head(path, plan):
        console.print(text, soft_wrap=True)
    console.print(_lines(plan))
    console.print(_layers(plan))
    speed = _speed(plan) if plan.fits else ()
    for text in (*speed, *(f"note     {note}" for note in plan.notes)):
        console.print(text, soft_wrap=True)


def _head(path: Path, plan: TierPlan) -> Iterator[str]:
    yield f"model    {path}"
    yield f"context  {plan.context_size} tokens"
    for tier, budget in ((Tier.VRAM, plan.vram_budget), (Tier.RAM, plan.ram_budget)):
        if budget:
            yield f"{tier.name:8} {format_bytes(plan.bytes_in(tier))} of {format_bytes(budget)}"
    yield f"slots    {_status(plan)}"


def _status(plan: TierPlan) -> str:
    if plan.status is SlotStatus.BELOW_RECOMMENDED:
        return f"{plan.status.value}: {plan.ratio:.2f} of the recommended number"
    return plan.status.value


def _lines(plan: TierPlan) -> Table:
    table = _table("tier", "what", "size", "why", right=("size",))
    for line in plan.lines:
        table.add_row(
            line.tier.value, line.purpose.value, format_bytes(line.num_bytes), line.reason
        )
    return table


def _layers(plan: TierPlan) -> Table:
    columns = (
        "dense weights",
        "size",
        "KV",
        "experts",
        "each",
        "VRAM slots",
        "RAM slots",
        "recommended",
    )
    table = _table("layers", *columns, "status", "why", right=columns)
    for layers in _alike(plan.layers):
        table.add_row(*_row(layers))
    return table


def _alike(layers: Iterable[LayerPlan]) -> Iterable[list[LayerPlan]]:
    """Groups layers that differ only in their index, in order of the first of each group."""
    groups: dict[LayerPlan, list[LayerPlan]] = {}
    for layer in layers:
        groups.setdefault(replace(layer, index=0), []).append(layer)
    return groups.values()


def _ranges(indices: Iterable[int]) -> str:
    """Returns numbers as ranges: `0-3, 5`."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _row(layers: list[LayerPlan]) -> Iterator[str]:
    first = layers[0]
    yield _ranges(layer.index for layer in layers)
    yield from (
        first.dense_weights.value,
        format_bytes(first.dense_weights_bytes),
        format_bytes(first.kv_bytes),
    )
    yield "none" if first.experts is None else f"{first.num_experts} {first.experts.value}"
    yield "unknown" if first.expert_bytes is None else format_bytes(first.expert_bytes)
    yield from map(str, (first.vram_slots, first.ram_slots, first.recommended_slots))
    yield first.status.value
    yield first.reason


def _speed(plan: TierPlan) -> Iterator[str]:
    speed = plan.speed
    read = ", ".join(f"{format_bytes(n)} {source}" for source, n in speed.bytes_per_token.items())
    yield (
        f"decode   at most {speed.tokens_per_second:.1f} tokens/s, bound by {speed.bound};"
        f" per token: {read}; {100 * speed.hit_rate:.0f} % of its experts found in the fastest tier"
    )
    yield from (f"assumed  {assumption}" for assumption in speed.assumptions)


def _table(*columns: str, right: Iterable[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table
