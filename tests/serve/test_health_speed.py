"""`/health` answers at once, whatever else is sent."""

import json
import threading
import time
from collections.abc import Callable

import httpx
import pytest
from test_server_faults import Server

pytestmark = [pytest.mark.native, pytest.mark.speed]

LIMIT = 0.1  # seconds
BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a long prompt": (
        "/v1/completions",
        lambda: json.dumps({"prompt": "word " * 6_000_000}).encode(),
    ),
    "blanks": ("/tokenize", lambda: json.dumps({"content": " " * 30_000_000}).encode()),
    "integers": ("/v1/completions", lambda: b'{"prompt":[' + b"1," * 15_000_000 + b"1]}"),
    "messages": ("/v1/chat/completions", lambda: b'{"messages":[' + b"{}," * 10_000_000 + b"{}]}"),
    "keys": (
        "/v1/chat/completions",
        lambda: b"{" + b",".join(b'"%d":1' % each for each in range(200_000)) + b"}",
    ),
    "depth": ("/v1/chat/completions", lambda: b"[" * 30_000_000),
}


@pytest.mark.parametrize("name", BODIES)
def test_health_answers_beside_a_hostile_body(
    name: str,
) -> None:
    server = Server("--max-body", "64MiB")
    path, make = BODIES[name]
    body, statuses = make(), []

    def send() -> None:
        with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
            headers = {"Content-Type": "application/json"}
            statuses.append(client.post(path, content=body, headers=headers).status_code)

    sender = threading.Thread(target=send)
    server.client.get("/health")
    sender.start()
    slowest = 0.0
    while sender.is_alive():
        start = time.perf_counter()
        assert server.client.get("/health").status_code == 200
        slowest = max(slowest, time.perf_counter() - start)
    server.end()
    assert statuses == [400]
    assert slowest < LIMIT
