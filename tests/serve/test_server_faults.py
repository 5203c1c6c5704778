"""Faults around a real server process: its file, its disk, its clients and its stop."""

import fcntl
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from forked_program import ForkedProgram

from sharpi.resources import demo_model

pytestmark = pytest.mark.native

ROOT = Path(__file__).parents[2]
COMPLETIONS = "/v1/completions"
LONG = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
SHORT = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}


class Server:
    """`sharpi serve FILE` in a process of its own, which may open `max_files`."""

    def __init__(self, *arguments: str, max_files: int | None = None) -> None:
        command = ("-m", "sharpi", "serve", *arguments, "--port", "0")
        self.process = ForkedProgram(*command, max_files=max_files)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().rpartition(" ")[2].strip()
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def text(self) -> str:
        response = self.client.post(COMPLETIONS, json=SHORT)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["text"])

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*arguments: str, **settings: int) -> Server:
        servers.append(Server(*arguments, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.client.close()
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copy(demo_model(), tmp_path / "own.gguf"))


Serve = Callable[..., Server]


def assert_failed(server: Server, response: httpx.Response) -> None:
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "unavailable"
    assert str(ROOT) not in response.text
    health = server.client.get("/health")
    assert (health.status_code, health.json()["model"]) == (503, "failed")
    assert server.process.poll() is None


def test_a_file_that_is_cut_short_is_an_error_and_a_new_one_is_loaded(
    serve: Serve, model: Path
) -> None:
    server = serve(str(model))
    text = server.text()
    os.truncate(model, 200_000)
    assert_failed(server, server.client.post(COMPLETIONS, json=SHORT))
    assert_failed(server, server.client.post(COMPLETIONS, json=SHORT))
    shutil.copy(demo_model(), model.with_suffix(".new"))
    model.with_suffix(".new").replace(model)
    assert server.text() == text
    assert server.client.get("/health").json() == {"status": "ok", "model": "loaded"}
    code, err = server.end()
    assert code == 0
    assert "Traceback" not in err
    assert str(model) in err


def test_a_file_that_is_cut_short_within_an_answer(serve: Serve, model: Path) -> None:
    server = serve(str(model))
    events: list[str] = []
    body = LONG | {"stream": True}
    with server.client.stream("POST", COMPLETIONS, json=body) as response:
        for line in response.iter_lines():
            if not events:
                os.truncate(model, 100_000)
            events += [line] if line else []
    assert "error" in json.loads(events[-1].removeprefix("data: "))
    assert server.client.get("/health").status_code == 503
    assert server.process.poll() is None


def test_a_file_that_is_overwritten_is_loaded_again(serve: Serve, model: Path) -> None:
    server = serve(str(model))
    text = server.text()
    content = model.read_bytes()
    with model.open("r+b") as file:
        file.write(content)
    os.utime(model, (1, 1))
    assert server.text() == text
    assert "changed while it was in use" in server.end()[1]


def zero_second_half(model: Path) -> None:
    size = model.stat().st_size
    with model.open("r+b") as file:
        file.seek(size // 2)
        file.write(bytes(size - size // 2))


@pytest.mark.slow
def test_a_file_that_is_overwritten_within_an_answer(serve: Serve, model: Path) -> None:
    server = serve(str(model), "-c", "8192")
    events: list[str] = []
    body = LONG | {"stream": True, "max_tokens": 8000}
    with server.client.stream("POST", COMPLETIONS, json=body) as response:
        for line in response.iter_lines():
            if not events:
                zero_second_half(model)
            events += [line] if line else []
    assert "error" in json.loads(events[-1].removeprefix("data: "))
    assert len(events) < 8000
    assert server.client.get("/health").status_code == 503
    for _ in range(2):  # what is loaded again holds zeros
        assert_failed(server, server.client.post(COMPLETIONS, json=SHORT))
    shutil.copy(demo_model(), model.with_suffix(".new"))
    model.with_suffix(".new").replace(model)
    assert server.text()
    assert server.client.get("/health").status_code == 200
    assert "only zeros" in server.end()[1]


def test_a_file_that_is_overwritten_while_nobody_asks(serve: Serve, model: Path) -> None:
    server = serve(str(model))
    server.text()
    zero_second_half(model)
    deadline = time.monotonic() + 60
    while server.client.get("/health").json()["model"] == "loaded":
        assert time.monotonic() < deadline, "nobody looked at the file"
        time.sleep(0.1)
    assert_failed(server, server.client.post(COMPLETIONS, json=SHORT))


def test_a_file_that_is_removed_or_replaced_stays_as_it_was(serve: Serve, model: Path) -> None:
    server = serve(str(model))
    text = server.text()
    other = model.with_suffix(".other")
    other.write_bytes(b"no model")
    other.replace(model)
    assert server.text() == text
    model.unlink()
    assert server.text() == text
    assert server.client.get("/health").status_code == 200


@pytest.mark.slow
def test_a_good_file_in_the_place_of_a_spoilt_one_is_loaded(serve: Serve, model: Path) -> None:
    server = serve(str(model))
    text = server.text()
    with model.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"\xff" * (4 << 20))
    for _ in range(2):
        assert_failed(server, server.client.post(COMPLETIONS, json=SHORT))
    assert server.client.get("/props").json()["state"] == "failed"
    shutil.copy(demo_model(), model.with_suffix(".new"))
    model.with_suffix(".new").replace(model)
    assert server.client.post(COMPLETIONS, json=SHORT).status_code == 503
    assert server.client.get("/health").json()["model"] == "failed"
    assert server.text() == text
    assert server.end()[0] == 0


def test_good_content_in_a_file_that_was_spoilt_is_served(serve: Serve, model: Path) -> None:
    server = serve(str(model))
    text, content = server.text(), model.read_bytes()
    with model.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"\xff" * (4 << 20))
    assert_failed(server, server.client.post(COMPLETIONS, json=SHORT))
    with model.open("r+b") as file:
        file.write(content)
    os.utime(model, (1, 1))
    assert server.text() == text
    assert server.client.get("/health").json() == {"status": "ok", "model": "loaded"}


def with_unread_log(serve: Serve, model: Path, num_requests: int) -> Server:
    """A server that has answered so many requests, a line each in a pipe of 4 KiB."""
    server = serve(str(model), "--log-requests")
    assert server.process.stderr is not None
    fcntl.fcntl(server.process.stderr, fcntl.F_SETPIPE_SZ, 4096)
    connection = HTTPConnection(server.client.base_url.netloc.decode(), timeout=60)
    for _ in range(num_requests):
        connection.request("GET", "/health")
        response = connection.getresponse()
        assert (response.status, response.read()[:1]) == (200, b"{")
    connection.close()
    return server


@pytest.mark.slow
def test_a_log_that_nobody_reads_holds_up_nothing(serve: Serve, model: Path) -> None:
    server = with_unread_log(serve, model, num_requests=1300)
    assert server.text()
    first = server.process.stderr.readline()
    code, err = server.end()
    lines = [first, *err.splitlines()]
    assert code == 0
    assert "/health" in first
    assert any("lines of the log were lost" in line for line in lines)
    assert "/v1/completions" in lines[-1]


def test_a_log_that_nobody_ever_reads_does_not_keep_the_server(serve: Serve, model: Path) -> None:
    server = with_unread_log(serve, model, num_requests=200)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0


def raw_request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def test_work_ends_with_clients_that_leave_in_the_midst(serve: Serve) -> None:
    server = serve("-c", "8192", "--parallel", "2")
    body = raw_request(LONG | {"max_tokens": 8000, "stream": True})
    port = int(server.url.rpartition(":")[2])
    for _ in range(6):
        connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        connection.sendall(body)
        connection.recv(100)
        connection.close()
    deadline = time.monotonic() + 90
    while server.client.get("/props").json()["answers_running"]:
        assert time.monotonic() < deadline, "the answers were still running"
        time.sleep(0.05)
    assert server.text()


@pytest.mark.slow
def test_sigterm_under_load_ends_every_answer(serve: Serve) -> None:
    server = serve("-c", "8192", "--parallel", "2", "--grace", "0.3")
    port = int(server.url.rpartition(":")[2])
    streams = [LONG | {"max_tokens": 8000, "stream": True}] * 2
    waiting = [LONG | {"max_tokens": 8000}] * 4
    connections = []
    for body in [*streams, *waiting]:
        connections.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        connections[-1].sendall(raw_request(body))
        if "stream" in body:
            assert connections[-1].recv(12) == b"HTTP/1.1 200"
    deadline = time.monotonic() + 90
    while server.client.get("/props").json()["answers_waiting"] < len(waiting):
        assert time.monotonic() < deadline, "the requests did not begin to wait"
        time.sleep(0.05)
    code, err = server.end()
    assert code == 0
    assert "Traceback" not in err
    answers = [b"".join(iter(lambda c=each: c.recv(1 << 16), b"")) for each in connections]
    for answer in answers[:2]:
        assert b"data: [DONE]" in answer
    for answer in answers[2:]:
        assert answer.startswith(b"HTTP/1.1 503 ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_for_statistics_costs_the_statistics_alone(
    serve: Serve, tmp_path: Path
) -> None:
    stats = tmp_path / "stats.json"
    stats.symlink_to("/dev/full")
    server = serve("--moe-slots", "4", "--expert-stats", str(stats))
    if server.process.poll() is not None or not server.url:
        _, err = server.process.communicate(timeout=60)
        assert err.count("\n") == 1, err
        return
    assert server.text()
    code, err = server.end()
    assert "Traceback" not in err
    assert code in (0, 1)
    assert str(stats) in err
