"""Prints what was recorded of experts: stats with a heat map, and simulated caches."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from sharpi.cli.output.tables import Column, left, output_console, print_table, right
from sharpi.cli.output.terminal import fitted
from sharpi.experts.layer_stats import LayerStats
from sharpi.experts.stats.heat_map import HOTTEST, fold, heats
from sharpi.experts.stats.stats import ExpertStats
from sharpi.experts.stats.stats_text import percent, summary_lines, tier_lines
from sharpi.units import format_bytes, plural

if TYPE_CHECKING:
    from sharpi.experts.simulation.simulate import PredictorRow, SimulationRow
    from sharpi.experts.trace.trace import Trace


_SHADES = " .:-=+*#%@"  # for output without colours
_COLOURS = (16, 17, 54, 90, 126, 162, 197, 202, 208, 220)  # from black over red to yellow
_LABEL_WIDTH = 6
_SUMMARY_LABEL_WIDTH = 12
_COLUMNS = (
    *right("layer", "slots", "accesses", "hits"),
    *right("in prompts", "in decode", rank=4),
    *right("late", rank=3),
    *right("loads"),
    *right("computed", rank=3),
    *right("read", rank=2),
    *right("stalled"),
    *left("top experts", rank=1, wraps_at=24),
    *left("pinned", rank=5, wraps_at=12),
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


_SIMULATION_COLUMNS = (
    *right("slots"),
    *left("policy"),
    *right("hits %", "loads/token"),
    *right("early", rank=1),
    *right("of use", rank=2),
    *right("reads/token", rank=3),
    *right("us/token", rank=4),
)
_BYTES = right("loaded/token")
_AROUND_PIN = right("before pin %", "after pin %")
_PREDICTOR_COLUMNS = (
    *right("guesses"),
    *left("predictor"),
    *right("recall %", "precision %", "us/token"),
)


def print_rows(trace: "Trace", rows: Sequence["SimulationRow"]) -> None:
    """Prints hits, loads and known bytes of each policy and number of slots."""
    has_pin = any(row.lookups_before_pin is not None for row in rows)
    size = () if trace.expert_bytes is None else _BYTES
    columns = (*_SIMULATION_COLUMNS, *size, *(_AROUND_PIN if has_pin else ()))
    _print(trace, columns, list(_simulation_cells(rows, has_pin=has_pin)))


def _simulation_cells(
    rows: Iterable["SimulationRow"], *, has_pin: bool
) -> Iterator[tuple[str, ...]]:
    for row in rows:
        figures = (
            f"{100 * row.hit_rate:.2f}",
            f"{row.loads_per_token:.2f}",
            f"{row.early_loads_per_token:.2f}",
            f"{row.early_hits_per_token:.2f}",
            f"{row.reads_per_token:.2f}",
            f"{row.microseconds_per_token:.1f}",
        )
        name = row.policy + " + admission" * row.admission
        size = [] if row.bytes_per_token is None else [format_bytes(int(row.bytes_per_token))]
        around = (row.hit_rate_before_pin, row.hit_rate_after_pin) if has_pin else ()
        yield str(row.slots), name, *figures, *size, *map(_percent, around)


def print_pin_result(
    slots: int,
    with_pin: "Mapping[str, SimulationRow]",
    without: "Mapping[str, SimulationRow]",
    default: "SimulationRow",
) -> None:
    """Prints how pinned experts change each policy's hit rate, and compares the default policy."""
    differences = (
        f"{name} {100 * (row.hit_rate - without[name].hit_rate):+.2f}"
        for name, row in with_pin.items()
    )
    best = max(with_pin.values(), key=lambda row: row.hit_rate)
    result = "loses against" if best.hit_rate < default.hit_rate else "is no worse than"
    print(
        f"{slots} slots: points of hits by the warm pin: {', '.join(differences)}. The best with"
        f" it, {best.policy} ({100 * best.hit_rate:.2f} %), {result} the default policy,"
        f" {default.policy} without a pin ({100 * default.hit_rate:.2f} %)."
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def print_predictors(trace: "Trace", rows: Iterable["PredictorRow"]) -> None:
    """Prints recall and precision of each predictor, for each number of predicted experts."""
    cells = [
        (
            str(row.guesses),
            row.predictor,
            f"{100 * row.recall:.2f}",
            f"{100 * row.precision:.2f}",
            f"{row.microseconds_per_token:.1f}",
        )
        for row in rows
    ]
    _print(trace, _PREDICTOR_COLUMNS, cells)


def _print(trace: "Trace", columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    console = output_console()
    line = (
        f"{trace.num_tokens} tokens in {plural(len(trace.lengths), 'text')}{_prompts(trace)},"
        f" {trace.num_layers} layers,"
        f" {trace.num_experts} experts, {trace.experts_per_token} per token"
    )
    print(fitted(line, sys.stdout, 0))
    print_table(console, columns, rows)


def _prompts(trace: "Trace") -> str:
    return "" if trace.prompts is None else f" after {len(trace.prompts.routes)} of prompts"
