"""Simulates all slot policies on a recorded trace, and writes a table and a JSON file.

Hit rates and loads are those of the entire trace, starting with empty slots, by residency. slru is
shown with and without admission, the learned policies with fixed slots and with slots that move
between layers. The last column is the cost of the decisions in microseconds per token, on one
thread of this machine.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from sharpi.experts.simulation.simulate import SIMULATED, Simulation, simulate
from sharpi.experts.trace.trace import Trace, read_trace

Row = dict[str, Any]


def main() -> None:
    """Parses the command line, replays the trace and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--residency", default="25,31,38,50", help="percent of the experts")
    parser.add_argument("--tokens", type=int, help="only the first tokens")
    parser.add_argument("--load-budget", type=float, help="learned: expert loads per token")
    parser.add_argument("--output", type=Path, default=Path("cache_policies"), help="folder")
    options = parser.parse_args()
    trace = read_trace(options.trace)
    trace = trace.first(options.tokens or trace.num_tokens)
    slots = [round(float(part) / 100 * trace.num_experts) for part in options.residency.split(",")]
    rows = measure(trace, slots, Simulation(load_budget=options.load_budget))
    print_table(trace, rows, slots)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "cache_policies.json").write_text(json.dumps(rows, indent=2) + "\n")


def measure(trace: Trace, slots: list[int], plain: Simulation) -> list[Row]:
    """Returns a row for each variant and number of slots, in the order of the table.

    `plain`: the settings of the simulations.
    """
    rows = []
    for name, policy, simulation in variants(plain):
        for number in slots:
            row = simulate(trace, policy, number, simulation)
            rows.append({"variant": name} | asdict(row))
    return rows


def variants(plain: Simulation) -> list[tuple[str, str, Simulation]]:
    """Returns (name, policy, settings) of each row's variant, in the order of the table.

    The variants are all policies with the settings `plain`, slru with admission, and the learned
    policies with moving slots.
    """
    moving = replace(plain, moving_slots=True)
    return [
        *((name, name, plain) for name in SIMULATED),
        ("slru + admission", "slru", replace(plain, admission=True)),
        *((f"{name}, moving slots", name, moving) for name in SIMULATED if "learned" in name),
    ]


def print_table(trace: Trace, rows: list[Row], slots: list[int]) -> None:
    """Prints hit rates in percent and loads per token, with a column for each number of slots."""
    print(
        f"{trace.num_tokens} tokens, {trace.num_layers} layers, {trace.num_experts} experts,"
        f" {trace.experts_per_token} per token"
    )
    heads = "".join(f"{f'{number}/{trace.num_experts}':>16}" for number in slots)
    print(f"{'hits % (loads per token)':32}{heads}{'us/token':>10}")
    for begin in range(0, len(rows), len(slots)):
        group = rows[begin : begin + len(slots)]
        cells = "".join(f"{_cell(row):>16}" for row in group)
        cost = sum(row["microseconds_per_token"] for row in group) / len(group)
        print(f"{group[0]['variant']:32}{cells}{cost:>10.1f}")


def _cell(row: Row) -> str:
    return f"{100 * row['hit_rate']:.1f} ({row['loads_per_token']:.1f})"


if __name__ == "__main__":
    main()
