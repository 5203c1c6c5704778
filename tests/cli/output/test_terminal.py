"""Text on a terminal: lines end between words, whatever the pieces that it comes in."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.cli.output.terminal import fitted

pyte = pytest.importorskip("pyte")

from terminal import FAKE_ENGINE, Terminal  # noqa: E402

from sharpi.cli.output.terminal import WordWrap  # noqa: E402

WIDTH = 20


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def on_screen(*pieces: str) -> list[str]:
    screen = pyte.Screen(WIDTH, 60)
    stream, wrap = pyte.Stream(screen), WordWrap()
    for piece in pieces:
        stream.feed(wrap.feed(piece).replace("\n", "\r\n"))
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return lines


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_word_that_does_not_fit_moves(size: int) -> None:
    text = "One day she saw a beautiful butterfly.\n\nIt was magnificent indeed."
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert on_screen(*pieces) == [
        "One day she saw a",
        "beautiful butterfly.",
        "",
        "It was magnificent",
        "indeed.",
    ]


def test_a_line_that_just_fits_and_the_blank_after_it() -> None:
    assert on_screen("a" * WIDTH, " b") == ["a" * WIDTH, "b"]
    assert on_screen("a " + "b" * (WIDTH - 2), "c") == ["a", "b" * (WIDTH - 2) + "c"]


def test_a_word_longer_than_a_line_is_cut_by_the_terminal() -> None:
    assert on_screen("at ", "x" * 15, "x" * 15) == ["at " + "x" * 17, "x" * 13]


def test_the_indent_of_code_stays() -> None:
    assert on_screen("def f():\n", "    return 1\n\tx") == ["def f():", "    return 1", "        x"]


def test_lines_may_end_between_wide_letters() -> None:
    assert on_screen("ab " + "漢" * 12) == ["ab " + "漢" * 8, "漢" * 4]


def test_styles_take_no_room() -> None:
    assert on_screen("\x1b[2mOne day she\x1b[22m", "\x1b[2m saw abc\x1b[22m") == [
        "One day she saw abc"
    ]


@given(st.lists(st.text(alphabet="ab \n", max_size=30), max_size=12))
@settings(max_examples=60, deadline=None)
def test_no_letter_is_lost_and_short_words_stay_whole(pieces: list[str]) -> None:
    text = "".join(pieces)
    shown = on_screen(*pieces)
    assert "".join("".join(shown).split()) == "".join(text.split())
    if max(map(len, text.split()), default=0) <= WIDTH:
        assert " ".join(shown).split() == text.split()


def test_run_wraps_at_a_terminal(tmp_path: Path) -> None:
    answer = json.dumps([["One day she saw a", " beaut", "iful butterfly."]])
    command = (*FAKE_ENGINE, "run", "m.gguf", "Hi")
    with Terminal(command, tmp_path, columns=WIDTH, SCRIPTS=answer) as terminal:
        terminal.wait_for("One day she saw a\nbeautiful butterfly.\n")


LONG = "error: 'llama3' is neither a file nor a model; write sharpi run -p 'llama3' instead"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_no_word_is_cut(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = fitted(LONG, Screen(), indent=2).split("\n")
    assert max(map(len, lines)) <= columns
    assert " ".join(line.strip() for line in lines) == LONG
    assert all(line.startswith("  ") for line in lines[1:])


def test_what_fits_or_goes_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert fitted("a  b\n  c", Screen()) == "a  b\n  c"
    assert fitted(LONG, io.StringIO()) == LONG
