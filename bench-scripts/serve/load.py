"""Sends mixed requests to a running server for minutes, and reports errors, leaks and latencies.

Clients request streamed and complete answers, disconnect at once or in the middle, and send prompts
that are too long. The greedy answer to a request must always be the same, whatever other requests
run. The exit code is 1 if a request fails or its answer differs, or if KV pages are in use at the
end. Start the server first: `sharpi serve --port 8080 --parallel 4`.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

_STORY = (
    "Once upon a time there was a little girl who lived near the forest with her mother. One day "
    "she took her red ball and went to the park. There she met a boy with a small dog, and the dog "
    "wanted to play. They ran and laughed until the sun went down. "
) * 4
_KINDS = {"stream": 45, "whole": 20, "chat": 15, "leave": 12, "leave at once": 4, "too long": 4}
_SAMPLE_SECONDS = 5.0
_WARM_SHARE = 0.2  # of the time, after which memory should not grow any more


@dataclass
class Figures:
    """The measurements of all requests; times are in seconds, memory in bytes."""

    counts: Counter[str] = field(default_factory=Counter)
    first_tokens: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    # the first answer to each greedy request
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    memory: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def lose(self, what: str) -> None:
        """Counts a request without a correct answer, and records the reason."""
        self.counts["lost"] += 1
        self.faults.append(what)


class Client:
    """One of several clients, with its connection pool and its random generator."""

    def __init__(self, url: str, key: str | None, seed: int, figures: Figures) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=120, trust_env=False)
        self._random, self._figures = random.Random(seed), figures

    async def run(self, deadline: float) -> None:
        """Sends random requests one after the other until the deadline."""
        kinds, weights = list(_KINDS), list(_KINDS.values())
        async with self._http:
            while time.monotonic() < deadline:
                (kind,) = self._random.choices(kinds, weights)
                try:
                    await self._ask(kind)
                except Exception as error:
                    self._figures.lose(f"{kind}: {error!r}")

    async def _ask(self, kind: str) -> None:
        length, tokens = self._random.randint(5, 900), self._random.choice((1, 8, 40, 120))
        if self._random.random() < 0.5:  # the others are repeated beside other requests
            length = length // 100 * 100 + 5
        body = {"prompt": prompt(length), "max_tokens": tokens, "temperature": 0}
        if kind == "whole":
            await self._whole(body, (length, tokens))
        elif kind == "chat":
            await self._chat(length, tokens)
        elif kind == "too long":
            await self._too_long()
        elif kind == "leave at once":
            await self._leave_at_once(body)
        else:
            most = self._random.randint(1, 5) if kind == "leave" else None
            await self._stream(body, (length, tokens), most)
        self._figures.counts[kind] += 1

    async def _whole(self, body: dict[str, Any], known_as: tuple[int, int]) -> None:
        response = await self._http.post("/v1/completions", json=body)
        if self._is_answered(response.status_code, response.text):
            self._compare(known_as, response.json()["choices"][0]["text"])

    async def _chat(self, length: int, tokens: int) -> None:
        messages = [{"role": "user", "content": prompt(length)}]
        body = {"model": self._model, "messages": messages, "max_tokens": tokens}
        response = await self._http.post("/v1/messages", json=body)
        if self._is_answered(response.status_code, response.text):
            assert response.json()["type"] == "message"

    async def _too_long(self) -> None:
        response = await self._http.post("/v1/completions", json={"prompt": _STORY * 100})
        assert response.json()["error"]["code"] == "context_length_exceeded"

    async def _leave_at_once(self, body: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self._random.uniform(0, 0.05)):
                await self._http.post("/v1/completions", json=body | {"max_tokens": 400})
        except TimeoutError:
            return

    async def _stream(
        self, body: dict[str, Any], known_as: tuple[int, int], most: int | None
    ) -> None:
        start, latest, text, count, has_end = time.perf_counter(), 0.0, "", 0, False
        async with self._http.stream(
            "POST", "/v1/completions", json=body | {"stream": True}
        ) as response:
            if not self._is_answered(response.status_code, "stream"):
                return
            async for line in response.aiter_lines():
                has_end = line == "data: [DONE]" or has_end
                if not line.startswith("data: {"):
                    continue
                text += json.loads(line[6:])["choices"][0]["text"]
                now, count = time.perf_counter(), count + 1
                times = self._figures.gaps if latest else self._figures.first_tokens
                times.append(now - (latest or start))
                latest = now
                if count == most:
                    return
        assert has_end, "the stream has no end"
        self._compare(known_as, text)

    def _is_answered(self, status: int, text: str) -> bool:
        if status == 429:
            self._figures.counts["refused as busy"] += 1
        elif status != 200:
            self._figures.lose(f"{status}: {text[:200]}")
        return status == 200

    def _compare(self, known_as: tuple[int, int], text: str) -> None:
        known = self._figures.texts.setdefault(known_as, text)
        if known != text:
            self._figures.counts["other text"] += 1
            self._figures.faults.append(f"{known_as}: {known!r} and {text!r}")

    _model = ""


def prompt(length: int) -> str:
    """Returns a prompt of `length` characters; a third of the lengths share the same beginning."""
    begin = (length % 3) * 17
    return _STORY[begin : begin + length]


async def watch(url: str, key: str | None, deadline: float, figures: Figures) -> None:
    """Samples the server's resident memory every few seconds until the deadline."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
        while time.monotonic() < deadline:
            figures.memory.append((await http.get("/props", timeout=30)).json()["resident_bytes"])
            await asyncio.sleep(min(_SAMPLE_SECONDS, max(0.0, deadline - time.monotonic())))


