"""The editor of a chat, as a user sees it: keys, pastes, completion, the bottom line."""

import json
import re
import termios
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyte")
pytest.importorskip("prompt_toolkit")
from terminal import FAKE_ENGINE, SHARPI, Terminal, typed_in

from sharpi.hub.catalogue import ModelName

CHAT = (*FAKE_ENGINE, "chat", "m.gguf")
ANSWERS = json.dumps([["First."], ["Second."], ["Third."], ["Fourth."]])
UP, ALT_ENTER, CTRL_J, CTRL_R = "\x1b[A", "\x1b\r", "\n", "\x12"
BEGINS_A_LINE = b"\x1b[?2004h"  # the editor asks for brackets around what is pasted


class Chat(Terminal):
    """A chat with an engine that gives four answers; it waits for input."""

    def __init__(self, state: Path, scripts: str = ANSWERS, **env: str) -> None:
        super().__init__(CHAT, state, SCRIPTS=scripts, **env)
        self.state = state
        self.wait_for_line()

    def send(self, text: str) -> str:
        """Types a line, and returns the screen once the chat waits for the next line."""
        lines_before = self.written.count(BEGINS_A_LINE)
        self.type(text + "\r")
        self.wait_for(lambda _: self.written.count(BEGINS_A_LINE) > lines_before)
        return self.wait_for_line()

    def asked(self) -> list[str]:
        """The messages that were sent, from the history."""
        return typed_in(self.state)


def test_greeting_and_bottom_line(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        assert re.fullmatch(r"sharpi [0-9.]+ · m \(fake, no weights\)", chat.lines[0])
        assert chat.lines[1] == "context 64 tokens, on the CPU with 2 threads"
        chat.wait_for(lambda _: chat.lines[4] == " m · 0 of 64 tokens")
        chat.send("Hi")
        chat.wait_for("\n m · 21 of 64 tokens · 25.0 tokens/s")


def test_a_paste_of_several_lines_is_one_question(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        chat.paste("def f(x):\n    return x + \\\n        1\nprint(f(1))")
        chat.wait_for("print(f(1))")
        assert "First." not in chat.text
        chat.send("")
        assert chat.asked() == ["def f(x):\n    return x + \\\n        1\nprint(f(1))"]
        assert "First." in chat.text
        assert "Second." not in chat.text


@pytest.mark.parametrize("key", [ALT_ENTER, CTRL_J, "\\\r"], ids=["Alt-Enter", "Ctrl-J", "\\"])
def test_keys_that_begin_a_new_line(tmp_path: Path, key: str) -> None:
    with Chat(tmp_path) as chat:
        chat.type(f"one{key}two")
        chat.wait_for("... two")
        chat.send("")
        assert chat.asked() == ["one\ntwo"]


def test_a_question_wider_than_the_terminal_has_no_dots(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        chat.type("x" * 100)
        chat.wait_for("\n" + "x" * 22)
        assert "..." not in chat.text


def test_quotes_hold_a_block_open(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        chat.type('"""one\r\rtwo')
        chat.wait_for("two")
        assert "First." not in chat.text
        chat.send('"""')
        assert "First." in chat.text
        assert "[user]one\n\ntwo[assistant]" in sent_prompt(chat)


def sent_prompt(chat: Chat) -> str:
    """Returns the question in the file that `/save` writes, as the template renders it."""
    path = chat.state / "talk.json"
    chat.send(f"/save {path}")
    messages = json.loads(path.read_text())["messages"]
    return "".join(f"[{each['role']}]{each['content']}" for each in messages[:1]) + "[assistant]"


def test_ctrl_r_searches_and_up_recalls_whole_messages(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        chat.type(f"first{CTRL_J}question")
        chat.send("")
        chat.send("another")
        chat.type(CTRL_R + "quest")
        chat.wait_for(lambda text: "search backward: quest" in text and text.count("first") == 2)
        chat.type("\r")
        chat.wait_for(lambda text: "search" not in text)
        chat.send("")
        assert chat.asked()[-1] == "first\nquestion"
        chat.type(UP * 3)
        chat.wait_for(lambda text: text.count("another") == 2)


def test_history_of_an_earlier_chat(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        chat.send("from before")
    with Chat(tmp_path) as chat:
        chat.type(UP)
        chat.wait_for("> from before")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("/und", "/undo"),
        ("/qu", "/quit"),
        ("/set temp", "/set temp"),
        ("/set top-", "/set top-k"),
        ("/load talk-of", "/load talk-of-today.json"),
        ("/model Qwen/", "/model Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M"),
        ("/model qwen3:3", "/model qwen3:30b"),
        ("/model stor", "/model stories.gguf"),
    ],
)
def test_tab_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, completed: str
) -> None:
    for name in ("talk-of-today.json", "stories.gguf", "stories.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    found = completions(typed, monkeypatch)
    assert completed in found
    assert "/model stories.txt" not in found


def completions(typed: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from sharpi.cli.chat.terminal_input import ChatCompleter
    from sharpi.hub.cache import Cache

    name = ModelName("Qwen/Qwen3-30B-A3B-GGUF", "Q4_K_M")
    cached = SimpleNamespace(name=name, is_complete=True)
    monkeypatch.setattr(Cache, "all_models", lambda self: [cached])
    found = ChatCompleter().get_completions(Document(typed), CompleteEvent())
    return [
        (typed[: len(typed) + each.start_position] if each.start_position else typed) + each.text
        for each in found
    ]


def test_tab_at_the_terminal(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        chat.type("/und\t")
        chat.wait_for("> /undo")
        chat.type("\x15/s\t")
        chat.wait_for("/stats")


def test_edit_puts_the_question_back_into_the_line(tmp_path: Path) -> None:
    with Chat(tmp_path) as chat:
        chat.send("What is wrung?")
        chat.type("/edit\r")
        chat.wait_for(lambda text: text.splitlines()[-2].startswith("> What is wrung?"))
        chat.type("\x7f" * 6 + "right?")
        chat.wait_for("> What is right?")
        chat.send("")
        assert "Second." in chat.text
        assert "[user]What is right?[assistant]" in sent_prompt(chat)


def test_saving_over_a_file_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text("precious")
    with Chat(tmp_path) as chat:
        chat.send("Hi")
        chat.type(f"/save {path}\r")
        chat.wait_for("Replace it? [y/N]")
        chat.send("n")
        assert path.read_text() == "precious"
        chat.type(f"/save {path}\r")
        chat.wait_for(lambda text: text.count("Replace it? [y/N]") == 2)
        chat.send("y")
        assert json.loads(path.read_text())["messages"][0]["content"] == "Hi"


def test_forty_columns(tmp_path: Path) -> None:
    with Terminal(CHAT, tmp_path, columns=40, SCRIPTS=ANSWERS) as terminal:
        terminal.wait_for("0 of 64 tokens")
        terminal.type("a question that is longer than forty columns by far\r")
        terminal.wait_for("First.")
        assert "Traceback" not in terminal.text


DEMO = Path(__file__).parents[3] / "models" / "demo" / "stories-moe.gguf"
INPUT, LOCAL = 0, 3


def echoes(terminal: Terminal) -> bool:
    flags = termios.tcgetattr(terminal._ours)
    return bool(flags[LOCAL] & termios.ECHO) and bool(flags[INPUT] & termios.ICRNL)


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.2, 0.35])
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
