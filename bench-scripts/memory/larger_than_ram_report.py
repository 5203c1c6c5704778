"""Reports runs of larger_than_ram.py: ratios, windows of tokens, shares of the disk's rate."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from contest.vs_llama_cpp import Samples, result
from memory.cold_run import Run

WINDOW = 20  # tokens
Row = dict[str, Any]


def ratio_rows(runs: Sequence[Run]) -> list[Row]:
    """Returns a row for each test, as `result` of vs_llama_cpp.py makes it, in the runs' order.

    Tests that only one program has run are left out.
    """
    tests: dict[str, Samples] = {}
    for run in runs:
        tests.setdefault(run.test, {}).setdefault(run.contestant, []).append(run.tokens_per_second)
    return [result(name, samples) for name, samples in tests.items() if len(samples) > 1]


def window_rows(runs: Sequence[Run], size: int = WINDOW) -> list[Row]:
    """Returns a row for each complete window of `size` tokens of one test.

    Windows that only one program has run are left out.
    """
    windows: list[Samples] = []
    for run in runs:
        for index, speed in enumerate(window_speeds(run.timing.pass_seconds, size)):
            if index == len(windows):
                windows.append({})
            windows[index].setdefault(run.contestant, []).append(speed)
    return [
        result(f"  {index * size + 1} to {(index + 1) * size}", samples)
        for index, samples in enumerate(windows)
        if len(samples) > 1
    ]


def window_speeds(seconds: Sequence[float], size: int = WINDOW) -> list[float]:
    """Returns tokens per second in each complete window of `size` tokens.

    `seconds`: the seconds of each token.
    """
    begins = range(0, len(seconds) - size + 1, size)
    return [size / sum(seconds[begin : begin + size]) for begin in begins]


def median_speeds(runs: Sequence[Run]) -> list[float]:
    """Returns tokens per second in each window: the medians over one program's runs of a test."""
    rounds = (window_speeds(run.timing.pass_seconds) for run in runs)
    return [statistics.median(speeds) for speeds in zip(*rounds, strict=True)]


def read_rows(runs: Sequence[Run]) -> list[Row]:
    """Returns a row with the medians of reads and waiting, for each program and test.

    A value is None if it was not counted. `storage_bytes`: all bytes that the kernel read from
    storage for the process. The other counts are sharpi's, about experts only.
    """
    pairs = dict.fromkeys((run.test, run.contestant) for run in runs)
    return [
        _reads(*pair, [run for run in runs if (run.test, run.contestant) == pair]) for pair in pairs
    ]


def _reads(test: str, contestant: str, runs: Sequence[Run]) -> Row:
    shares = [share for run in runs if (share := disk_share(run)) is not None]
    names = ("storage_bytes", "read_bytes", "wasted_bytes", "stall_seconds")
    return {
        "test": test,
        "contestant": contestant,
        "tokens_per_second": statistics.median(run.tokens_per_second for run in runs),
        "windows": median_speeds(runs),
        "load_seconds": statistics.median(run.load_seconds for run in runs),
        **{f"{name}_per_token": _median(_per_token(run, name) for run in runs) for name in names},
        "hit_rate": _median(map(_hit_rate, runs)),
        "disk_share": _median(shares),
        "disk_share_min": min(shares, default=None),
        "disk_share_max": max(shares, default=None),
        "bound_share": _median(map(bound_share, runs)),
        "wait_share": _median(map(wait_share, runs)),
    }


def disk_share(run: Run) -> float | None:
    """Returns the minimal time to read the missed bytes, as a fraction of the run's time.

    Bytes that were prefetched and never used do not count. Returns None if reads were not counted.
    """
    counts = run.timing.counts
    if "read_bytes" not in counts:
        return None
    missed = counts["read_bytes"] - counts["wasted_bytes"]
    return missed / run.disk_bytes_per_second / run.timing.seconds


def bound_share(run: Run) -> float | None:
    """Returns the larger of the run's fractions of time for the disk and for computing.

    Neither can be shortened by more overlap. For the disk, this is `disk_share`; computing is the
    time without stalls. Returns None if reads were not counted.
    """
    share = disk_share(run)
    if share is None:
        return None
    return max(share, 1 - run.timing.counts["stall_seconds"] / run.timing.seconds)


def wait_share(run: Run) -> float | None:
    """Returns the missed bytes per second of waiting, as a fraction of the disk's rate.

    The fraction exceeds 1 if reads continue while hits are computed. Returns None without misses or
    waiting.
    """
    share = disk_share(run)
    waited = run.timing.counts.get("stall_seconds")
    return share * run.timing.seconds / waited if share and waited else None


def read_sentence(row: Row) -> str:
    """Formats a row of `read_rows` as text, without the values that were not counted."""
    lines = [f"{row['tokens_per_second']:.2f} tokens/s, ready after {row['load_seconds']:.1f} s"]
    if row["storage_bytes_per_token"] is not None:
        lines[0] += f", {_megabytes(row, 'storage')} a token from storage"
    if row["hit_rate"] is not None:
        lines.append(
            f"{100 * row['hit_rate']:.1f} % of the experts found; {_megabytes(row, 'read')} a token"
            f" read, {_megabytes(row, 'wasted')} of them in vain,"
            f" {1e3 * row['stall_seconds_per_token']:.1f} ms waited"
        )
        low, high = (100 * row[f"disk_share_{end}"] for end in ("min", "max"))
        if row["wait_share"] is not None:
            lines.append(
                f"misses came at {100 * row['wait_share']:.0f} % of the disk's rate for the time"
                " waited"
            )
        lines.append(
            f"{100 * row['disk_share']:.0f} % of what the disk allows ({low:.0f} to {high:.0f}),"
            f" {100 * row['bound_share']:.0f} % of what disk or computing allows"
        )
    return f"{row['test']}, {row['contestant']}: " + "\n    ".join(lines)


def _megabytes(row: Row, name: str) -> str:
    return f"{row[f'{name}_bytes_per_token'] / 1e6:.1f} MB"


def _per_token(run: Run, name: str) -> float | None:
    count = run.timing.counts.get(name)
    return None if count is None else count / run.num_tokens


def _hit_rate(run: Run) -> float | None:
    counts = run.timing.counts
    return counts["hits"] / counts["accesses"] if counts.get("accesses") else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
