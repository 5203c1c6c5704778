"""`sharpi pull` as a program, against a stand-in of the hub."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from stand_in import StandIn

from sharpi.resources import demo_model

ROOT = Path(__file__).parents[3]
REPO = "org/tiny-GGUF"
DATA = bytes(range(256)) * 4096


@pytest.fixture
def hub() -> Iterator[StandIn]:
    with StandIn() as running:
        yield running


@pytest.fixture
def environment(hub: StandIn, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    return kept | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "COLUMNS": "100"}


def start(environment: dict[str, str], *arguments: str, stderr: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sharpi", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=stderr
    )


def program(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    process = start(environment, *arguments, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.slow
def test_pull_and_then_use_the_name(hub: StandIn, environment: dict[str, str]) -> None:
    hub.add(REPO, {"tiny-Q8_0.gguf": demo_model().read_bytes(), "tiny-F16.gguf": b"other"})
    code, out, err = program(environment, "pull", f"{REPO}:q8_0")
    assert code == 0, err
    assert Path(out.strip()).read_bytes() == demo_model().read_bytes()
    lines = err.splitlines()
    assert lines[0].startswith("fetching tiny-Q8_0.gguf (")
    assert lines[1] == "tiny-Q8_0.gguf is complete, checksum verified"
    assert lines[2].endswith(f"; now `sharpi run {REPO}:Q8_0`")
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    code, ids, err = program(offline, "tokenize", f"{REPO}:Q8_0", "Once")
    assert (code, err) == (0, "")
    assert ids == program(environment, "tokenize", str(demo_model()), "Once")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing"], 2, "ORG/REPO:QUANT"),
        ([f"{REPO}:Q8_0@v1", "--revision", "v2"], 2, "--revision"),
        ([f"{REPO}:Q4_0"], 1, "there is Q8_0"),
    ],
)
def test_errors_are_one_line(
    hub: StandIn,
    environment: dict[str, str],
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    hub.add(REPO, {"tiny-Q8_0.gguf": DATA})
    result = program(environment, "pull", *arguments)
    assert (result[0], result[1], result[2].count("\n")) == (code, "", 1)
    assert result[2].startswith("error: ")
    assert message in result[2]


@pytest.mark.slow
def test_ctrl_c_and_the_same_command_again(hub: StandIn, environment: dict[str, str]) -> None:
    hub.add(REPO, {"tiny-Q8_0.gguf": DATA})
    hub.break_after = [500_000]
    process = start(environment, "pull", REPO, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("fetching")
    home = Path(environment["HF_HOME"])
    while process.poll() is None and not any(each.stat().st_size for each in home.rglob("*.gguf")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)  # while it waits before it tries again
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert f"`sharpi pull {REPO}` resumes it" in err
    assert program(environment, "pull", REPO)[0] == 0
    assert hub.content_requests()[-1].range != f"bytes=0-{len(DATA) - 1}"


@pytest.mark.slow
def test_a_terminal_sees_bytes_and_rate(hub: StandIn, environment: dict[str, str]) -> None:
    hub.add(REPO, {"tiny-Q8_0.gguf": DATA, "tiny-F16.gguf": b"other"})
    ours, theirs = pty.openpty()
    process = start(environment | {"TERM": "xterm"}, "pull", REPO, stderr=theirs)
    os.close(theirs)
    screen = b"".join(_read_all(ours)).decode()
    assert process.wait(timeout=60) == 0
    assert "note: org/tiny-GGUF:Q8_0, as no quant was named; there are also F16" in screen
    assert "tiny-Q8_0.gguf" in screen
    assert "1.0/1.0 MiB" in screen
    assert "/s" in screen


def _read_all(terminal: int) -> Iterator[bytes]:
    try:
        while data := os.read(terminal, 1 << 16):
            yield data
    except OSError:  # the program has closed its end
        os.close(terminal)


def test_without_the_library(sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for arguments in (["pull", REPO], ["list"], ["rm", REPO], ["run", f"{REPO}:Q8_0", "hi"]):
        result = sharpi(*arguments)
        assert (result.exit_code, result.err.count("\n")) == (2, 1)
        assert "the package huggingface_hub is missing; type pip install" in result.err
