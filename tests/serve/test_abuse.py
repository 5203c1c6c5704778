"""Mistakes and attacks of clients: each is refused in its API's form, and harms no other client."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from served_demo import MODEL, ServedDemo

from sharpi.serve.app import AppSettings
from sharpi.serve.host.model_host import ModelHostSettings
from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import RequestLimits

pytestmark = pytest.mark.native

COMPLETIONS, MESSAGES = "/v1/completions", "/v1/messages"
LONG = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
Serve = Callable[..., ServedDemo]


def message(**fields: Any) -> dict[str, Any]:
    """Returns the body of a request of Anthropic's API."""
    return {
        "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hi"}],
        "model": MODEL,
    } | fields


@contextmanager
def raw(
    server: ServedDemo, body: dict[str, Any], path: str = COMPLETIONS
) -> Iterator[socket.socket]:
    """Sends a request on a connection of its own and yields it; nothing reads the response."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(data)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head.encode() + data)
        yield connection


@pytest.fixture
def slow(demo: ServedDemo) -> Iterator[ServedDemo]:
    """Yields the shared server with steps of 0.1 s: LONG takes longer than a test waits."""
    demo.slow_down(0.1)
    yield demo
    demo.speed_up()
    demo.wait_until(lambda: demo.num_busy == 0)


class TestRequestsThatAreWrong:
    @pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"prompt": \xff}', b"[" * 100_000])
    def test_no_json_object(self, demo: ServedDemo, content: bytes) -> None:
        response = demo.client.post(COMPLETIONS, content=content)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        response = demo.client.post(MESSAGES, content=content)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"
        assert response.json()["type"] == "error"

    def test_unknown_model(self, demo: ServedDemo) -> None:
        error = demo.complete(model="gpt-9").json()["error"]
        assert error["code"] == "model_not_found"
        response = demo.client.post(MESSAGES, json=message(model="claude-9"))
        assert response.status_code == 404
        assert response.json()["error"]["type"] == "not_found_error"

    def test_unknown_path(self, demo: ServedDemo) -> None:
        response = demo.client.get("/v1/nothing")
        message = "GET /v1/nothing: Not Found; /openapi.json lists every path"
        assert (response.status_code, response.json()["error"]["message"]) == (404, message)
        response = demo.client.post("/v1/embeddings", json={"input": "a"})
        assert response.status_code == 404
        assert "computes no embeddings" in response.json()["error"]["message"]

    def test_prompt_that_does_not_fit(self, demo: ServedDemo) -> None:
        text = "a word " * 2000
        response = demo.complete(prompt=text)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "context_length_exceeded"
        body = message(messages=[{"role": "user", "content": text}])
        response = demo.client.post(MESSAGES, json=body)
        assert response.status_code == 400
        assert response.json()["error"]["type"] == "invalid_request_error"

    @pytest.mark.parametrize(("path", "kind"), [(COMPLETIONS, None), (MESSAGES, "error")])
    def test_body_that_is_too_long(self, serve_demo: Serve, path: str, kind: str | None) -> None:
        server = serve_demo(app=lambda **given: AppSettings(limits=RequestLimits(1000), **given))
        response = server.client.post(path, content=b" " * 300_000)
        assert response.status_code == 413
        assert response.json().get("type") == kind
        assert server.complete().status_code == 200

    def test_no_http(self, demo: ServedDemo) -> None:
        with socket.create_connection(("127.0.0.1", demo.port)) as connection:
            connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
            assert b"400" in connection.recv(1000)
        assert demo.complete().status_code == 200


class TestKeys:
    def test_are_asked_for_in_both_forms(self, serve_demo: Serve) -> None:
        server = serve_demo(app=lambda **given: AppSettings(Access(keys=["key"]), **given))
        response = server.complete()
        assert response.status_code == 401
        assert response.json()["error"]["code"] == "invalid_api_key"
        response = server.client.post(MESSAGES, json=message())
        assert response.status_code == 401
        assert response.json()["error"]["type"] == "authentication_error"
        assert server.client.get("/health").status_code == 200
        for headers in ({"Authorization": "Bearer key"}, {"x-api-key": "key"}):
            response = server.client.post(COMPLETIONS, json={"prompt": "a"}, headers=headers)
            assert response.status_code == 200


class TestBrowsers:
    def test_no_cors_unless_asked(self, demo: ServedDemo) -> None:
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        response = demo.client.options(COMPLETIONS, headers=headers)
        assert response.status_code == 403
        assert not [name for name in response.headers if name.startswith("access-control")]

    def test_cors_where_it_was_asked_for(self, serve_demo: Serve) -> None:
        origins = ("https://app.example",)

        def settings(**given: Any) -> AppSettings:
            return AppSettings(Access(origins=origins), origins=origins, **given)

        server = serve_demo(app=settings)
        headers = {"Origin": origins[0], "Access-Control-Request-Method": "POST"}
        response = server.client.options(COMPLETIONS, headers=headers)
        assert response.headers["access-control-allow-origin"] == origins[0]
        response = server.client.get("/health", headers={"Origin": origins[0]})
        assert response.headers["access-control-allow-origin"] == origins[0]
        response = server.client.get("/health", headers={"Origin": "https://evil.example"})
        assert response.status_code == 403

    def test_a_rebound_name(self, serve_demo: Serve) -> None:
        access = Access(host_names=["127.0.0.1"])
        server = serve_demo(app=lambda **given: AppSettings(access, **given))
        assert server.client.get("/props").status_code == 200
        assert server.client.get("/props", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "path",
    [
        "/page/../../../../etc/passwd",
        "/page/%2e%2e/%2e%2e/errors.py",
        "/page//etc/passwd",
        "/../sharpi/errors.py",
        "/v1/models/../../etc/passwd",
    ],
)
def test_no_path_reaches_the_disk(demo: ServedDemo, path: str) -> None:
    with socket.create_connection(("127.0.0.1", demo.port)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(10_000), b""))
    assert answer.startswith(b"HTTP/1.1 404")


class TestTooMany:
    @pytest.mark.parametrize(("path", "kind"), [(COMPLETIONS, None), (MESSAGES, "error")])
    def test_are_told_when_to_come_again(
        self, serve_demo: Serve, path: str, kind: str | None
    ) -> None:
        server = serve_demo(host=ModelHostSettings(MODEL, max_parallel=1, max_waiting=1))
        server.slow_down(0.1)
        body = message() if kind else {"prompt": "a"}
        with raw(server, LONG), raw(server, LONG):
            server.wait_until(lambda: server.num_busy == 2)
            response = server.client.post(path, json=body)
            assert response.status_code == 429
            assert int(response.headers["retry-after"]) > 0
            assert response.json().get("type") == kind
            assert response.json()["error"]["type"] == "rate_limit_error"
        server.wait_until(lambda: server.num_busy == 0)
        assert server.client.post(path, json=body).status_code == 200


class TestClientsThatLeave:
    @pytest.mark.parametrize("streams", [True, False])
    def test_their_work_stops(self, slow: ServedDemo, streams: bool) -> None:
        with raw(slow, LONG | {"stream": streams}):
            slow.wait_until(lambda: slow.num_busy == 1)
        slow.wait_until(lambda: slow.num_busy == 0)

    def test_also_before_their_turn(self, slow: ServedDemo) -> None:
        with raw(slow, LONG) as first:
            others = [raw(slow, LONG) for _ in range(6)]
            for other in others:
                other.__enter__()
            slow.wait_until(lambda: slow.num_busy == 7)
            for other in others:
                other.__exit__(None, None, None)
            slow.wait_until(lambda: slow.num_busy == 1)
            assert first.fileno() >= 0


def test_a_reader_that_does_not_read_holds_nobody(demo: ServedDemo) -> None:
    with raw(demo, LONG | {"stream": True}), raw(demo, LONG | {"stream": True}):
        texts = {demo.complete(max_tokens=50).json()["choices"][0]["text"] for _ in range(4)}
    assert len(texts) == 1
    demo.wait_until(lambda: demo.num_busy == 0)


def test_a_reader_that_stopped_is_cut(serve_demo: Serve) -> None:
    """Kilobytes of logprobs per token fill the buffers of the connection."""
    limits = RequestLimits(stall_seconds=0.3)
    server = serve_demo(app=lambda **given: AppSettings(limits=limits, **given))
    with raw(server, LONG | {"stream": True, "logprobs": 5, "n": 8}) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.wait_until(lambda: server.num_busy == 0)
        assert server.complete().status_code == 200
    assert server.lines == []


def test_requests_are_logged_on_one_line_each(serve_demo: Serve) -> None:
    server = serve_demo(app=lambda **given: AppSettings(logs_requests=True, **given))
    server.client.get("/health")
    server.client.get("/no%0Aforged line")
    server.wait_until(lambda: len(server.lines) == 2)
    first, second = server.lines
    assert first.startswith("GET '/health' 200 ")
    assert second.startswith("GET '/no\\nforged line' 404 ")


class TestFaults:
    def test_an_exception_is_a_500_and_the_next_request_works(self, demo: ServedDemo) -> None:
        submit = demo.scheduler.submit

        def fail(*arguments: Any, **named: Any) -> None:
            raise KeyError("secret")

        demo.scheduler.submit = fail
        try:
            response = demo.complete()
        finally:
            demo.scheduler.submit = submit
        assert response.status_code == 500
        assert response.json()["error"]["code"] == "server_error"
        assert "secret" not in response.text
        demo.wait_until(lambda: any("KeyError" in line for line in demo.lines))
        assert "KeyError" in demo.lines[-1]
        assert demo.complete().status_code == 200

    def test_a_step_that_fails_ends_its_answers_and_the_next_works(self, serve_demo: Serve) -> None:
        server = serve_demo()

        def fail() -> bool:
            raise ValueError("bug")

        server.scheduler.step = fail
        assert server.complete().status_code == 500
        assert server.complete().status_code == 200


class TestStopping:
    def test_open_answers_end_first(self, serve_demo: Serve) -> None:
        server = serve_demo()
        server.slow_down(0.01)
        results: list[httpx.Response] = []

        def ask() -> None:
            results.append(server.complete(max_tokens=50, ignore_eos=True))

        asking = threading.Thread(target=ask)
        asking.start()
        server.wait_until(lambda: server.num_busy == 1)
        server.begin_to_stop()
        asking.join(60)
        assert results[0].json()["usage"]["completion_tokens"] == 50

    def test_no_answer_that_never_began_is_given_as_an_empty_one(self, serve_demo: Serve) -> None:
        server = serve_demo(
            host=ModelHostSettings(MODEL, max_parallel=1, max_waiting=8), grace_seconds=0.3
        )
        server.slow_down(0.05)
        results: list[httpx.Response] = []
        asking = threading.Thread(target=lambda: results.append(server.complete(**LONG, n=3)))
        asking.start()
        server.wait_until(lambda: server.num_busy >= 1)
        server.begin_to_stop()
        asking.join(60)
        assert results[0].status_code == 503
        assert "stopping" in results[0].json()["error"]["message"]

    def test_what_takes_too_long_is_cut_with_a_proper_end(self, serve_demo: Serve) -> None:
        server = serve_demo(grace_seconds=0.2)
        server.slow_down(0.05)
        with server.client.stream("POST", COMPLETIONS, json=LONG | {"stream": True}) as response:
            lines = response.iter_lines()
            first = next(lines)
            server.begin_to_stop()
            events = [line for line in (first, *lines) if line]
        assert events[-1] == "data: [DONE]"
        ends = [json.loads(each[6:]) for each in events[:-1]]
        reasons = [each["choices"][0]["finish_reason"] for each in ends if each.get("choices")]
        assert reasons[-1] is not None
        assert 1 < len(reasons) < 100
