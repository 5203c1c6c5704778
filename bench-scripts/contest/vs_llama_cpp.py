"""Compares sharpi and llama.cpp in alternating runs on the same file, threads and token ids.

Prints a table of ratios (median of the rounds, smallest and largest) and writes the figures as JSON
and as a bar chart. llama.cpp runs twice, from the mapped file and repacked at load; sharpi is
compared with the faster of the two in each test.
"""

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from contest.contestant import Contestant, Settings, Task, close_all, sharpi_options

from sharpi.hardware.info import probe_hardware

_BATCH_SIZE = 512
_SETTLE_SECONDS = 0.2  # until the threads of the previous contestant sleep
Samples = dict[str, list[float]]  # tokens per second by contestant, one value per round


@dataclass(frozen=True)
class Test:
    """A test: prefill ("pp") or decode ("tg") of `count` tokens after `depth` other tokens."""

    kind: str
    count: int
    depth: int

    @property
    def name(self) -> str:
        return f"{self.kind}{self.count}" + (f" @ d{self.depth}" if self.depth else "")

    def task(self, vocab_size: int) -> Task:
        """Returns the worker's task, with the same token ids for every contestant and round."""
        ids = random.Random(1).choices(range(vocab_size), k=self.depth + self.count)
        pass_size = 1 if self.kind == "tg" else _BATCH_SIZE
        return Task(ids[: self.depth], ids[self.depth :], pass_size)


def main() -> None:
    """Parses the command line, runs the rounds, prints and writes the results."""
    options = parse_options()
    tests = list(chosen_tests(options))
    contestants = start(options, max(test.depth + test.count for test in tests))
    try:
        samples = {test.name: run_test(test, contestants, options.rounds) for test in tests}
    finally:
        close_all(contestants)
    rows = [result(name, each) for name, each in samples.items()]
    print_table(rows)
    write(options, rows, {each.name: each.description for each in contestants})


def parse_options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("-t", "--threads", type=int, default=probe_hardware().physical_cores)
    parser.add_argument("-p", "--n-prompt", type=counts, default="512,128,32", metavar="N,...")
    parser.add_argument("-n", "--n-gen", type=counts, default="128", metavar="N,...")
    parser.add_argument("-d", "--n-depth", type=counts, default="0", metavar="N,...")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument(
        "--llama-python", default=sys.executable, help="the Python that has llama-cpp-python"
    )
    parser.add_argument("--no-repacked", action="store_true", help="llama.cpp mapped only")
    parser.add_argument(
        "--sharpi",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="such as instruction_set=avx2",
    )
    parser.add_argument("--output", type=Path, help="folder for the JSON file and the chart")
    return parser.parse_args()


def counts(text: str) -> list[int]:
    """Parses a list of numbers separated by commas."""
    return [int(item) for item in text.split(",")]


def chosen_tests(options: argparse.Namespace) -> Iterator[Test]:
    """Yields the tests by depth; for each depth, prefill precedes decode."""
    for depth in options.n_depth:
        yield from (Test("pp", count, depth) for count in options.n_prompt if count)
        yield from (Test("tg", count, depth) for count in options.n_gen if count)


def start(options: argparse.Namespace, num_positions: int) -> list[Contestant]:
    """Starts the workers of sharpi and of llama.cpp, and returns them in this order.

    llama.cpp has one worker for each variant.
    """
    context_size = (num_positions + 255) // 256 * 256  # llama.cpp rounds up to this by itself
    size = (str(options.model), options.threads, context_size, _BATCH_SIZE)
    ours = Settings(*size, options=sharpi_options(options.sharpi))
    contestants = [Contestant("sharpi", sys.executable, "sharpi_worker.py", ours)]
    for variant in ("mapped",) if options.no_repacked else ("mapped", "repacked"):
        settings, name = Settings(*size, variant), f"llama.cpp {variant}"
        python = options.llama_python
        contestants.append(Contestant(name, python, "llama_cpp_worker.py", settings))
    return contestants


def run_test(test: Test, contestants: list[Contestant], rounds: int) -> Samples:
    """Runs a test `rounds` times on each contestant in turn, after a warm-up of each.

    Returns the tokens per second of each round, by contestant.
    """
    task = test.task(contestants[0].description["vocab_size"])
    samples: Samples = {contestant.name: [] for contestant in contestants}
    for number in range(rounds + 1):
        for contestant in contestants:
            time.sleep(_SETTLE_SECONDS)
            speed = test.count / contestant.seconds(task)
            if number:
                samples[contestant.name].append(speed)
    return samples


def result(name: str, samples: Samples) -> dict[str, Any]:
    """Returns a test's row: median tokens/s, and the ratios of sharpi to the faster llama.cpp."""
    medians = {each: statistics.median(speeds) for each, speeds in samples.items()}
    rival = max((each for each in samples if each != "sharpi"), key=medians.__getitem__)
    ratios = [a / b for a, b in zip(samples["sharpi"], samples[rival], strict=True)]
    return {
        "test": name,
        "tokens_per_second": medians,
        "rival": rival,
        "ratio": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "samples": samples,
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    """Prints the medians and the ratio of each test."""
    names = list(rows[0]["tokens_per_second"])
    print(f"{'test':<16}" + "".join(f"{name:>20}" for name in names) + f"{'ratio':>9}  spread")
    for row in rows:
        speeds = "".join(f"{row['tokens_per_second'][name]:>20.2f}" for name in names)
        spread = f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f}"
        print(f"{row['test']:<16}{speeds}{row['ratio']:>9.2f}  {spread}")
    print("tokens/s and ratios: medians of interleaved rounds")


def write(options: argparse.Namespace, rows: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """Writes the JSON file and the chart, if a folder was given."""
    if options.output is None:
        return
    options.output.mkdir(parents=True, exist_ok=True)
    record = {
        "model": options.model.name,
        "model_bytes": options.model.stat().st_size,
        "threads": options.threads,
        "rounds": options.rounds,
        "processor": processor(),
        "contestants": about,
        "rows": rows,
    }
    path = options.output / f"vs-llama-cpp-{options.model.stem}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"wrote {path}")


def processor() -> str:
    """Returns the CPU's name from /proc/cpuinfo, or else what `platform` reports."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


if __name__ == "__main__":
    main()
