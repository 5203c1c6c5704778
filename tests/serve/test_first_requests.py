"""The first requests of a fresh server, when they arrive together: each gets its answer."""

import json
import signal
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import cycle, islice
from urllib.parse import urlsplit

import pytest
from forked_program import ForkedProgram

pytestmark = [pytest.mark.native, pytest.mark.slow]

_NUM_SERVERS, _NUM_CLIENTS = 30, 16
_CHAT = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 1}
_BODIES = {
    "/v1/chat/completions": _CHAT,
    "/v1/messages": {"model": "stories-moe"} | _CHAT,
    "/v1/responses": {"input": "Once", "max_output_tokens": 1},
    "/v1/completions": {"prompt": "Once", "max_tokens": 1},
    "/v1/messages/count_tokens": {"model": "stories-moe", "messages": _CHAT["messages"]},
    "/tokenize": {"content": "Once"},
    "/detokenize": {"tokens": [1]},
}


def test_simultaneous_first_requests_are_all_answered() -> None:
    """Half of the servers get one path alone, which makes its threads meet most often."""
    mixed = tuple(_BODIES)
    alone = cycle((path,) for path in mixed)
    for number in range(_NUM_SERVERS):
        paths = mixed if number % 2 else next(alone)
        server = ForkedProgram("-m", "sharpi", "serve", "--port", "0", "-np", str(_NUM_CLIENTS))
        try:
            assert server.stdout is not None
            url = urlsplit(server.stdout.readline().split()[-1])
            address = (url.hostname or "", url.port or 0)
            assert _statuses(address, islice(cycle(paths), _NUM_CLIENTS)) == [200] * _NUM_CLIENTS
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
            server.communicate()


def _statuses(address: tuple[str, int], paths: Iterable[str]) -> list[int]:
    """Sends a request to each path on connections that are open already, then reads the answers."""
    requests = [_request(path) for path in paths]
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(address)) for _ in requests]
        for each, request in zip(sockets, requests, strict=True):
            each.sendall(request)
        answers = [stack.enter_context(each.makefile("rb")) for each in sockets]
        return [int(answer.readline().split()[1]) for answer in answers]


def _request(path: str) -> bytes:
    body = json.dumps(_BODIES[path]).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
