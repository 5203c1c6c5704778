"""Soaks a server in mixed work with faults, and checks at the end that nothing was lost or kept.

Rounds of: 20 clients (see load.py); the same while a library that is preloaded fails reads of the
model; the same while another process of the memory group takes and returns memory; silence until
the model is unloaded, and a greedy `sharpi chat` and `sharpi run` meanwhile. After the first round
and after the last, a load alone precedes the count of descriptors, threads and resident memory.
Only answers during failing reads may be lost. Greedy texts are the same throughout. With --limit,
the server runs in a memory cgroup, for which one has to be root. The server's notes go to a file.
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for the packages of bench-scripts

from memory.memory_group import MemoryGroup
from serve.load import Client, Figures

from sharpi.resources import demo_model
from sharpi.units import parse_size

CLIENTS, IDLE_SECONDS = 20, 3.0
_MOST_GROWTH, _MOST_NEW = 0.1, 4  # of resident memory; of descriptors and threads
_SHARPI = (sys.executable, "-m", "sharpi")
_GREEDY = ("--temp", "0", "-n", "40", "--ignore-eos", "--no-log")
_FAILS_READS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
static ssize_t (*real)(int, void *, size_t, off_t);
ssize_t pread64(int file, void *to, size_t count, off_t at) {
  static __thread unsigned seed = 1;
  if (!real) real = dlsym(RTLD_NEXT, "pread64");
  if (count >= 4096 && rand_r(&seed) % 400 == 0 && !access(getenv("SOAK_FAULTS"), F_OK)) {
    errno = EIO;
    return -1;
  }
  return real(file, to, count, at);
}
ssize_t pread(int file, void *to, size_t count, off_t at) { return pread64(file, to, count, at); }
"""
_TAKES_MEMORY = "import sys, time; kept = bytearray(b'1') * int(sys.argv[1]); time.sleep(2)"


