"""Compares sharpi and llama.cpp on a model larger than RAM, from a cold page cache.

Both have the same memory limit and token ids. Each run is a new process in a memory cgroup, after
the model's files were dropped from the page cache; runs of the two programs alternate. Prefill is
one pass; decode computes given ids one after the other. sharpi's reads are compared with the rate
of direct reads from the disk, which is measured between the runs. The script needs the right to
create a cgroup, for example as root.
"""

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from contest.contestant import Settings, Task, sharpi_options, token_ids
from contest.vs_llama_cpp import print_table, processor
from memory.cold_run import Entry, Run, Test, read_ahead_bytes, run_cold
from memory.larger_than_ram_report import ratio_rows, read_rows, read_sentence, window_rows
from memory.memory_group import MemoryGroup

from sharpi.errors import SharpiError, UsageError
from sharpi.gguf.reader import GgufFile, open_gguf
from sharpi.hardware.info import probe_hardware
from sharpi.hardware.rates import measure_disk
from sharpi.units import parse_size

_BATCH_SIZE = 512
_DISK_SECONDS = 2.0
_DECODE = "decode"
_PREFILL = "prefill"


def main() -> None:
    """Parses the command line, runs the rounds, prints and writes the results."""
    options = parse_options()
    # SIGTERM must raise, so that the group is removed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with open_gguf(options.model) as file:
            tests, parts = list(chosen_tests(options, file)), file.parts
        entries = list(chosen_entries(options))
        with MemoryGroup(parse_size(options.limit)) as group:
            runs = list(run_tests(entries, tests, group, parts, options.rounds))
    except SharpiError as error:
        print(f"larger_than_ram.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    show(runs)
    if options.json is not None:
        options.json.write_text(json.dumps(record(options, runs, parts), indent=2) + "\n")


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--limit", default="2.5GB", help="of the cgroup, page cache included")
    parser.add_argument("-t", "--threads", type=int, default=probe_hardware().physical_cores)
    parser.add_argument("-n", "--n-gen", type=int, default=200, help="tokens of decode; 0: none")
    parser.add_argument("-p", "--prompt", type=int, default=128, help="of prefill; 0: none")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--ids", type=Path, help="a .npy of token ids or a text; else random ids")
    parser.add_argument(
        "--llama-python", default=sys.executable, help="the Python that has llama-cpp-python"
    )
    parser.add_argument("--llama-variant", choices=("mapped", "repacked"), default="mapped")
    parser.add_argument("--only", choices=("sharpi", "llama.cpp"), help="one of the two")
    parser.add_argument(
        "--sharpi", action="append", default=[], metavar="KEY=VALUE", help="such as policy=slru"
    )
    parser.add_argument("--json", type=Path, help="file for all figures")
    return parser.parse_args()


def chosen_tests(options: argparse.Namespace, file: GgufFile) -> Iterator[Test]:
    """Yields the tests of prefill and decode, with the same token ids in every run.

    Decode is timed after one token.
    """
    ids = token_ids(file, max(options.prompt, options.n_gen + 1), options.ids)
    if options.prompt:
        task = Task([], ids[: options.prompt], _BATCH_SIZE)
        yield Test(f"{_PREFILL} {options.prompt}", task)
    if options.n_gen:
        task = Task(ids[:1], ids[1 : options.n_gen + 1], 1)
        yield Test(f"{_DECODE} {options.n_gen}", task)


def chosen_entries(options: argparse.Namespace) -> Iterator[Entry]:
    """Yields the programs to be compared: sharpi, then llama.cpp, unless `--only` excludes one."""
    positions = max(options.prompt, options.n_gen + 1)
    context_size = (positions + 255) // 256 * 256  # llama.cpp rounds up to this by itself
    size = (str(options.model), options.threads, context_size, _BATCH_SIZE)
    if options.only != "llama.cpp":
        settings = Settings(*size, options=sharpi_options(options.sharpi))
        yield Entry("sharpi", sys.executable, "sharpi_worker.py", settings)
    if options.only != "sharpi":
        name, settings = (
            f"llama.cpp {options.llama_variant}",
            Settings(*size, options.llama_variant),
        )
        yield Entry(name, options.llama_python, "llama_cpp_worker.py", settings)


def run_tests(
    entries: Sequence[Entry],
    tests: Sequence[Test],
    group: MemoryGroup,
    parts: Sequence[Path],
    rounds: int,
) -> Iterator[Run]:
    """Runs every test on each program in turn, `rounds` times, and yields the runs.

    The disk's rate is measured before and after each run.
    """
    before = direct_bytes_per_second(parts[0], _DISK_SECONDS)
    for number, test, entry in product(range(rounds), tests, entries):
        run = run_cold(entry, test, group, parts)
        after = direct_bytes_per_second(parts[0], _DISK_SECONDS)
        speed, load = f"{run.tokens_per_second:.2f} tokens/s", f"{run.load_seconds:.1f} s of load"
        title = f"round {number + 1}, {test.name}, {entry.name}"
        print(f"{title}: {speed} after {load}", file=sys.stderr)
        yield replace(run, disk_rates=(before, after))
        before = after


def show(runs: Sequence[Run]) -> None:
    """Prints the table of ratios, by test and by window of decode, and the bytes read."""
    windows = window_rows(decodes(runs))
    if rows := ratio_rows(runs):
        print_table([*rows, *windows])
    if windows:
        least = min(windows, key=lambda row: float(row["ratio"]))
        print(f"smallest ratio of a window: {least['ratio']:.2f}, tokens {least['test'].strip()}")
    rates = [rate / 1e9 for run in runs for rate in run.disk_rates]
    median, low, high = statistics.median(rates), min(rates), max(rates)
    print(f"disk, 1 MiB direct, 8 in flight: {median:.2f} GB/s ({low:.2f} to {high:.2f})")
    for row in read_rows(runs):
        print(read_sentence(row))
    for note in dict.fromkeys(note for run in runs for note in run.description.get("notes", ())):
        print(f"note: {note}")


def decodes(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs of decode tests; only these are divided into windows of tokens."""
    return [run for run in runs if run.test.startswith(_DECODE)]


def record(
    options: argparse.Namespace, runs: Sequence[Run], parts: Sequence[Path]
) -> dict[str, Any]:
    """Returns the contents of the JSON file: options, machine, tables and runs."""
    return {
        "model": options.model.name,
        "model_bytes": sum(part.stat().st_size for part in parts),
        "limit_bytes": parse_size(options.limit),
        "threads": options.threads,
        "rounds": options.rounds,
        "ids": "random" if options.ids is None else options.ids.name,
        "processor": processor(),
        "read_ahead_bytes": read_ahead_bytes(parts[0]),
        "rows": ratio_rows(runs),
        "windows": window_rows(decodes(runs)),
        "reads": read_rows(runs),
        "runs": [asdict(run) for run in runs],
    }


def direct_bytes_per_second(path: Path, seconds: float) -> float:
    """Returns the disk's rate with 8 direct reads in flight, measured for `seconds`.

    Raises UsageError if the file system does not support direct reads.
    """
    rate = measure_disk(path, seconds)
    if not rate.is_direct:
        raise UsageError(f"{path}: its file system has no direct reads; use another disk")
    return rate.bytes_per_second


if __name__ == "__main__":
    main()
