"""Sends many kinds of requests to a server of the demo model, and prints the server's memory.

The clients need little CPU time, so that tens of thousands of requests take only minutes. Some
requests are invalid, some clients disconnect, and schemas and grammars rarely repeat.

    python bench-scripts/serve/memory.py --requests 50000
"""

import argparse
import asyncio
import json
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from hostile_clients import CHAT, COMPLETIONS, STORY, resident_megabytes, start_server

NUM_CLIENTS = 8
WORDS = ["ball", "dog", "park", "girl", "sun", "red", "blue", "tree", "house", "cat", "fish"]
LEAVES, IDLES = "leaves", "idles"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--every", type=int, default=2_000, help="requests between two lines")
    arguments = parser.parse_args()
    server, url = start_server()
    port = int(url.rpartition(":")[2])
    try:
        asyncio.run(Load(port, server.pid, arguments.requests, arguments.every).run())
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    return 0


class Load:
    """Clients that send `most` requests in all; memory is printed after every `every` requests."""

    def __init__(self, port: int, pid: int, most: int, every: int) -> None:
        self._port, self._pid, self._most, self._every = port, pid, most, every
        self._num = 0

    async def run(self) -> None:
        await asyncio.gather(*(self._client(random.Random(seed)) for seed in range(NUM_CLIENTS)))

    async def _client(self, choices: random.Random) -> None:
        while self._num < self._most:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                await self._talk(choices, reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass  # the server has closed the connection
            finally:
                writer.close()

    async def _talk(
        self, choices: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Sends up to 50 random requests on one connection, until the client leaves or idles.

        A client that leaves disconnects during an answer; one that idles sends an incomplete
        request.
        """
        for _ in range(50):
            kind = choices.choice([LEAVES, IDLES, *KINDS])
            self._count()
            if kind == IDLES:
                writer.write(choices.choice((b"", b"GET / HTTP/1.1\r\nHost: a")))
                return
            body = {"prompt": STORY, "max_tokens": 400, "ignore_eos": True, "stream": True}
            writer.write(request(COMPLETIONS, body) if kind == LEAVES else KINDS[kind](choices))
            if kind == LEAVES:
                await reader.readuntil(b"data:")
                return
            await read_answer(reader)

    def _count(self) -> None:
        self._num += 1
        if self._num % self._every == 0:
            print(f"{self._num:8} requests {resident_megabytes(self._pid):6.1f} MB", flush=True)


def request(path: str, body: object, method: str = "POST") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def read_answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length:" in head:
        await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


def story(choices: random.Random, **others: Any) -> bytes:
    length, tokens = choices.choice((20, 90, 300, 600)), choices.choice((1, 2, 8))
    body = {"prompt": (STORY * 8)[:length], "max_tokens": tokens, "temperature": 0}
    return request(COMPLETIONS, body | others)


def chat(choices: random.Random, **others: Any) -> bytes:
    messages = [{"role": "user", "content": words(choices, 5)}]
    return request(CHAT, {"messages": messages, "max_tokens": 6} | others)


def words(choices: random.Random, num: int) -> str:
    return " ".join(choices.choices(WORDS, k=num))


def schema(choices: random.Random) -> dict[str, Any]:
    value = {"enum": ["a", choices.randrange(1000)]}
    return {"type": "object", "properties": {f"p{choices.randrange(2000)}": value}}


def with_schema(choices: random.Random) -> bytes:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema(choices)}}
    return chat(choices, response_format=form)


def with_tool(choices: random.Random) -> bytes:
    function = {"name": f"f{choices.randrange(30)}", "parameters": schema(choices)}
    tools = [{"type": "function", "function": function}]
    return chat(choices, tool_choice="required", tools=tools)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "whole": story,
    "stream": lambda choices: story(choices, stream=True),
    "words": lambda choices: story(choices, prompt=words(choices, choices.randrange(5, 60))),
    "sampled": lambda choices: story(choices, temperature=1, logprobs=2),
    "too long": lambda choices: story(choices, prompt="word " * 20_000),
    "chat": chat,
    "chat stream": lambda choices: chat(choices, stream=True),
    "schema": with_schema,
    "tool": with_tool,
    "grammar": lambda choices: chat(choices, grammar=f'root ::= "a" | "{choices.random()}"'),
    "responses": lambda _: request("/v1/responses", {"input": "Hi", "max_output_tokens": 4}),
    "tokenize": lambda choices: request("/tokenize", {"content": words(choices, 20)}),
    "not JSON": lambda choices: request(CHAT, choices.randbytes(200)),
    "wrong": lambda choices: chat(choices, max_tokens="x"),
    "health": lambda _: request("/health", b"", "GET"),
    "metrics": lambda _: request("/metrics", b"", "GET"),
    "no path": lambda choices: request(f"/no/{choices.random()}", b"", "GET"),
}


if __name__ == "__main__":
    sys.exit(main())
