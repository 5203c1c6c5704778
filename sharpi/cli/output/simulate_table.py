"""Prints the tables of `sharpi simulate`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from sharpi.units import format_bytes

if TYPE_CHECKING:
    from sharpi.experts.simulation.predictor_replay import PredictorRow
    from sharpi.experts.simulation.simulate import SimulationRow
    from sharpi.experts.trace.trace import Trace

_PIPED_WIDTH = 160


def print_rows(trace: "Trace", rows: Sequence["SimulationRow"]) -> None:
    """Prints a row for each policy and number of slots; bytes if the trace has expert sizes."""
    knows_bytes = trace.expert_bytes is not None
    columns = ["hits %", "loads/token", "early", "of use", "reads/token", "us/token"]
    table = _table(["slots", "policy", *columns, *(["loaded/token"] * knows_bytes)])
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
        table.add_row(str(row.slots), name, *figures, *size)
    _print(trace, table)


def print_predictors(trace: "Trace", rows: Iterable["PredictorRow"]) -> None:
    """Prints a row for each predictor and number of predictions."""
    table = _table(["guesses", "predictor", "recall %", "precision %", "us/token"])
    for row in rows:
        shares = f"{100 * row.recall:.2f}", f"{100 * row.precision:.2f}"
        table.add_row(str(row.guesses), row.predictor, *shares, f"{row.microseconds_per_token:.1f}")
    _print(trace, table)


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        names = ("policy", "predictor")
        table.add_column(column, justify="left" if column in names else "right")
    return table


def _print(trace: "Trace", table: Table) -> None:
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=_PIPED_WIDTH)
    console.print(
        f"{trace.num_tokens} tokens in {len(trace.lengths)} texts{_prompts(trace)},"
        f" {trace.num_layers} layers,"
        f" {trace.num_experts} experts, {trace.experts_per_token} per token",
        soft_wrap=True,
    )
    console.print(table)


def _prompts(trace: "Trace") -> str:
    return "" if trace.prompts is None else f" after {len(trace.prompts.routes)} of prompts"
