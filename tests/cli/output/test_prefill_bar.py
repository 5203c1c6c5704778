"""The bar while a prompt is computed, and Ctrl-C in there, at a real terminal with the demo."""

import time
from pathlib import Path

import pytest

pytest.importorskip("pyte")
from terminal import SHARPI, Terminal

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "models" / "demo" / "stories-moe.gguf"
SLOW = ("-c", "20000", "--isa", "portable", "-t", "1", "-n", "4")
pytestmark = pytest.mark.native


@pytest.fixture
def long_prompt(tmp_path: Path) -> Path:
    path = tmp_path / "prompt"
    path.write_text("Once upon a time there was a cat. " * 1500)
    return path


def run_it(state: Path, prompt: Path) -> Terminal:
    arguments = ("run", str(DEMO), "-f", str(prompt), *SLOW)
    return Terminal((*SHARPI, *arguments), state, SHARPI_NO_LOG="1")


@pytest.mark.slow
def test_the_bar_moves_and_ctrl_c_ends_it(tmp_path: Path, long_prompt: Path) -> None:
    with run_it(tmp_path, long_prompt) as terminal:
        screen = terminal.wait_for(lambda text: "tokens/s" in text and " left" in text)
        assert "reading the prompt" in screen
        seen = {screen}
        while len(seen) < 3:
            terminal.read(0.05)
            seen.add(terminal.text)
        terminal.type("\x03")
        assert terminal.wait() == 130
        assert b"\x1b[?25h" in terminal.written.rpartition(b"\x1b[?25l")[2]  # the cursor is back
        text = "".join(terminal.text.splitlines())  # as it was before the terminal broke lines
    assert "cat" not in terminal.text  # the prompt is not printed
    assert "reading the prompt" not in terminal.text
    assert "note: interrupted after " in text


@pytest.mark.speed
def test_ctrl_c_ends_it_within_a_third_of_a_second(tmp_path: Path, long_prompt: Path) -> None:
    seconds = []
    for _ in range(5):
        with run_it(tmp_path, long_prompt) as terminal:
            terminal.wait_for(" left")
            start = time.monotonic()
            terminal.type("\x03")
            assert terminal.wait() == 130
            seconds.append(time.monotonic() - start)
    assert sorted(seconds)[2] < 0.3, seconds


@pytest.mark.slow
def test_a_chat_goes_on_after_it(tmp_path: Path, long_prompt: Path) -> None:
    chat = (*SHARPI, "chat", str(DEMO), *SLOW)
    with Terminal(chat, tmp_path, SHARPI_NO_LOG="1") as terminal:
        terminal.wait_for(waits_for_input)
        terminal.type(f"/load {long_conversation(tmp_path, long_prompt)}\r")
        terminal.wait_for("Loaded 2 messages")
        terminal.wait_for(waits_for_input)
        terminal.type("And then\r")
        terminal.wait_for("reading the prompt")
        terminal.type("\x03")
        terminal.wait_for("note: interrupted")
        terminal.wait_for(waits_for_input)
        terminal.type("/stats\r")
        terminal.wait_for("tokens of context in use")


def waits_for_input(screen: str) -> bool:
    return any(line.strip() == ">" for line in screen.splitlines())


def long_conversation(folder: Path, prompt: Path) -> Path:
    import json

    path = folder / "talk.json"
    turn = {"role": "user", "content": prompt.read_text()}
    path.write_text(json.dumps({"messages": [turn, {"role": "assistant", "content": "."}]}))
    return path
