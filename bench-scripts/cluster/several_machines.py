"""Compares a model on several ranks with one rank: tokens/s, bytes and time on the wire.

Each rank is a process with one thread on a separate core, and messages use the loopback interface.
Runs on one rank and on several ranks alternate: A B A B. Ranks on one machine share its memory
bandwidth, which ranks on several machines would not. So `--beside` adds a run of one rank while
another single rank computes the same on the other core. `--limit` adds a run of one rank in a
memory cgroup of that size, which reads from the disk what does not fit. `--ram` adds two runs in
which a rank has that much RAM for the model and reads the rest past the page cache: alone, and with
a second rank that runs no layers but lends its memory. `--read-rate` slows down the disk of these
two.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from memory.memory_group import DiskGroup, MemoryGroup

from sharpi.system.process import Closing
from sharpi.units import parse_size

_FOLDER = Path(__file__).parent
_NUM_PARALLEL = 8


class Test(NamedTuple):
    """A test: its JSON request for first_rank.py, and the number of tokens that it computes."""

    name: str
    question: dict[str, Any]
    num_tokens: int


_WARM_UP = Test("warm-up", {"test": "prompt", "num_tokens": 128}, 128)


class Ranks(Closing):
    """A model whose layers are spread over one process per core; the first one runs the tests.

    `lends`: whether the other ranks only lend their memory and run no layers.
    """

    def __init__(
        self, name: str, model: Path, cores: Sequence[int], context: int,
        launcher: Sequence[str] = (), ram: int | None = None, *, lends: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        port = _free_port()
        first = [*launcher, *_pinned(cores[0]), str(_FOLDER / "first_rank.py")]
        self._first = subprocess.Popen(
            first, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._others = [
            subprocess.Popen(
                [*_pinned(core), *_join(port, model), *(["--only-lend"] if lends else [])],
                stderr=subprocess.DEVNULL,
            )
            for core in cores[1:]
        ]
        hosts = ["127.0.0.1", *(f"core {core}" for core in cores[1:])] if cores[1:] else []
        settings = {"model": str(model), "hosts": hosts, "port": port, "context_size": context}
        remote = "on" if lends else "off"
        self._tell(settings | {"num_parallel": _NUM_PARALLEL, "ram": ram, "remote_experts": remote})
        self.notes = self._answer()["notes"]

    def seconds(self, test: Test) -> float:
        """Runs a test and returns its time in seconds."""
        self.begin(test)
        return self.end()

    def begin(self, test: Test) -> None:
        """Sends a test to the first rank without waiting for its end."""
        self._tell(test.question)

    def end(self) -> float:
        """Waits for the end of a test and returns its time in seconds."""
        return float(self._answer()["seconds"])

    def _tell(self, question: dict[str, Any]) -> None:
        assert self._first.stdin is not None
        self._first.stdin.write(json.dumps(question) + "\n")
        self._first.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._first.stdout is not None
        line = self._first.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name}: the first rank ended with code {self._first.wait()}")
        return dict(json.loads(line))

    def reports(self) -> dict[str, Any]:
        """Ends the ranks and returns each rank's counts of messages, steps and seconds."""
        assert self._first.stdin is not None
        self._first.stdin.close()
        return self._answer()

    def close(self) -> None:
        for process in (self._first, *self._others):
            process.kill()
            process.wait()


class SideBySide(Closing):
    """Single ranks, one on each core, that run the same test at the same time.

    This measures a rank that shares the machine's memory bandwidth.
    """

    name, notes = "beside another", ()

    def __init__(self, model: Path, cores: Sequence[int], context: int) -> None:
        self._each = [Ranks("one rank", model, (core,), context) for core in cores]

    def seconds(self, test: Test) -> float:
        """Runs a test on all cores at once and returns the mean time in seconds."""
        for each in self._each:
            each.begin(test)
        return statistics.fmean([each.end() for each in self._each])

    def close(self) -> None:
        for each in self._each:
            each.close()


def _pinned(core: int) -> list[str]:
    return ["taskset", "-c", str(core), sys.executable]


