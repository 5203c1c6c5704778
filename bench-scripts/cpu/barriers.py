"""Simulates what the barriers of a decoded token cost on processors with many cores.

The barriers of a token are counted in the model's recorded program. The time to move a cache line
from one core to another is measured on this machine, unless `--near` and `--far` are given. A
barrier is then simulated write by write, with one counter for all threads, and with the thread
pool's groups of eight threads. Threads arrive within `--spread` microseconds; 0 is the worst case,
in which all of them write at once. Costs are shown relative to the time to read a token's bytes.

    python bench-scripts/cpu/barriers.py model.gguf
    python bench-scripts/cpu/barriers.py model.gguf --read-rates 64=400,32=200 --near 40 --far 120
"""

import argparse
import statistics
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sharpi.config import RunConfig
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.engine.settings import active_bytes
from sharpi.hardware.thread_places import GROUP_THREADS
from sharpi.ops.cpu.machine_limits import line_transfer_seconds

Seconds = npt.NDArray[np.float64]

# GB/s of machines with so many cores: a laptop, a desktop, a workstation, a server.
READ_RATES = {8: 60.0, 16: 90.0, 32: 200.0, 64: 400.0}
FAR_FACTOR = 2.5  # a line from another cache takes longer than one from the same
OVERLAP = 0.25  # of a transfer, which each further reader of one line adds
TRIES = 400


def counted(arrivals: Seconds, transfer: float) -> float:
    """Returns the time at which all threads have incremented a shared counter.

    `arrivals`: the times at which the threads arrive. `transfer`: the seconds in which a cache line
    moves to another core, as each increment requires.
    """
    done = 0.0
    for arrival in np.sort(arrivals):
        done = max(done, float(arrival)) + transfer
    return done


def released(readers: int, transfer: float) -> float:
    """Returns the seconds until all readers have seen a changed word, over one cache line."""
    return transfer * (1 + OVERLAP * max(0, readers - 1))


def one_counter(arrivals: Seconds, near: float, far: float) -> float:
    """Returns the seconds from the last arrival until all threads are released, with one counter.

    `near`, `far`: the seconds of a cache line transfer within and between groups of cores.
    """
    transfer = near if len(arrivals) <= GROUP_THREADS else far
    end = counted(arrivals, transfer) + released(len(arrivals) - 1, transfer)
    return end - float(arrivals.max())


def groups(arrivals: Seconds, near: float, far: float) -> float:
    """Returns the seconds from the last arrival until all threads are released, with groups.

    As in the thread pool, threads of a group share a counter, and groups share another one.
    """
    parts = np.array_split(arrivals, -(-len(arrivals) // GROUP_THREADS))
    if len(parts) == 1:
        return one_counter(arrivals, near, far)
    up = counted(np.array([counted(part, near) for part in parts]), far)
    return up + far + released(len(parts[0]) - 1, near) - float(arrivals.max())


def barrier_seconds(threads: int, spread: float, near: float, far: float) -> tuple[float, float]:
    """Returns the mean seconds of a barrier with one counter, and of one with groups.

    `spread`: the seconds within which the threads arrive.
    """
    rng = np.random.default_rng(threads)
    tries = [rng.uniform(0, spread, threads) for _ in range(TRIES)]
    return (
        statistics.mean(one_counter(arrivals, near, far) for arrivals in tries),
        statistics.mean(groups(arrivals, near, far) for arrivals in tries),
    )


def count_barriers(path: Path) -> tuple[int, int]:
    """Returns the number of barriers and of weight bytes of one decoded token."""
    with load_engine(RunConfig(model=path, num_threads=2, context_size=64)) as engine:
        sequence = Sequence(engine.runner)
        sequence.extend([1, 2, 3])
        sequence.extend([4])
        barriers = sum(part.count_barriers() for part in engine.runner.parts)
        return barriers, active_bytes(engine.file, engine.model_config)


def main() -> None:
    """Parses the command line and prints the costs of barriers by number of threads."""
    arguments = _arguments()
    near = arguments.near or 1e9 * line_transfer_seconds()
    far = arguments.far or FAR_FACTOR * near
    barriers, num_bytes = count_barriers(arguments.model)
    num_bytes = int(arguments.token_gb * 1e9) if arguments.token_gb else num_bytes
    print(
        f"{barriers} barriers and {num_bytes / 1e9:.3f} GB per token; a cache line takes"
        f" {near:.0f} ns within a group, {far:.0f} ns between groups"
    )
    print(f"{'threads':>8}{'GB/s':>8}{'token ms':>10}{'one counter':>16}{'groups of 8':>16}")
    for threads, rate in sorted(arguments.read_rates.items()):
        token = num_bytes / (rate * 1e9)
        costs = barrier_seconds(threads, arguments.spread * 1e-6, near * 1e-9, far * 1e-9)
        columns = "".join(f"{100 * barriers * cost / token:>14.1f} %" for cost in costs)
        print(f"{threads:>8}{rate:>8.0f}{1e3 * token:>10.2f}{columns}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("model", type=Path)
    add("--near", type=float, help="ns of a line in a group (measured here)")
    add("--far", type=float, help=f"ns between groups ({FAR_FACTOR} x near)")
    add("--spread", type=float, default=2.0, help="us between the first and last arrival (2)")
    add("--read-rates", type=_rates, default=READ_RATES, metavar="THREADS=GB/S,...")
    add("--token-gb", type=float, help="GB that a token reads (the model's)")
    return parser.parse_args()


def _rates(text: str) -> dict[int, float]:
    pairs = (part.split("=") for part in text.split(","))
    return {int(threads): float(rate) for threads, rate in pairs}


if __name__ == "__main__":
    main()
