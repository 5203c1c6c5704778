"""Prints expert stats: the summary, a table of layers and a heat map."""

from collections.abc import Iterator
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from sharpi.cli.output.tables import Column, output_console, print_table
from sharpi.cli.output.terminal import fitted
from sharpi.experts.stats.counts import LayerStats
from sharpi.experts.stats.heat_map import HOTTEST, fold, heats
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_text import percent, summary_lines, tier_lines
from sharpi.units import format_bytes

_SHADES = " .:-=+*#%@"  # for output without colours
_COLOURS = (16, 17, 54, 90, 126, 162, 197, 202, 208, 220)  # from black over red to yellow
_LABEL_WIDTH = 6
_SUMMARY_LABEL_WIDTH = 12
_COLUMNS = (
    Column("layer", is_right=True),
    Column("slots", is_right=True),
    Column("accesses", is_right=True),
    Column("hits", is_right=True),
    Column("in prompts", is_right=True, rank=4),
    Column("in decode", is_right=True, rank=4),
    Column("late", is_right=True, rank=3),
    Column("loads", is_right=True),
    Column("computed", is_right=True, rank=3),
    Column("read", is_right=True, rank=2),
    Column("stalled", is_right=True),
    Column("top experts", rank=1, wraps_at=24),
    Column("pinned", rank=5, wraps_at=12),
)


def print_stats(stats: ExpertStats, stream: TextIO) -> None:
    """Prints all expert stats to `stream`, in colours if it is a terminal with colours."""
    console = output_console(stream)
    for line in summary_lines(stats):
        print(fitted(line, stream, _SUMMARY_LABEL_WIDTH), file=stream)
    if not stats.layers:
        return
    console.print()
    print_table(console, _COLUMNS, map(_cells, stats.layers))
    console.print()
    for row in _heat_rows(stats, console.width, coloured=console.color_system is not None):
        console.print(row, soft_wrap=True)
    if stats.below is not None:
        console.print()
        for line in tier_lines(stats.below):
            print(fitted(line, stream, _SUMMARY_LABEL_WIDTH), file=stream)
        console.print()
        print_table(console, _COLUMNS, map(_cells, stats.below.layers))


def _cells(layer: LayerStats) -> tuple[str, ...]:
    total = layer.total
    if not total.accesses:
        return (str(layer.layer), str(layer.num_slots), "none")
    return (
        str(layer.layer),
        str(layer.num_slots),
        str(total.accesses),
        percent(total.hit_count.rate),
        percent(layer.prompt.hit_count.rate),
        percent(layer.decode.hit_count.rate),
        str(total.late),
        str(total.loads),
        str(total.computed),
        format_bytes(layer.bytes_read),
        f"{total.stall_seconds:.3f} s",
        " ".join(f"{each.expert} ({100 * each.share:.0f} %)" for each in layer.top()),
        " ".join(map(str, layer.pinned)),
    )


def _heat_rows(stats: ExpertStats, width: int, *, coloured: bool) -> Iterator[Text]:
    folded, together = fold(heats(stats), max(1, width - _LABEL_WIDTH - 1))
    columns = "a column is an expert" if together == 1 else f"a column is {together} experts"
    legend = Text.assemble("from never ", *_legend(coloured), f" to {HOTTEST:g} even shares")
    uses = Text(f"uses: {columns}, ")
    yield from [uses + legend] if len(uses) + len(legend) <= width else [uses, legend]
    for layer, values in zip(stats.layers, folded, strict=True):
        label = f"{layer.layer:>{_LABEL_WIDTH}} "
        if not layer.total.accesses:
            yield Text(f"{label}no accesses")
        else:
            yield Text.assemble(label, *_heat_cells(values, coloured))


def _legend(coloured: bool) -> list[tuple[str, str]]:
    return _heat_cells(np.linspace(0, HOTTEST, len(_SHADES)), coloured)


def _heat_cells(values: NDArray[np.float64], coloured: bool) -> list[tuple[str, str]]:
    last = len(_SHADES) - 1
    levels = np.ceil(np.clip(values / HOTTEST, 0, 1) * last).astype(int)
    if coloured:
        return [(" ", f"on color({_COLOURS[level]})") for level in levels]
    return [(_SHADES[level], "") for level in levels]