def _join(port: int, model: Path) -> list[str]:
    return ["-m", "sharpi", "join", f"127.0.0.1:{port}", str(model), "--once", "-t", "1"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Parses the command line, alternates the runs in rounds, and prints the medians."""
    options = _parse()
    tests = list(_tests(options))
    with ExitStack() as stack:
        ranks = list(_contestants(options, stack))
        several = ranks[1]
        assert isinstance(several, Ranks)
        for each in ranks:
            each.seconds(_WARM_UP)
        rounds = [
            {(each.name, test.name): each.seconds(test) for test in tests for each in ranks}
            for _ in range(options.rounds)
        ]
        result = {
            "model_bytes": options.model.stat().st_size,
            "rows": list(_rows(tests, ranks, rounds)),
            "ranks": several.reports(),
            "notes": {each.name: each.notes for each in ranks},
        }
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    _print(result)


def _contestants(options: argparse.Namespace, stack: ExitStack) -> Iterator[Ranks | SideBySide]:
    cores, context = options.cores, options.prompt + 512
    yield stack.enter_context(Ranks("one rank", options.model, cores[:1], context))
    yield stack.enter_context(Ranks(f"{len(cores)} ranks", options.model, cores, context))
    if options.beside:
        yield stack.enter_context(SideBySide(options.model, cores, context))
    if options.ram is not None:
        ram, launcher = parse_size(options.ram), tuple[str, ...]()
        if options.read_rate is not None:
            disk = stack.enter_context(DiskGroup(options.read_rate, options.model))
            launcher = disk.launcher
        alone = Ranks("from disk", options.model, cores[:1], context, launcher, ram)
        yield stack.enter_context(alone)
        lent = Ranks("lent", options.model, cores, context, launcher, ram, lends=True)
        yield stack.enter_context(lent)
    if options.limit is not None:
        group = stack.enter_context(MemoryGroup(parse_size(options.limit)))
        yield stack.enter_context(
            Ranks("from disk", options.model, cores[:1], context, group.launcher)
        )


def _tests(options: argparse.Namespace) -> Iterator[Test]:
    count = options.tokens
    for number in options.sequences:
        question = {"test": "decode", "num_sequences": number, "num_tokens": count}
        question["temperature"] = options.temperature
        yield Test(f"decode {number}", question, number * count)
    if options.prompt:
        yield Test(
            f"prompt {options.prompt}",
            {"test": "prompt", "num_tokens": options.prompt},
            options.prompt,
        )


def _rows(
    tests: Sequence[Test],
    ranks: Sequence[Ranks | SideBySide],
    rounds: Sequence[dict[tuple[str, str], float]],
) -> Iterator[dict[str, Any]]:
    several = ranks[1].name
    for test in tests:
        row: dict[str, Any] = {"test": test.name}
        for each in ranks:
            seconds = [one[each.name, test.name] for one in rounds]
            row[each.name] = test.num_tokens / statistics.median(seconds)
            ratios = [one[each.name, test.name] / one[several, test.name] for one in rounds]
            row[f"{several} / {each.name}"] = [f(ratios) for f in (statistics.median, min, max)]
        del row[f"{several} / {several}"]
        yield row


def _print(result: dict[str, Any]) -> None:
    for row in result["rows"]:
        print(row.pop("test").ljust(14), end="")
        for name, value in row.items():
            if isinstance(value, list):
                print(f"  {name} {value[0]:.3f} ({value[1]:.3f} to {value[2]:.3f})", end="")
            else:
                print(f"  {name} {value:.2f} tokens/s", end="")
        print()
    print(*result["notes"][list(result["notes"])[1]], sep="\n")
    for rank, own in result["ranks"].items():
        print(
            f"rank {rank}: {own['num_sent']} messages sent, {own['sent_bytes'] / 1e6:.1f} MB in"
            f" {own['send_seconds']:.3f} s; {own['received_bytes'] / 1e6:.1f} MB received, in"
            f" {own['receive_seconds']:.3f} s"
        )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--cores", type=lambda text: [int(each) for each in text.split(",")])
    parser.add_argument("--prompt", type=int, default=4096, help="tokens; 0 leaves this test out")
    parser.add_argument("--sequences", default="1,2,4")
    parser.add_argument("--tokens", type=int, default=64, help="of each sequence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", help="of the memory of one rank that reads from disk")
    parser.add_argument(
        "--temperature", type=float, default=0.0,
        help="1 has a model with random weights use ever other experts, as text does",
    )  # fmt: skip
    parser.add_argument("--ram", help="for the model of a rank that reads past the page cache")
    parser.add_argument("--read-rate", type=parse_size, help="bytes per second of its disk at most")
    parser.add_argument("--beside", action="store_true", help="one rank with a busy neighbour, too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.cores = options.cores or sorted(os.sched_getaffinity(0))[:2]
    options.sequences = [int(each) for each in options.sequences.split(",")]
    if len(options.cores) < 2:
        parser.error("two ranks need a core each; name them with --cores")
    return options


if __name__ == "__main__":
    main()
