"""An answer on the screen: words, Markdown, code, reasoning; the lines above and below it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sharpi.cli.chat.chat import status_line
from sharpi.cli.log.conversation_log import show_messages

pytest.importorskip("pyte")
from terminal import FAKE_ENGINE, Terminal

from sharpi.cli.chat.answer_view import split_blocks

CHAT = (*FAKE_ENGINE, "chat", "m.gguf")
MARKDOWN = """# Cats

A **bold** paragraph whose words are many enough to reach the edge of it all, magnificently so.

- one
- two

```python
def f(x):

    return x + 1
```

The end.
"""


def streamed(text: str, pause: float = 0.01) -> list[object]:
    """The text in pieces of five characters, with a pause before each."""
    return [part for at in range(0, len(text), 5) for part in (pause, text[at : at + 5])]


def answer_on_screen(state: Path, script: list[object], until: str, **env: str) -> Terminal:
    terminal = Terminal(CHAT, state, SCRIPTS=json.dumps([script, ["Next."]]), **env)
    terminal.wait_for_line()
    terminal.type("Hi\r")
    terminal.wait_for(until)
    terminal.wait_for_line()
    return terminal


def test_markdown_is_rendered_and_words_are_whole(tmp_path: Path) -> None:
    with answer_on_screen(tmp_path, streamed(MARKDOWN), "The end.") as terminal:
        lines = terminal.text.splitlines()
        text = "\n".join(lines[lines.index("> Hi") + 1 :])
    assert "**" not in text
    assert "```" not in text
    assert "#" not in text
    assert (
        "edge of it all,\nmagnificently so.\n\n • one\n • two\n\n def f(x):\n\n     return" in text
    )
    assert text.count("The end.") == 1
    assert "The end.\n\n>" in text  # an empty line before the next question


def test_a_long_answer_scrolls_by_whole_and_once(tmp_path: Path) -> None:
    code = "```\n" + "".join(f"line {number}\n" for number in range(60)) + "```\n"
    with answer_on_screen(tmp_path, streamed(code, 0.002), "line 59\n") as terminal:
        history = [
            "".join(line[column].data for column in range(80)).strip()
            for line in terminal.screen.history.top
        ]
        shown = [*history, *map(str.strip, terminal.lines)]
    assert [line for line in shown if line.startswith("line ")] == [
        f"line {number}" for number in range(60)
    ]


@pytest.mark.parametrize("variables", [{}, {"NO_COLOR": "1"}])
def test_reasoning_is_folded_into_one_line(tmp_path: Path, variables: dict[str, str]) -> None:
    thoughts = "<think>" + "".join(f"thought {number}\n" for number in range(20)) + "</think>"
    script = [*streamed(thoughts), "Paris", " it is."]
    with answer_on_screen(tmp_path, script, "Paris it is.", **variables) as terminal:
        assert "(40 words); /reasoning shows it.\n\nParis it is." in terminal.text
        assert "thought 3" not in terminal.text
        assert "think>" not in terminal.text
        assert b"thought " in terminal.written  # it was shown while the model reasoned
        terminal.type("/reasoning\r")
        terminal.wait_for("thought 19")


def test_reasoning_without_a_screen_has_headings(tmp_path: Path) -> None:
    script = ["<think>Hm.</think>", "Paris."]
    with answer_on_screen(tmp_path, script, "Paris.", TERM="dumb") as terminal:
        assert "Reasoning:\nHm.\n\nAnswer:\nParis." in terminal.text


def test_escape_codes_of_the_model_reach_no_terminal(tmp_path: Path) -> None:
    script = ["Red \x1b[31malert\x1b]0;title\x07 \x9b5n over."]
    with answer_on_screen(tmp_path, script, "over.") as terminal:
        assert b"\x1b[31m" not in terminal.written
        assert b"\x1b]0;" not in terminal.written


def test_typing_during_an_answer_waits_for_its_end(tmp_path: Path) -> None:
    script = streamed("A quiet answer. " * 8 + "The end.", 0.03)
    with Terminal(CHAT, tmp_path, SCRIPTS=json.dumps([script, ["Next."]])) as terminal:
        terminal.wait_for("0 of 64 tokens")
        terminal.type("Hi\r")
        terminal.wait_for("A quiet")
        terminal.type("typed ahead\r")
        terminal.wait_for("Next.")
        assert "The end.\n\n> typed ahead\nNext." in terminal.text


def test_ctrl_c_keeps_what_was_said(tmp_path: Path) -> None:
    script = ["Some words. ", *[0.05, "more "] * 400]
    with Terminal(CHAT, tmp_path, SCRIPTS=json.dumps([script, ["Next."]])) as terminal:
        terminal.wait_for("0 of 64 tokens")
        terminal.type("Hi\r")
        terminal.wait_for("Some words. more")
        terminal.type("\x03")
        terminal.wait_for_line()
        terminal.type("/stats\r")
        terminal.wait_for("2 messages")
        assert terminal.text.count("Some words.") == 1


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("", ""),
        ("one\ntwo", ""),
        ("one\n\ntwo", "one\n\n"),
        ("```\na\n\nb", ""),
        ("```\na\n\nb\n```", ""),
        ("```\na\n\nb\n```\n", "```\na\n\nb\n```\n"),
        ("~~~\n```\n\n~~~\n\nx", "~~~\n```\n\n~~~\n\n"),
        ("one\n\n```\ntwo\n\n", "one\n\n"),
    ],
)
def test_blocks_end_at_empty_lines_but_not_in_fences(text: str, done: str) -> None:
    assert split_blocks(text) == (done, text[len(done) :])


@pytest.mark.parametrize(
    ("num_lines", "last"), [(6, "line 5"), (7, "... 1 more line"), (9, "... 3 more lines")]
)
def test_hidden_lines_are_counted(
    num_lines: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "\n".join(f"line {number}" for number in range(num_lines))
    show_messages([{"role": "assistant", "content": text}])
    assert capsys.readouterr().err.splitlines()[-1] == last


CONVERSATION: Any = SimpleNamespace(
    engine=SimpleNamespace(
        config=SimpleNamespace(model=Path("Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL.gguf")),
        context_size=32_768,
    ),
    num_tokens=12_345,
    timings=SimpleNamespace(decode_tokens_per_second=25.0),
)
NUMBERS = " · 12345 of 32768 tokens · 25.0 tokens/s"


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        (120, "Qwen3-Coder-30B-A3B-Instruct-UD-Q4_K_XL"),
        (60, "Qwen3-Coder-30B..."),
        (20, "Qwen3..."),
    ],
)
def test_a_long_name_is_cut(monkeypatch: pytest.MonkeyPatch, columns: int, name: str) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    line = status_line(CONVERSATION)
    assert line == f" {name}{NUMBERS}"
    assert len(line) < max(columns, 50)
