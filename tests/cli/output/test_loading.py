"""Opening an engine: it is always closed, and the progress bar is for long loads at terminals."""

import io
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from sharpi.cli.output import loading
from sharpi.cli.output.loading import ProgressBar, open_engine
from sharpi.errors import UsageError
from sharpi.settings import RunConfig
from sharpi.system.process import notes_after_answer, print_running_note

pytest.importorskip("pyte")
from terminal import SHARPI, Terminal

CONFIG = RunConfig(Path("m.gguf"))


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_on(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, delay: float) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(loading, "DELAY_SECONDS", delay)
    monkeypatch.setenv("TERM", "xterm")
    with ProgressBar() as bar:
        bar.show("reading", 0.1)
        bar.show("preparing", 0.9)
    return stream.getvalue()


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(Screen(), monkeypatch, delay=10) == ""


def test_slow_work_shows_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown_on(Screen(), monkeypatch, delay=-1)
    assert "preparing" in text
    assert "90%" in text


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown_on(Screen(), monkeypatch, delay=-1)
    assert "preparing" in text
    assert "\x1b[3" not in text


def test_nothing_in_a_log_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on(io.StringIO(), monkeypatch, delay=-1) == ""


@pytest.mark.parametrize(
    "error", [None, UsageError("x"), KeyboardInterrupt(), BrokenPipeError(), SystemExit(143)]
)
def test_engine_is_closed_and_has_the_last_word(
    engine: FakeEngine, capsys: pytest.CaptureFixture[str], error: BaseException | None
) -> None:
    engine.notes, engine.last_words = ("first",), ("second", "third")
    with pytest.raises(type(error)) if error else nullcontext(), open_engine(CONFIG):
        assert not engine.is_closed
        assert capsys.readouterr().err == "note: first\n"
        if error is not None:
            raise error
    assert engine.is_closed
    assert capsys.readouterr().err == "note: second\nnote: third\n"


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


def test_at_once_without_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    print_running_note("the pin happened")
    assert capsys.readouterr().err == "note: the pin happened\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_terminal_gets_them_after_the_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    with notes_after_answer():
        print_running_note("one")
        during = capsys.readouterr().err
    assert during == ("" if is_terminal else "note: one\n")
    assert during + capsys.readouterr().err == "note: one\n"
    print_running_note("two")
    assert capsys.readouterr().err == "note: two\n"


def test_a_failing_answer_loses_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    @notes_after_answer()
    def answer() -> None:
        print_running_note("one")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        answer()
    assert capsys.readouterr().err == "note: one\n"
