"""The terminal's modes after a chat, however it ends, and Ctrl-C where no answer comes."""

import termios
import time
from pathlib import Path

import pytest

pytest.importorskip("pyte")
pytest.importorskip("prompt_toolkit")
from terminal import FAKE_ENGINE, SHARPI, Terminal

DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
INPUT, LOCAL = 0, 3


def echoes(terminal: Terminal) -> bool:
    flags = termios.tcgetattr(terminal._ours)
    return bool(flags[LOCAL] & termios.ECHO) and bool(flags[INPUT] & termios.ICRNL)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4])
def test_ctrl_c_while_the_model_is_loaded_leaves_the_terminal_as_it_was(
    tmp_path: Path, delay: float
) -> None:
    with Terminal((*SHARPI, "chat", str(DEMO)), tmp_path) as terminal:
        wait_until(lambda: not echoes(terminal))
        time.sleep(delay)  # at several moments of the start, whichever they are
        terminal.type("\x03")
        wait_until(lambda: terminal.process.poll() is not None or asks_again(terminal))
        if terminal.process.poll() is None:
            terminal.wait_for_line()  # keys typed before it are discarded
        terminal.type("\x04")  # which leaves a chat that was quicker and asks
        assert terminal.wait() in (130, 0)
        assert echoes(terminal)
        assert "Traceback" not in terminal.text


@pytest.mark.parametrize("end", ["/exit\r", "\x04"])
def test_leaving_restores_the_terminal(tmp_path: Path, end: str) -> None:
    with Terminal((*FAKE_ENGINE, "chat", "m.gguf"), tmp_path) as terminal:
        terminal.wait_for("0 of 64 tokens")
        terminal.type(end)
        assert terminal.wait() == 0
        assert echoes(terminal)


def asks_again(terminal: Terminal) -> bool:
    terminal.read(0.02)
    return "/exit leaves" in terminal.text


def wait_until(holds: object, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)
