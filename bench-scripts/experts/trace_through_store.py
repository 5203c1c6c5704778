"""Replays a recorded trace through the running expert store and compares it with the simulator.

Experts are random bytes in a temporary file, which are read past the page cache into slots as in
the engine; pauses replace computing. An expert that is in flight when its layer needs it counts as
a miss. By default, an expert's size is chosen so that reading the loads in --load-budget takes the
disk --disk-share of a token's computing time. Reads of missed experts take further time.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from experts.random_experts import round_expert_bytes, write_experts, write_random
from experts.store_replay import Pace, replay
from experts.store_replay_report import (
    HEADING,
    ReplayRow,
    replay_line,
    replay_record,
    replay_row,
)
from memory.direct_reads import direct_bytes_per_second

from sharpi.errors import SharpiError
from sharpi.experts.native.store_layout import StoreLayout
from sharpi.experts.simulation.simulate import Simulation, policy_settings, simulate
from sharpi.experts.trace.trace import Trace, read_trace
from sharpi.units import parse_size

_ADMISSION = " + admission"
_POLICIES = f"slru,slru{_ADMISSION},learned-keep,learned-token-end,learned"
_PROBE_BYTES, _PROBE_SECONDS = 256 << 20, 1.0


def main() -> None:
    """Parses the command line, replays the trace, prints the rows and writes the JSON file."""
    options = parse_options()
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            rows = list(measure(options, Path(folder) / "experts"))
    except (SharpiError, OSError) as error:
        print(f"trace_through_store.py: {error}", file=sys.stderr)
        sys.exit(1)
    if options.json is not None:
        options.json.write_text(json.dumps([replay_record(row) for row in rows], indent=2) + "\n")


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--tokens", type=int, default=2000, help="the first ones")
    parser.add_argument("--slots", default="8,10,12,16", help="of each layer")
    parser.add_argument("--policies", default=_POLICIES, help="names, a comma between them")
    parser.add_argument("--load-budget", type=float, default=10, help="expert loads per token")
    parser.add_argument("--layer-ms", type=float, default=0.3, help="of computing")
    parser.add_argument("--output-ms", type=float, help="after the last layer; else 4 layers'")
    parser.add_argument("--disk-share", type=float, default=0.5, help="of it, for those loads")
    parser.add_argument("--expert-bytes", type=parse_size, help="such as 512KiB")
    parser.add_argument("--folder", type=Path, help="on the disk to read from; else a temporary")
    parser.add_argument("--json", type=Path, help="file for all figures")
    return parser.parse_args()


def measure(options: argparse.Namespace, path: Path) -> Iterator[ReplayRow]:
    """Yields a row for each policy and number of slots, and prints it."""
    trace = read_trace(options.trace).first(options.tokens)
    pace = chosen_pace(options)
    layout = make_layout(options, trace, pace, path)
    print(HEADING)
    for policy in options.policies.split(","):
        for slots in map(int, options.slots.split(",")):
            row = measure_policy(trace, policy, slots, options.load_budget, layout, pace)
            print(replay_line(row), flush=True)
            yield row


def chosen_pace(options: argparse.Namespace) -> Pace:
    """Returns the pauses; by default, the output's pause is as long as that of 4 layers.

    GPT-OSS-20B's output matrix has at least as many bytes as 4 layers read.
    """
    layer = options.layer_ms / 1e3
    return Pace(layer, 4 * layer if options.output_ms is None else options.output_ms / 1e3)


def make_layout(options: argparse.Namespace, trace: Trace, pace: Pace, path: Path) -> StoreLayout:
    """Measures the disk's rate, chooses the experts' size, and writes the file of experts.

    Also prints the loads per token that the disk can read.
    """
    write_random(path, _PROBE_BYTES)
    disk = direct_bytes_per_second(path, _PROBE_SECONDS)
    seconds = pace.token_seconds(trace.num_layers)
    fitting = options.disk_share * seconds * disk / options.load_budget
    expert_bytes = round_expert_bytes(options.expert_bytes or fitting)
    print(
        f"{trace.num_tokens} tokens, {trace.num_layers} layers, {trace.num_experts} experts of"
        f" {expert_bytes / 1024:.0f} KiB, {trace.experts_per_token} per token\n"
        f"{1e3 * seconds:.2f} ms of pauses per token; the disk gives {disk / 1e9:.2f} GB/s,"
        f" {disk * seconds / expert_bytes:.1f} experts in that time,"
        f" {options.load_budget:g} loads are the budget"
    )
    return write_experts(path, trace.num_layers, trace.num_experts, expert_bytes)


def measure_policy(
    trace: Trace, name: str, slots: int, budget: float, layout: StoreLayout, pace: Pace
) -> ReplayRow:
    """Replays and simulates the trace with one policy; raises UsageError for an unknown policy."""
    policy = name.removesuffix(_ADMISSION)
    simulation = Simulation(admission=name != policy, load_budget=budget)
    simulated = simulate(trace, policy, slots, simulation)
    settings = policy_settings(trace, policy, slots, simulation)
    replayed = replay(trace, settings, layout, pace)
    return replay_row(name, simulated, replayed, layout.layers[0].expert_bytes)


if __name__ == "__main__":
    main()