class Server:
    """A server of `model` whose reads fail while the file `faults` exists."""

    def __init__(
        self, options: argparse.Namespace, folder: Path, launcher: tuple[str, ...]
    ) -> None:
        self.faults, self._launcher = folder / "faults", launcher
        command = (
            *launcher, *_SHARPI, "serve", str(options.model), "--port", "0", "-np", "8",
            "--idle-unload", str(IDLE_SECONDS / 60),
        )  # fmt: skip
        slots = () if options.slots is None else ("--moe-slots", str(options.slots))
        environment = os.environ | {
            "LD_PRELOAD": str(fault_library(folder)), "SOAK_FAULTS": str(self.faults)
        }  # fmt: skip
        self.process = subprocess.Popen(
            (*command, *slots),
            stdout=subprocess.PIPE,
            stderr=(folder / "notes").open("w"),
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().rpartition(" ")[2].strip()

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, trust_env=False)

    def holdings(self) -> dict[str, int]:
        """Returns the numbers of descriptors and threads, and the resident bytes."""
        place = Path("/proc", str(self.process.pid))
        return {
            "descriptors": len(os.listdir(place / "fd")),
            "threads": len(os.listdir(place / "task")),
            "resident": self.get("/props").json()["resident_bytes"],
        }

    def counts(self) -> dict[str, float]:
        """Returns the metrics, without their labels."""
        sums: dict[str, float] = {}
        for line in self.get("/metrics").text.splitlines():
            name, _, value = line.rpartition(" ")
            if not line.startswith("#"):
                name = name.partition("{")[0]
                sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    @contextmanager
    def failing(self) -> Iterator[None]:
        self.faults.touch()
        try:
            yield
        finally:
            self.faults.unlink()

    @contextmanager
    def taking(self, most: int) -> Iterator[None]:
        """Takes and returns up to `most` bytes of the server's memory group, again and again."""
        size = random.Random(1).randint(most // 2, most)
        loop = f'while :; do "{sys.executable}" -c "{_TAKES_MEMORY}" {size}; sleep 1; done'
        process = subprocess.Popen((*self._launcher, "sh", "-c", loop), start_new_session=True)
        try:
            yield
        finally:
            os.killpg(process.pid, 9)
            process.wait()


def fault_library(folder: Path) -> Path:
    """Compiles the library that fails reads."""
    source, library = folder / "faults.c", folder / "faults.so"
    source.write_text(_FAILS_READS)
    subprocess.run(("cc", "-shared", "-fPIC", "-o", library, source, "-ldl"), check=True)
    return library


def work(server: Server, seconds: float, texts: dict[tuple[int, int], str], seed: int) -> Figures:
    """Runs all clients for `seconds`; `texts` are the greedy answers so far."""
    figures = Figures(texts=texts)

    async def run() -> None:
        deadline = time.monotonic() + seconds
        clients = [Client(server.url, None, seed + i, figures) for i in range(CLIENTS)]
        await asyncio.gather(*(client.run(deadline) for client in clients))

    asyncio.run(run())
    return figures


def unloaded(server: Server) -> bool:
    """Waits in silence; returns True once the model is unloaded."""
    time.sleep(IDLE_SECONDS + 1)
    return bool(server.counts()["sharpi_model_loaded"] == 0)


def alone(model: Path) -> tuple[str, str]:
    """Returns greedy answers of `sharpi chat` and `sharpi run`."""
    story = "Once upon a time there was a red ball."
    run = (*_SHARPI, "run", str(model), "-p", story, *_GREEDY)
    chat = (*_SHARPI, "chat", str(model), *_GREEDY)
    answers = [
        subprocess.run(each, input=text, capture_output=True, text=True, check=True).stdout
        for each, text in ((run, ""), (chat, story + "\n"))
    ]
    return answers[0], answers[1]


def soak(server: Server, options: argparse.Namespace) -> Iterator[str]:
    """Soaks the server for the rounds asked for; yields what was wrong."""
    texts: dict[tuple[int, int], str] = {}
    part, totals, first = options.minutes * 60 / options.rounds / 4, Figures(), {}
    Client._model = server.get("/props").json()["model"]
    expected = alone(options.model)
    for index in range(options.rounds):
        before = time.monotonic()
        phases = [work(server, part, texts, 100 * index)]
        with server.failing():
            faulty = work(server, part, texts, 100 * index + 20)
        with server.taking(options.taken):
            phases.append(work(server, part, texts, 100 * index + 40))
        if not unloaded(server):
            yield f"round {index}: the model was not unloaded"
        if alone(options.model) != expected:
            yield f"round {index}: chat or run answered something else"
        phases.append(work(server, part, texts, 100 * index + 60))
        first = first or server.holdings()
        for each in (*phases, faulty):
            totals.counts += each.counts
            yield from (fault for fault in each.faults if each is not faulty or "(" in fault[:1])
        print(
            f"round {index}: {time.monotonic() - before:.0f} s, {dict(totals.counts)}", flush=True
        )
    yield from wrong_at_the_end(server, first)
    totals.counts["greedy texts"] = len(texts)
    print(json.dumps({"counts": totals.counts, "first": first, "last": server.holdings()}))


def wrong_at_the_end(server: Server, first: dict[str, int]) -> Iterator[str]:
    """Yields what does not add up, or grew since the `first` round."""
    time.sleep(1)
    last, counts = server.holdings(), server.counts()
    most: dict[str, float] = {name: first[name] + _MOST_NEW for name in ("descriptors", "threads")}
    most["resident"] = first["resident"] * (1 + _MOST_GROWTH)
    yield from (f"{n}: {first[n]}, later {last[n]}" for n in most if last[n] > most[n])
    for name in ("answers_running", "answers_waiting", "kv_pages_in_use"):
        if counts[f"sharpi_{name}"]:
            yield f"{name} is {counts[f'sharpi_{name}']:g} at the end"
    found = counts["sharpi_expert_hits_total"] + counts["sharpi_expert_misses_total"]
    if found != counts["sharpi_expert_lookups_total"]:
        yield "hits and misses are not the lookups"


def main() -> None:
    """Parses the command line, soaks, and prints what was wrong; the exit status is 1 then."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?", default=demo_model())
    parser.add_argument("--slots", type=int, default=6, help="of each layer; 0: as planned")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--limit", type=parse_size, help="memory of the server and of what takes it"
    )
    parser.add_argument("--taken", type=parse_size, default=200 << 20)
    options = parser.parse_args()
    options.slots = options.slots or None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        group = None if options.limit is None else stack.enter_context(MemoryGroup(options.limit))
        server = Server(options, folder, () if group is None else group.launcher)
        stack.callback(server.process.wait)
        stack.callback(server.process.terminate)
        wrong: list[Any] = list(soak(server, options))
    wrong += [] if server.process.returncode == 0 else [f"exit code {server.process.returncode}"]
    print("\n".join(wrong) or "nothing was lost or kept")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
