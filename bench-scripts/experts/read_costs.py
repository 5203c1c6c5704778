"""Measures the cost of a read for which a token waits, and of a read in the background.

The first cost is the disk's time per byte. For the second, a model decodes while another process
reads its file past the page cache at a given rate, four reads at a time. The cost is the increase
of a token's time, divided by the bytes read. Rounds alternate with and without reads. The model has
to fit into memory. The ratio of the costs is the number of prefetches that are worth one saved miss
(kLoadsForMiss in kernels/cpu/experts/policy/learned.cpp).
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from contest.token_ids import token_ids
from memory.direct_reads import direct_bytes_per_second

from sharpi.config import RunConfig
from sharpi.engine.loader import load_engine
from sharpi.engine.sequence import Sequence
from sharpi.gguf.reader import open_gguf
from sharpi.system.direct_read import open_direct
from sharpi.system.huge_pages import huge_pages
from sharpi.units import parse_size

_READ, _IN_FLIGHT = 1 << 20, 4
_WARM_UP = 150  # tokens


def main() -> None:
    """Parses the command line, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rate", type=parse_size, default=10**9, help="bytes per second")
    parser.add_argument("--tokens", type=int, default=50, help="of a turn")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--reader", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        read_until_told(options.model, options.rate)
    else:
        measure(options)


def measure(options: argparse.Namespace) -> None:
    """Measures and prints both costs in nanoseconds per byte, and their ratio."""
    late = 1e9 / direct_bytes_per_second(options.model, 1.0)
    number = _WARM_UP + 2 * options.rounds * options.tokens
    with open_gguf(options.model) as file:
        ids = iter(token_ids(file, number, None))
    costs = []
    with load_engine(RunConfig(options.model, context_size=(number + 255) // 256 * 256)) as engine:
        sequence = Sequence(engine.runner)
        decode(sequence, ids, _WARM_UP)
        for _ in range(options.rounds):
            alone = decode(sequence, ids, options.tokens)
            beside, num_bytes = decode_beside_reads(sequence, ids, options)
            costs.append(1e9 * (beside - alone) / num_bytes)
            print(f"{1e3 * alone:.2f} ms a token, {1e3 * beside:.2f} beside reads of"
                  f" {num_bytes / 1e6:.1f} MB: {costs[-1]:.3f} ns a byte")  # fmt: skip
    cost = statistics.median(costs)
    print(f"a byte that is waited for: {late:.3f} ns, {late / cost:.1f} times that")


def decode(sequence: Sequence, ids: Iterator[int], tokens: int) -> float:
    """Decodes `tokens` tokens and returns the mean seconds per token."""
    begin = time.perf_counter()
    for _ in range(tokens):
        sequence.extend([next(ids)])
    return (time.perf_counter() - begin) / tokens


def decode_beside_reads(
    sequence: Sequence, ids: Iterator[int], options: argparse.Namespace
) -> tuple[float, float]:
    """Decodes while another process reads; returns the mean seconds and bytes read per token."""
    command = [sys.executable, __file__, options.model, "--rate", str(options.rate), "--reader"]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as reader:
        read_so_far(reader)
        time.sleep(0.1)
        before = read_so_far(reader)
        seconds = decode(sequence, ids, options.tokens)
        num_bytes = read_so_far(reader) - before
        reader.kill()
    return seconds, num_bytes / options.tokens


def read_so_far(reader: "subprocess.Popen[str]") -> int:
    """Requests the number of bytes that the reader process has read so far."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    print(file=reader.stdin, flush=True)
    return int(reader.stdout.readline())


def read_until_told(path: Path, rate: int) -> None:
    """Runs the reader process, which reads at random offsets at `rate` bytes per second.

    It prints the bytes read so far for each line of its stdin, and ends with the stdin.
    """
    num_reads = [0] * _IN_FLIGHT
    for index in range(_IN_FLIGHT):
        threading.Thread(
            target=keep_reading, args=(path, rate, index, num_reads), daemon=True
        ).start()
    for _ in sys.stdin:
        print(sum(num_reads) * _READ, flush=True)


def keep_reading(path: Path, rate: int, index: int, num_reads: list[int]) -> None:
    """Reads at random offsets without end, as one of several threads that share `rate`.

    `num_reads[index]`: the number of reads of this thread.
    """
    blocks = path.stat().st_size // _READ
    begin = time.perf_counter()
    file, _ = open_direct(path)
    with huge_pages(_READ) as memory:
        while True:
            due = begin + num_reads[index] * _READ * _IN_FLIGHT / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            os.preadv(file, [memory], random.randrange(blocks) * _READ)
            num_reads[index] += 1


if __name__ == "__main__":
    main()
