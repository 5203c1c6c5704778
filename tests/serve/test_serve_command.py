"""`sharpi serve` and `sharpi ps` as programs: the ready line, shutdown, and refusals."""

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from forked_program import ForkedProgram

pytestmark = pytest.mark.native

READY = "serving stories-moe at "


class Program:
    """`sharpi ARGUMENTS` in a process of its own, or `python -c CODE`."""

    def __init__(self, *arguments: str, code: str = "") -> None:
        self.process = ForkedProgram(*(("-c", code) if code else ("-m", "sharpi", *arguments)))

    def url(self) -> str:
        """Waits for the ready line and returns its URL."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith(READY), line or self.end()
        return line.removeprefix(READY).strip()

    def end(self, number: int | None = None) -> tuple[int, str, str]:
        """Returns exit code, stdout and stderr, after a signal if one is given."""
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def sharpi() -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def start(*arguments: str, **others: str) -> Program:
        programs.append(Program(*arguments, **others))
        return programs[-1]

    yield start
    for program in programs:
        if program.process.poll() is None:
            program.process.kill()
            program.process.communicate()


Sharpi = Callable[..., Program]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_from_the_ready_line_to_a_clean_stop(sharpi: Sharpi, tmp_path: Path, number: int) -> None:
    stats = tmp_path / "stats.json"
    server = sharpi("serve", "--port", "0", "--moe-slots", "4", "--expert-stats", str(stats))
    url = server.url()
    assert httpx.get(url + "/health", timeout=60).status_code == 200
    body = {"prompt": "Once", "max_tokens": 5}
    assert httpx.post(url + "/v1/completions", json=body, timeout=60).status_code == 200
    code, out, err = server.end(number)
    assert (code, out) == (0, "")
    assert "warning" not in err
    assert "Traceback" not in err
    assert json.loads(stats.read_text("utf-8"))["num_tokens"] > 0


_SIGNALS_ITSELF = """
import os, signal, sys
from sharpi.cli.main import main
class Output:
    def write(self, text):
        if text.startswith("serving "):
            os.kill(os.getpid(), signal.{number})
        return sys.__stdout__.write(text)
    def flush(self):
        sys.__stdout__.flush()
    def isatty(self):
        return False
sys.stdout = Output()
sys.argv = ["sharpi", "serve", "--port", "0", "--moe-slots", "4", "--expert-stats", {stats!r}]
sys.exit(main())
"""


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_signal_right_at_the_ready_line_is_a_clean_stop(
    sharpi: Sharpi, tmp_path: Path, number: str
) -> None:
    code = _SIGNALS_ITSELF.format(number=number, stats=str(tmp_path / "stats.txt"))
    returncode, out, err = sharpi(code=code).end()
    assert returncode == 0, err
    assert out.startswith(READY)
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.parametrize(("grace", "num_signals"), [("0", 1), ("600", 2)])
def test_running_answers_get_a_proper_end(sharpi: Sharpi, grace: str, num_signals: int) -> None:
    server = sharpi("serve", "--port", "0", "--grace", grace, "-c", "8192")
    body = {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", server.url() + "/v1/completions", json=body, timeout=60) as response:
        lines = response.iter_lines()
        next(lines)
        for _ in range(num_signals):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert server.end()[0] == 0


def test_a_port_in_use_is_one_line(sharpi: Sharpi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        code, out, err = sharpi("serve", "--port", port).end()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"port {port}" in err
    assert "--port" in err


def test_a_file_that_is_no_model_is_one_line(sharpi: Sharpi, tmp_path: Path) -> None:
    file = tmp_path / "bad.gguf"
    file.write_bytes(b"nonsense")
    code, out, err = sharpi("serve", str(file), "--port", "0").end()
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_everybody_without_a_key_is_warned_of(sharpi: Sharpi) -> None:
    server = sharpi("serve", "--host", "0.0.0.0", "--port", "0")
    server.url()
    assert "warning: " in server.end(signal.SIGTERM)[2]
    server = sharpi("serve", "--host", "0.0.0.0", "--port", "0", "--api-key", "k")
    url = server.url()
    assert httpx.get(url + "/props", timeout=60).status_code == 401
    assert "warning" not in server.end(signal.SIGTERM)[2]


class TestPs:
    def test_lists_what_runs(self, sharpi: Sharpi) -> None:
        server = sharpi("serve", "--port", "0", "--api-key", "secret")
        url = server.url()
        code, out, _ = sharpi("ps").end()
        assert code == 0
        heading, row = out.splitlines()
        assert heading.startswith("MODEL")
        for text in ("stories-moe", url, "loaded", "ram ", str(server.process.pid)):
            assert text in row
        _, out, _ = sharpi("ps", "--json").end()
        (about,) = json.loads(out)
        assert (about["url"], about["state"], about["pid"]) == (url, "loaded", server.process.pid)
        assert "secret" not in out
        server.process.kill()
        server.process.wait()
        assert json.loads(sharpi("ps", "--json").end()[1]) == []

    def test_without_servers(self, sharpi: Sharpi) -> None:
        code, out, err = sharpi("ps").end()
        assert (code, out) == (0, "")
        assert "sharpi serve" in err


@pytest.mark.slow
def test_idle_models_are_unloaded_and_come_again(sharpi: Sharpi) -> None:
    server = sharpi("serve", "--port", "0", "--idle-unload", "0.005")
    url, maps = server.url(), Path(f"/proc/{server.process.pid}/maps")
    body = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 3}
    assert httpx.post(url + "/v1/chat/completions", json=body, timeout=60).status_code == 200
    deadline = time.monotonic() + 60
    while "stories-moe.gguf" in maps.read_text("utf-8"):
        assert time.monotonic() < deadline, "the file is still mapped"
        time.sleep(0.05)
    while httpx.get(url + "/health", timeout=60).json()["model"] != "idle":
        assert time.monotonic() < deadline, "the model is not idle"
        time.sleep(0.05)
    assert httpx.post(url + "/v1/chat/completions", json=body, timeout=60).status_code == 200
    assert "idle" in server.end(signal.SIGTERM)[2]
