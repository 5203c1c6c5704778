"""Prints expert stats: the summary, a table of layers and a heat map."""

from collections.abc import Iterator
from typing import TextIO

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sharpi.experts.stats.heat_map import HOTTEST, fold, heats
from sharpi.experts.stats.stats import ExpertStats, LayerStats
from sharpi.experts.stats.stats_text import percent, summary_lines
from sharpi.units import format_bytes

_PIPED_WIDTH = 160
_SHADES = " .:-=+*#%@"  # for output without colours
_COLOURS = (16, 17, 54, 90, 126, 162, 197, 202, 208, 220)  # from black over red to yellow
_LABEL_WIDTH = 6
_COLUMNS = (
    "layer", "slots", "accesses", "hits", "late", "loads", "read", "stalled", "top experts",
    "pinned",
)  # fmt: skip


def print_stats(stats: ExpertStats, stream: TextIO) -> None:
    """Prints all stats to `stream`, in colours if it is a terminal that has them."""
    console = Console(file=stream, highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(file=stream, highlight=False, markup=False, width=_PIPED_WIDTH)
    for line in summary_lines(stats):
        console.print(line, soft_wrap=True)
    if not stats.layers:
        return
    console.print()
    console.print(_table(stats))
    console.print()
    for row in _heat_rows(stats, console.width, coloured=console.color_system is not None):
        console.print(row, soft_wrap=True)


def _table(stats: ExpertStats) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in _COLUMNS[-2:] else "right")
    for layer in stats.layers:
        table.add_row(*_cells(layer))
    return table


def _cells(layer: LayerStats) -> tuple[str, ...]:
    if not layer.accesses:
        return (str(layer.layer), str(layer.num_slots), "none")
    return (
        str(layer.layer),
        str(layer.num_slots),
        str(layer.accesses),
        percent(layer.hit_count.rate),
        str(layer.late),
        str(layer.loads),
        format_bytes(layer.bytes_read),
        f"{layer.stall_seconds:.3f} s",
        " ".join(f"{each.expert} ({100 * each.share:.0f} %)" for each in layer.top()),
        " ".join(map(str, layer.pinned)),
    )


def _heat_rows(stats: ExpertStats, width: int, *, coloured: bool) -> Iterator[Text]:
    folded, together = fold(heats(stats), max(1, width - _LABEL_WIDTH - 1))
    columns = "a column is an expert" if together == 1 else f"a column is {together} experts"
    yield Text.assemble(
        f"uses: {columns}, from never", " ", *_legend(coloured), f" to {HOTTEST:g} even shares"
    )
    for layer, values in zip(stats.layers, folded, strict=True):
        label = f"{layer.layer:>{_LABEL_WIDTH}} "
        if not layer.accesses:
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
