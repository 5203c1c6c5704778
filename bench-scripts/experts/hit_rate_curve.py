"""Prints the hit rates that `sharpi plan` expects of the default policy, by resident share.

The trace is a file that `sharpi run --moe-trace` wrote, or an .npz file with `experts` (tokens,
layers, k) and `lengths` (tokens of each generation). The output is the content of `CURVE` in
sharpi/tiers/hit_rates.py.
"""

import argparse
from pathlib import Path

import numpy as np

from sharpi.experts.simulation.simulate import Simulation, simulate
from sharpi.experts.trace.trace import Trace, read_trace


def main() -> None:
    """Parses the command line, and replays the trace with each number of slots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--policy", default="learned-keep")
    parser.add_argument("--tokens", type=int, default=8000)
    options = parser.parse_args()
    trace = _read(options.trace).first(options.tokens)
    parts = (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28)  # of 32
    for slots in sorted({trace.num_experts * part // 32 for part in parts}):
        row = simulate(trace, options.policy, slots, Simulation())
        print(f"({slots / trace.num_experts:.3f}, {row.hit_rate:.3f}),", flush=True)


def _read(path: Path) -> Trace:
    with np.load(path) as arrays:
        if "experts" not in arrays:
            return read_trace(path)
        routes = arrays["experts"].astype(np.int32)
        return Trace(routes, arrays["lengths"].astype(np.int64), int(routes.max()) + 1)


if __name__ == "__main__":
    main()
