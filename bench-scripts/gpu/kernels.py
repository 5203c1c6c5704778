"""Measures the kernels of a decode step on a GPU: microseconds, and GB/s relative to its read rate.

Each kernel is launched many times in one CUDA graph, so that launches from Python cost nothing, on
weights that do not fit into the GPU's cache. Times are medians of several replays. The cost of an
empty kernel is measured too, and subtracted in a second percentage. `--dry-run` runs the same on
the CPU with tiny sizes, to check that the script works; its times mean nothing.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from gpu.cases import Case, Sizes, attention_cases, dense_cases, expert_cases, small_cases
from gpu.check_step import Findings
from gpu.engines import device_opener

from sharpi.device.device import Device
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.gpu_limits import GPU_TYPES, GpuLimits, replay_seconds

_TINY = Sizes(
    hidden=256,
    expert_hidden=256,
    experts=8,
    used=2,
    heads=4,
    kv_heads=2,
    head_dim=64,
    output_rows=64,
    contexts=(70,),
    batches=(1, 3),
    arena_bytes=1 << 18,
    max_kv_layers=2,
)
_FIRST_TYPES = ("Q4_K", "Q6_K")  # the types of a Q4_K_M file
_LEAST_LAUNCHES, _TRIES = 2048, 7
HEADING = (
    f"{'kernel':<16}{'type':<8}{'shape':<24}{'T':>2}{'us':>9}{'GB/s':>9}{'of GPU':>9}"
    f"{'less start':>12}"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel's results; rates are None if the kernel reads too few bytes for a rate."""

    kernel: str
    quant_type: str
    shape: str
    tokens: int
    num_bytes: int
    microseconds: float
    gigabytes_per_second: float | None
    percent: float | None  # of the GPU's read rate
    percent_without_start: float | None  # percent of the rate, without the cost of a launch


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes, quant types and limits of a measurement."""

    sizes: Sizes
    types: tuple[QuantType, ...]
    launches: int  # the least in one graph
    tries: int
    seconds: float  # after which no case begins


def main() -> None:
    """Parses the command line, prints a line for each kernel and writes the report."""
    options = _parse_options()
    device = device_opener(options.dry_run)(0)
    plan = Plan(
        sizes=_TINY if options.dry_run else Sizes(),
        types=tuple(options.types),
        launches=4 if options.dry_run else _LEAST_LAUNCHES,
        tries=1 if options.dry_run else _TRIES,
        seconds=options.seconds,
    )
    findings = Findings()

    def save(figures: dict[str, Any]) -> None:
        findings.figures = figures
        findings.save(options.json)

    findings.figures = measure(device, plan, save)
    sys.exit(findings.finish(options.json))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--types", type=_type_list, default=all_types(), metavar="Q4_K,...")
    parser.add_argument("--seconds", type=float, default=75, help="after which no case begins")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, tiny sizes")
    return parser.parse_args()


def _type_list(text: str) -> list[QuantType]:
    return [QuantType[name] for name in text.split(",")]


def all_types() -> list[QuantType]:
    """Returns the quant types that have GPU kernels, the most usual types first."""
    return sorted(GPU_TYPES, key=lambda t: (t.name not in _FIRST_TYPES, int(t)))


def measure(
    device: Device, plan: Plan, save: Callable[[dict[str, Any]], None] = lambda figures: None
) -> dict[str, Any]:
    """Measures all cases, prints a line for each, and returns the report.

    `save` gets the report so far after each quant type.

    The GPU's read rate is the better of two measurements.
    """
    limits, end = GpuLimits(device), time.monotonic() + plan.seconds
    limits.measure()
    limits.measure_bus()
    timed = list[tuple[Case, float]]()
    for left_out in _timed(device, plan, end, timed):
        save(_report(device, limits, timed, left_out))
    limits.measure()
    report = _report(device, limits, timed, left_out)
    start = report["start_microseconds"]
    print(HEADING)
    for row in report["rows"]:
        print(_line(Row(**row)))
    print(
        f"{device.name}: reads {limits.bytes_per_second / 1e9:.0f} GB/s, over the bus"
        f" {limits.bus_bytes_per_second / 1e9:.1f} GB/s; starting a kernel {start:.2f} us"
    )
    if left_out:
        print(f"left out for want of time: {', '.join(left_out)}", file=sys.stderr)
    return report


def _report(
    device: Device, limits: GpuLimits, timed: Sequence[tuple[Case, float]], left_out: list[str]
) -> dict[str, Any]:
    start = next(seconds for case, seconds in timed if case.kernel == "smallest")
    rows = [_row(case, seconds, start, limits.bytes_per_second) for case, seconds in timed]
    return {
        "device": device.name,
        "read_gigabytes_per_second": limits.bytes_per_second / 1e9,
        "bus_gigabytes_per_second": limits.bus_bytes_per_second / 1e9,
        "start_microseconds": 1e6 * start,
        "left_out": left_out,
        "rows": [asdict(row) for row in rows],
    }


def _timed(
    device: Device, plan: Plan, end: float, timed: list[tuple[Case, float]]
) -> Iterator[list[str]]:
    """Adds each case with its median seconds to `timed`.

    Yields the names of types left out at time `end`, at first and after each quant type.
    """
    sizes, left_out = plan.sizes, list[str]()
    first = chain(small_cases(device, sizes), attention_cases(device, sizes))
    timed += _seconds_of(device, first, plan)
    yield left_out
    for quant_type in plan.types:
        if time.monotonic() > end:
            left_out.append(quant_type.name)
            continue
        for kind in (expert_cases, dense_cases):
            timed += _seconds_of(device, kind(device, quant_type, sizes), plan)
        yield left_out


def _seconds_of(device: Device, cases: Iterable[Case], plan: Plan) -> Iterator[tuple[Case, float]]:
    for case in cases:
        sweeps = max(1, -(-plan.launches // len(case.launches)))
        count = sweeps * len(case.launches) // case.launches_of_one
        tries = replay_seconds(device, case.launches * sweeps, plan.tries)
        case.launches.clear()  # which frees the memory that they read
        yield case, statistics.median(tries) / count


def _row(case: Case, seconds: float, start: float, limit: float) -> Row:
    rate = case.num_bytes / seconds if case.num_bytes else None
    busy = max(seconds - case.launches_of_one * start, 1e-9)
    return Row(
        kernel=case.kernel,
        quant_type=case.quant_type,
        shape=case.shape,
        tokens=case.tokens,
        num_bytes=case.num_bytes,
        microseconds=1e6 * seconds,
        gigabytes_per_second=rate / 1e9 if rate else None,
        percent=100 * rate / limit if rate else None,
        percent_without_start=100 * case.num_bytes / busy / limit if rate else None,
    )


def _line(row: Row) -> str:
    shares = (row.percent, row.percent_without_start)
    cells = ["" if share is None else f"{share:.0f} %" for share in shares]
    rate = "" if row.gigabytes_per_second is None else f"{row.gigabytes_per_second:.0f}"
    return (
        f"{row.kernel:<16}{row.quant_type:<8}{row.shape:<24}{row.tokens:>2}"
        f"{row.microseconds:>9.2f}{rate:>9}{cells[0]:>9}{cells[1]:>12}"
    ).rstrip()


if __name__ == "__main__":
    main()