async def load(url: str, key: str | None, num_clients: int, seconds: float) -> dict[str, Any]:
    """Runs all clients for `seconds`; returns the summary to be printed."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:
        before = (await http.get("/props")).json()
        Client._model = before["model"]
        figures, deadline = Figures(), time.monotonic() + seconds
        clients = [Client(url, key, seed, figures) for seed in range(num_clients)]
        runs = [client.run(deadline) for client in clients]
        await asyncio.gather(*runs, watch(url, key, deadline, figures))
        await asyncio.sleep(1)
        after = (await http.get("/props")).json()
    return summary(figures, after, seconds)


def summary(figures: Figures, after: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Returns the summary of all requests: counts, percentiles in milliseconds, memory in MiB.

    Memory is reported after a fifth of the time, at the end, and at its maximum.
    """
    warm = figures.memory[int(len(figures.memory) * _WARM_SHARE)]
    return {
        "seconds": seconds,
        "requests": sum(figures.counts[kind] for kind in _KINDS),
        "counts": dict(figures.counts),
        "lost": figures.counts["lost"] + figures.counts["other text"],
        "faults": figures.faults[:10],
        "first_token_ms": percentiles(figures.first_tokens),
        "inter_token_ms": percentiles(figures.gaps),
        "kv_pages_in_use": after["kv_pages_in_use"],
        "kv_pages": after["kv_pages"],
        "answers_left": after["answers_running"] + after["answers_waiting"],
        "memory_mib": {
            "warm": round(warm / 2**20, 1),
            "end": round(figures.memory[-1] / 2**20, 1),
            "most": round(max(figures.memory) / 2**20, 1),
        },
    }


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Returns percentiles in milliseconds of a list of at least two times in seconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    chosen = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(seconds)}
    return {name: round(value * 1000, 2) for name, value in chosen.items()}


def main() -> None:
    """Parses the command line, runs the clients, and prints the summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default="http://127.0.0.1:8080")
    parser.add_argument("--api-key")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=10.0)
    options = parser.parse_args()
    figures = asyncio.run(load(options.url, options.api_key, options.clients, options.minutes * 60))
    print(json.dumps(figures, indent=2, ensure_ascii=False))
    if figures["lost"] or figures["kv_pages_in_use"] or figures["answers_left"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
