"""Requests that are made to take the server's memory, time or connections."""

import gc
import json
import resource
import select
import socket
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from served_demo import MODEL, ServedDemo

from sharpi.serve.app import AppSettings
from sharpi.serve.host.model_host import ModelHostSettings
from sharpi.serve.http.access import Access
from sharpi.serve.http.client_connection import RequestLimits

pytestmark = pytest.mark.native

LONG = 6_000_000  # characters; the context has 512 tokens
Serve = Callable[..., ServedDemo]
HELLO = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def roomy() -> Iterator[ServedDemo]:
    """Yields a server that takes long bodies, so that other bounds have to hold."""
    limits = RequestLimits(64 << 20, part_seconds=0.4)
    server = ServedDemo(app=lambda **given: AppSettings(limits=limits, **given))
    yield server
    server.stop()


class TestPromptsThatCannotFit:
    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/completions", {"prompt": "ab " * (LONG // 3)}),
            ("/v1/completions", {"prompt": [" " * LONG]}),
            ("/v1/completions", {"prompt": "\U0001f600" * (LONG // 4)}),
            ("/tokenize", {"content": "x" * LONG}),
            (
                "/v1/messages/count_tokens",
                {"messages": [{"role": "user", "content": "y" * LONG}]},
            ),
        ],
        ids=["words", "blanks", "emoji", "text to tokenize", "messages to count"],
    )
    def test_are_refused_unread(
        self, roomy: ServedDemo, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
    ) -> None:
        lengths: list[int] = []
        tokenizer = type(roomy.host.tokenizer)
        encode = tokenizer.encode

        def watched(self: Any, text: str, **options: Any) -> list[int]:
            lengths.append(len(text))
            return encode(self, text, **options)

        monkeypatch.setattr(tokenizer, "encode", watched)
        response = roomy.client.post(path, json=body)
        assert response.status_code == 400
        assert "context" in response.json()["error"]["message"]
        assert max(lengths, default=0) <= 1 << 16

    def test_a_body_is_no_longer_than_a_context_can_need(self, demo: ServedDemo) -> None:
        assert demo.host.max_body_bytes < 2 << 20
        response = demo.client.post("/v1/completions", content=b" " * (30 << 20))
        assert response.status_code == 413


def test_json_that_is_nested_too_deeply_is_refused(demo: ServedDemo) -> None:
    content = b'{"prompt":' + b"[" * 1_000_000
    assert demo.client.post("/v1/completions", content=content).status_code == 400


def raw(server: ServedDemo, request: bytes) -> bytes:
    """Returns all that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


class TestFraming:
    def test_two_lengths_are_refused_and_the_connection_closed(self, demo: ServedDemo) -> None:
        request = (
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n"
            b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n"
        )
        answer = raw(demo, request + b"GET /props HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1

    def test_too_many_headers_are_refused_and_the_connection_closed(self, demo: ServedDemo) -> None:
        head = b"GET /props HTTP/1.1\r\nHost: localhost\r\n"
        last = b"Connection: close\r\n\r\n"
        assert raw(demo, head + b"X: a\r\n" * 198 + last).startswith(b"HTTP/1.1 200 ")
        answer = raw(demo, head + b"X: a\r\n" * 10_000 + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert b"10001 headers; the limit is 200" in answer

    def test_a_long_head_is_refused_though_it_comes_at_once(self, demo: ServedDemo) -> None:
        head = b"GET /props HTTP/1.1\r\nHost: localhost\r\nX: "
        answer = raw(demo, head + b"a" * 65_536 + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert answer.count(b"HTTP/1.1 ") == 1

    def test_other_versions_of_http_are_refused(self, demo: ServedDemo) -> None:
        answer = raw(demo, b"GET /props HTTP/2.0\r\nHost: localhost\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 505 ")

    def test_a_whole_address_names_the_host(self, serve_demo: Serve) -> None:
        access = Access(host_names=["127.0.0.1"])
        server = serve_demo(app=lambda **given: AppSettings(access, **given))
        end = b" HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
        assert raw(server, b"GET http://127.0.0.1/props" + end).startswith(b"HTTP/1.1 200 ")
        end = end.replace(b"evil.example", b"127.0.0.1")
        assert raw(server, b"GET http://evil.example/props" + end).startswith(b"HTTP/1.1 403 ")

    def test_a_client_that_closes_its_side_is_gone(self, demo: ServedDemo) -> None:
        # Long enough that its end comes long after the client's.
        body = json.dumps({"prompt": "Once", "max_tokens": 400, "ignore_eos": True}).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", demo.port), timeout=60) as connection:
            connection.sendall(head.encode() + body)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1 << 16) == b""

    def test_http_1_0_needs_no_host(self, serve_demo: Serve) -> None:
        access = Access(host_names=["127.0.0.1"])
        server = serve_demo(app=lambda **given: AppSettings(access, **given))
        assert raw(server, b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        answer = raw(server, b"GET /props HTTP/1.0\r\nHost: evil.example\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")

    def test_a_body_where_none_belongs_is_not_read(self, demo: ServedDemo) -> None:
        for path in ("/health", "/", "/page/js/app.js", "/nothing"):
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n"
            answer = raw(demo, head.encode() + b"x" * 1000)
            assert answer.startswith((b"HTTP/1.1 405 ", b"HTTP/1.1 404 "))

    def test_a_body_that_drips_is_given_up(self, roomy: ServedDemo) -> None:
        head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
        with socket.create_connection(("127.0.0.1", roomy.port), timeout=60) as connection:
            connection.sendall(head)
            connection.settimeout(0.1)
            for _ in range(600):
                try:
                    connection.sendall(b" ")
                    answer = connection.recv(1000)
                    break
                except TimeoutError:
                    continue
        assert answer.startswith(b"HTTP/1.1 408 ")


class TestTypesOfBodies:
    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
    def test_web_pages_may_send_are_refused(self, demo: ServedDemo, kind: str) -> None:
        body = json.dumps({"prompt": "a"})
        headers = {"Content-Type": kind}
        response = demo.client.post("/v1/completions", content=body, headers=headers)
        assert response.status_code == 415

    def test_a_page_has_to_say_the_type(self, demo: ServedDemo) -> None:
        headers = {"Origin": demo.url}
        response = demo.client.post("/tokenize", content=b'{"content":"a"}', headers=headers)
        assert response.status_code == 415
        response = demo.client.post("/tokenize", json={"content": "a"}, headers=headers)
        assert response.status_code == 200


@pytest.mark.slow
def test_long_bodies_of_many_clients_take_turns(serve_demo: Serve) -> None:
    limits = RequestLimits(1 << 20)
    server = serve_demo(app=lambda **given: AppSettings(limits=limits, **given))
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    for connection in connections:
        connection.settimeout(60)
        connection.sendall(head + b" " * 900_000)
    refused: set[socket.socket] = set()
    while len(refused) < 4:  # the others, 3.6 MB, are within four times the longest body
        answered = select.select([each for each in connections if each not in refused], [], [], 60)
        assert answered[0], "more than half of the bodies are held"
        assert all(each.recv(12) == b"HTTP/1.1 429" for each in answered[0])
        refused.update(answered[0])
    assert server.complete().status_code == 200
    for connection in connections:
        connection.close()


def test_a_request_may_ask_for_more_answers_than_the_queue_holds(demo: ServedDemo) -> None:
    prompts = ["Once upon a time"] * 128
    choices = demo.complete(prompt=prompts, max_tokens=2).json()["choices"]
    assert [each["index"] for each in choices] == list(range(128))
    assert len({each["text"] for each in choices}) == 1


@pytest.mark.slow
def test_costly_grammars_do_not_delay_others(demo: ServedDemo) -> None:
    """Each pattern takes the two processor seconds that it may have."""
    statuses: list[int] = []

    def compile_one(number: int) -> None:
        patterns = [{"pattern": f"^(a|b|ab|{number})*x.{{{90 + number}}}$"} for _ in range(3)]
        form = {"type": "json_schema", "json_schema": {"schema": {"allOf": patterns}}}
        body = {"messages": HELLO, "max_tokens": 1, "response_format": form}
        with httpx.Client(base_url=demo.url, timeout=120, trust_env=False) as client:
            statuses.append(client.post("/v1/chat/completions", json=body).status_code)

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    demo.wait_until(lambda: 429 in statuses)
    before = sum(thread.is_alive() for thread in threads)
    assert before > 0
    body = {"messages": HELLO, "max_tokens": 1}
    assert demo.client.post("/v1/chat/completions", json=body).status_code == 200
    assert sum(thread.is_alive() for thread in threads) > 0, "the chat waited for all grammars"
    for thread in threads:
        thread.join(120)
    assert set(statuses) <= {200, 400, 429}


@pytest.mark.slow
def test_those_that_wait_at_the_stop_get_a_503(serve_demo: Serve) -> None:
    settings = ModelHostSettings(MODEL, max_parallel=1, max_waiting=8)
    server = serve_demo(host=settings, grace_seconds=0.3)
    server.slow_down(0.05)
    statuses: list[int] = []

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            body = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True}
            statuses.append(client.post("/v1/completions", json=body).status_code)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    server.wait_until(lambda: server.num_busy == 4)
    server.begin_to_stop()
    for thread in threads:
        thread.join(60)
    assert sorted(statuses) == [200, 503, 503, 503]


class TestWhatClientsExpect:
    def test_a_request_id(self, demo: ServedDemo) -> None:
        ids = {demo.client.get("/health").headers["x-request-id"] for _ in range(3)}
        assert len(ids) == 3
        refused = demo.client.post("/v1/messages", json={})
        assert refused.headers["request-id"].startswith("req_")

    def test_the_length_of_the_context(self, demo: ServedDemo) -> None:
        [model] = demo.client.get("/v1/models").json()["data"]
        assert model["context_length"] == model["max_model_len"] == 512
        assert model["meta"]["n_ctx"] == 512

    def test_paths_without_v1(self, demo: ServedDemo) -> None:
        body = {"messages": HELLO, "max_tokens": 1}
        assert demo.client.post("/chat/completions", json=body).status_code == 200
        assert demo.client.get("/models").status_code == 200
        assert demo.client.get(f"/models/{MODEL}").status_code == 200
        asked = {"model": MODEL, **body}
        assert demo.client.post("/messages", json=asked).json()["type"] == "message"
        counted = demo.client.post(
            "/messages/count_tokens", json={"model": MODEL, "messages": HELLO}
        )
        assert counted.json()["input_tokens"] > 0
        refused = demo.client.post("/messages", json=asked | {"max_tokens": 0}).json()
        assert refused["error"]["type"] == "invalid_request_error"
        assert refused["type"] == "error"

    def test_foreign_parameters_that_change_nothing(self, demo: ServedDemo) -> None:
        neutral = {
            "mirostat": 0,
            "mirostat_tau": 5.0,
            "typical_p": 1.0,
            "tfs_z": 1,
            "dry_multiplier": 0.0,
            "xtc_probability": 0,
            "use_beam_search": False,
            "skip_special_tokens": True,
            "min_tokens": 0,
            "n_keep": 0,
            "samplers": [],
            "n_predict": 2,
            "max_tokens": None,
        }
        response = demo.client.post("/v1/completions", json={"prompt": "Once", **neutral})
        assert response.json()["usage"]["completion_tokens"] <= 2
        for name, value in (("mirostat", 2), ("mirostat", True), ("min_tokens", 5)):
            error = demo.complete(**{name: value}).json()["error"]
            assert error["param"] == name
            assert "cannot be honoured" in error["message"]

    def test_minus_one_token_is_no_limit(self, demo: ServedDemo) -> None:
        choice = demo.complete(max_tokens=-1, prompt="The end.", stop=["a"]).json()["choices"][0]
        assert choice["finish_reason"] in ("stop", "length")

    def test_a_tool_has_a_name(self, demo: ServedDemo) -> None:
        tool = {"type": "function", "function": {"name": " "}}
        body = {"messages": HELLO, "tools": [tool]}
        error = demo.client.post("/v1/chat/completions", json=body).json()["error"]
        assert error["param"] == "tools[0].name"

    def test_anthropics_tool_runner_is_told_how_to_go_on(self, demo: ServedDemo) -> None:
        body = {"messages": HELLO, "max_tokens": 1, "thread": {"type": "new"}}
        response = demo.client.post("/v1/messages", json=body)
        assert response.status_code == 400
        details = response.json()["error"]["details"]
        assert details["error_code"] == "thread_unsupported_request"


class TestEchoedLogprobs:
    def test_are_those_of_the_model(self, demo: ServedDemo) -> None:
        prompt = "Once upon a time there was a little girl."
        asked = {"prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 0}
        [choice] = demo.complete(**asked).json()["choices"]
        lists = choice["logprobs"]
        assert choice["text"] == prompt
        assert lists["token_logprobs"][0] is lists["top_logprobs"][0] is None
        assert lists["text_offset"][0] == 0
        count = len(lists["tokens"])
        assert count == len(demo.host.tokenizer.encode(prompt, add_bos=True, parse_special=True))
        # The same tokens, generated: the greedy continuation is scored as it was chosen.
        story = demo.complete(prompt=prompt, max_tokens=6, logprobs=0).json()["choices"][0]
        ids = demo.host.tokenizer.encode(prompt, add_bos=True, parse_special=True)
        chosen = demo.host.tokenizer.encode(story["text"], add_bos=False, parse_special=False)
        asked |= {"prompt": [*ids, *chosen], "logprobs": 0, "max_tokens": 1}
        [whole] = demo.complete(**asked).json()["choices"]
        again = whole["logprobs"]["token_logprobs"]
        assert len(again) == count + len(chosen) + 1
        expected = story["logprobs"]["token_logprobs"]
        assert again[count : count + len(chosen)] == pytest.approx(expected, abs=1e-3)
        assert whole["text"].startswith(prompt + story["text"])

    def test_pages_come_back(self, demo: ServedDemo) -> None:
        for _ in range(3):
            asked = {"prompt": "Once " * 80, "echo": True, "logprobs": 0, "max_tokens": 1}
            assert demo.complete(**asked).status_code == 200
        demo.wait_until(lambda: demo.scheduler.cache.num_in_use == 0)

    def test_a_prompt_that_does_not_fit(self, demo: ServedDemo) -> None:
        ids = [5] * 600
        response = demo.complete(prompt=ids, echo=True, logprobs=0)
        assert response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.slow
def test_refused_bodies_are_forgotten_at_once(roomy: ServedDemo) -> None:
    """The memory is freed without the garbage collector, which would run much later."""
    body = json.dumps({"prompt": "word " * 400_000})
    connection = HTTPConnection("127.0.0.1", roomy.port, timeout=60)  # leaves no garbage itself

    def post() -> int:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", body, headers)
        response = connection.getresponse()
        response.read()
        return response.status

    gc.disable()
    try:
        assert {post() for _ in range(5)} == {400}
        before = resident_bytes()
        assert {post() for _ in range(25)} == {400}
        assert resident_bytes() - before < 30 << 20  # a body has 2 MB
    finally:
        gc.enable()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
