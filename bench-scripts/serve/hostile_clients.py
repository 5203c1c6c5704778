"""Checks that hostile clients of a server neither change nor delay the answers to honest clients.

First, honest clients use the demo model alone, then together with clients that send requests which
cost much memory, time or connections. Every honest answer must equal the first answer to the same
request, and `/health` must answer in time. The table shows the times of both.

    python bench-scripts/serve/hostile_clients.py --seconds 600
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx

STORY = "Once upon a time there was a girl who had a red ball and a dog. She went to the park. "
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NUM_HONEST = 2
HEALTH_LIMIT = 0.1  # seconds


class Honest(NamedTuple):
    """The results of the honest clients.

    `seconds`: the time of each answer. `health`: the time of each `/health` request. `wrong`: error
    messages and answers that differ.
    """

    seconds: list[float]
    health: list[float]
    wrong: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="how long, both parts together"
    )
    parser.add_argument("--hostile", type=int, default=4, help="number of hostile clients")
    arguments = parser.parse_args()
    server, url = start_server()
    try:
        return asyncio.run(compare(url, server.pid, arguments.seconds, arguments.hostile))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def start_server() -> tuple["subprocess.Popen[str]", str]:
    """Starts a server on a free port; returns its process and URL."""
    command = [sys.executable, "-m", "sharpi", "serve", "--port", "0", "--parallel", "4"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    found = re.search(r"http://\S+", server.stdout.readline())
    assert found is not None
    return server, found[0]


async def compare(url: str, pid: int, seconds: float, num_hostile: int) -> int:
    texts: dict[int, str] = {}
    alone = await run_honest(url, seconds / 5, texts)
    before = resident_megabytes(pid)
    with ProcessPoolExecutor(1) as process:  # so that it does not delay the honest clients' clock
        attacks = process.submit(attack_all, url, seconds * 4 / 5, num_hostile)
        beside = await run_honest(url, seconds * 4 / 5, texts)
        counts = await asyncio.wrap_future(attacks)
    report(alone, beside, counts, before, resident_megabytes(pid))
    ratio = statistics.median(beside.seconds) / statistics.median(alone.seconds)
    return 1 if beside.wrong or ratio > 2 or max(beside.health) > HEALTH_LIMIT else 0


async def run_honest(url: str, seconds: float, texts: dict[int, str]) -> Honest:
    """Runs the honest clients for `seconds` and returns their results.

    `texts`: the first answer by length of the prompt, to which later answers are compared.
    """
    seen = Honest([], [], [])
    deadline = time.monotonic() + seconds
    clients = [honest(url, seed, deadline, texts, seen) for seed in range(NUM_HONEST)]
    await asyncio.gather(watch_health(url, deadline, seen), *clients)
    return seen


async def honest(url: str, seed: int, deadline: float, texts: dict[int, str], seen: Honest) -> None:
    choices = random.Random(seed)
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as client:
        while time.monotonic() < deadline:
            length = choices.choice((20, 90, 300, 600))
            body = {"prompt": (STORY * 8)[:length], "max_tokens": 24, "temperature": 0}
            start = time.monotonic()
            response = await client.post(COMPLETIONS, json=body)
            while response.status_code == 429:  # as clients' libraries do
                await asyncio.sleep(float(response.headers["retry-after"]))
                start = time.monotonic()
                response = await client.post(COMPLETIONS, json=body)
            seen.seconds.append(time.monotonic() - start)
            if response.status_code != 200:
                seen.wrong.append(f"{response.status_code} {response.text[:100]}")
                continue
            text = response.json()["choices"][0]["text"]
            if texts.setdefault(length, text) != text:
                seen.wrong.append(text)
            await asyncio.sleep(0.05)


async def watch_health(url: str, deadline: float, seen: Honest) -> None:
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as client:
        while time.monotonic() < deadline:
            start = time.monotonic()
            response = await client.get("/health")
            seen.health.append(time.monotonic() - start)
            if response.status_code != 200:
                seen.wrong.append(f"/health {response.status_code}")
            await asyncio.sleep(0.05)


def attack_all(url: str, seconds: float, num: int) -> Counter[str]:
    """Runs `num` hostile clients for `seconds`, in a separate process from the honest clients.

    Returns the number of requests by kind and status.
    """
    counts: Counter[str] = Counter()
    os.nice(5)

    async def run() -> None:
        deadline = time.monotonic() + seconds
        await asyncio.gather(*(attack(url, seed, deadline, counts) for seed in range(num)))

    asyncio.run(run())
    return counts


async def attack(url: str, seed: int, deadline: float, counts: Counter[str]) -> None:
    """Sends random hostile requests until the deadline, as one client."""
    choices = random.Random(1000 + seed)
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as client:
        while time.monotonic() < deadline:
            name, act = choices.choice(ATTACKS)
            try:
                status = await act(client, choices)
            except (httpx.HTTPError, OSError):
                status = "closed"
            counts[f"{name}: {status}"] += 1
            await asyncio.sleep(0.01)


async def send(client: httpx.AsyncClient, path: str, content: bytes) -> object:
    headers = {"Content-Type": "application/json"}
    return (await client.post(path, content=content, headers=headers)).status_code


def sends(path: str, make: Callable[[random.Random], bytes]) -> Callable[..., Awaitable[object]]:
    async def act(client: httpx.AsyncClient, choices: random.Random) -> object:
        return await send(client, path, make(choices))

    return act


def as_json(**members: Any) -> bytes:
    return json.dumps(members).encode()


def costly_schema(choices: random.Random) -> bytes:
    patterns = [{"pattern": f"^(a|b|ab)*x.{{{choices.randrange(60, 200)}}}$"} for _ in range(3)]
    form = {"type": "json_schema", "json_schema": {"schema": {"allOf": patterns}}}
    return as_json(messages=[{"role": "user", "content": "Hi"}], response_format=form)


def exploding_schema(choices: random.Random) -> bytes:
    """Returns a request with a short schema whose expansion would not fit into memory."""
    again = {"$ref": "#/$defs/a"}
    names = choices.sample("abcdefgh", 4)
    branches = [{"properties": {name: {"items": again}, "z": again}} for name in names]
    form = {"schema": again | {"$defs": {"a": {"oneOf": branches}}}}
    return as_json(
        messages=[{"role": "user", "content": "Hi"}],
        response_format={"type": "json_schema", "json_schema": form},
    )


async def open_idle(client: httpx.AsyncClient, choices: random.Random) -> object:
    """Opens 50 connections that send nothing or an incomplete request, and closes them later."""
    url = client.base_url
    connections = []
    for _ in range(50):
        connections.append(socket.create_connection((url.host, url.port or 80)))
        connections[-1].sendall(choices.choice((b"", b"GET / HTTP/1.1\r\nHost: a")) or b"")
    await asyncio.sleep(1.0)
    for connection in connections:
        connection.close()
    return "idle"


async def leave(client: httpx.AsyncClient, choices: random.Random) -> object:
    """Requests a long streamed answer and closes the connection after its first line."""
    body = {"prompt": STORY, "max_tokens": 400, "ignore_eos": True, "stream": True}
    async with client.stream("POST", COMPLETIONS, json=body) as response:
        async for _ in response.aiter_lines():
            return "left"
    return response.status_code


ATTACKS: Sequence[tuple[str, Callable[..., Awaitable[object]]]] = [
    ("30 MB prompt", sends(COMPLETIONS, lambda _: as_json(prompt="word " * 6_000_000))),
    ("1 MB prompt", sends(COMPLETIONS, lambda _: as_json(prompt="word " * 200_000))),
    ("blanks", sends("/tokenize", lambda _: as_json(content=" " * 1_000_000))),
    ("integers", sends(COMPLETIONS, lambda _: b'{"prompt":[' + b"1," * 450_000 + b"1]}")),
    ("empty messages", sends(CHAT, lambda _: b'{"messages":[' + b"{}," * 300_000 + b"{}]}")),
    ("depth", sends(CHAT, lambda _: b"[" * 900_000)),
    (
        "keys",
        sends(
            COMPLETIONS,
            lambda _: json.dumps({str(number): 1 for number in range(90_000)}).encode(),
        ),
    ),
    ("costly schema", sends(CHAT, costly_schema)),
    ("exploding schema", sends(CHAT, exploding_schema)),
    (
        "half pairs",
        sends("/tokenize", lambda _: b'{"content":"' + b"\\ud800" * 150_000 + b'"}'),
    ),
    ("body for GET", sends("/health", lambda _: b"x" * 5_000_000)),
    ("not JSON", sends(CHAT, lambda choices: choices.randbytes(10_000))),
    ("idle connections", open_idle),
    ("leaves", leave),
]


def resident_megabytes(pid: int) -> float:
    pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def report(
    alone: Honest, beside: Honest, counts: Counter[str], before: float, after: float
) -> None:
    for name, seen in (("alone", alone), ("beside", beside)):
        middle, slowest = statistics.median(seen.seconds), max(seen.seconds)
        print(
            f"{name:>7}: {len(seen.seconds)} answers, {len(seen.wrong)} wrong, "
            f"median {middle * 1e3:.0f} ms, slowest {slowest * 1e3:.0f} ms, "
            f"/health median {statistics.median(seen.health) * 1e3:.1f} ms, "
            f"slowest {max(seen.health) * 1e3:.0f} ms"
        )
    print(f"resident: {before:.0f} MB before, {after:.0f} MB after")
    for name, count in sorted(counts.items()):
        print(f"{count:7} {name}")
    for line in beside.wrong[:5]:
        print(f"wrong: {line}")


if __name__ == "__main__":
    sys.exit(main())
