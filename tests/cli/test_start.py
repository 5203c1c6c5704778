"""The process from its first instant: Ctrl-C while it starts, closed streams, lost terminals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "models" / "demo" / "stories-moe.gguf"
pytestmark = pytest.mark.native


def started(*arguments: str, **options: object) -> "subprocess.Popen[bytes]":
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(
        [sys.executable, "-m", "sharpi", *arguments],
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "SHARPI_NO_LOG": "1"},
        **options,  # type: ignore[call-overload]
    )


ENDLESS = ("-p", "Once", "-n", "1000000", "--ignore-eos", "--context-shift")
READY = (
    "import sys; from sharpi.cli.start import exit_on_ctrl_c, main; exit_on_ctrl_c();"
    "print('ready', flush=True); sys.exit(main())"
)


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.06 * step for step in range(6)])
def test_ctrl_c_at_any_moment_of_the_start_is_silent(delay: float) -> None:
    """The delays begin at sharpi's first line, since a busy machine starts Python slowly."""
    process = subprocess.Popen(
        [sys.executable, "-c", READY, "run", str(DEMO), *ENDLESS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job may ignore it
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert b"Error" not in errors
    assert b"Exception" not in errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "closed"),
    [
        (f"run {DEMO} -p x -n 4", ">&-"),
        (f"run {DEMO} -p x -n 4", "<&- >&- 2>&-"),
        (f"chat {DEMO} -n 4", "<&-"),
        (f"chat {DEMO} -n 4", "2>&-"),
        ("list", ">&-"),
    ],
)
def test_closed_streams_are_no_failure(command: str, closed: str) -> None:
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m sharpi {command} {closed}"],
        cwd=ROOT,
        input=b"hello\n",
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "SHARPI_NO_LOG": "1"},
    )
    assert result.returncode == 0, result
    assert b"error" not in result.stdout + result.stderr


def test_an_error_without_stderr_does_not_land_on_stdout() -> None:
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m sharpi run /no/such.gguf -p x 2>&-"],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, b"")


def test_a_terminal_that_hangs_up_ends_the_program(tmp_path: Path) -> None:
    stats = tmp_path / "stats.txt"
    process = started(
        *("run", str(DEMO), *ENDLESS, "--raw", "--expert-stats", str(stats)),
    )
    assert process.stdout is not None
    process.stdout.read(40)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP
    assert b"Traceback" not in errors
    assert stats.exists()


@pytest.mark.slow
def test_nohup_keeps_it_running() -> None:
    process = started(
        *("run", str(DEMO), "-p", "Once", "-n", "300", "--ignore-eos"),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdout is not None
    process.stdout.read(8)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("both", ["", "2>&1"])
def test_a_reader_that_leaves_is_no_failure(both: str) -> None:
    line = f"{sys.executable} -m sharpi run {DEMO} -p Once -n 300 --ignore-eos {both} | head -c 9"
    result = subprocess.run(
        ["bash", "-c", f"{line}; echo ${{PIPESTATUS[0]}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout.splitlines()[-1].endswith("0")
    assert "Traceback" not in result.stderr
    assert "Exception" not in result.stderr
