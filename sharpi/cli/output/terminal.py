"""Prints notes and errors to stderr, wraps words, and tells what a terminal supports.

The answer goes to stdout, so that it can be redirected without them.
"""

import contextlib
import os
import re
import shutil
import sys
from typing import TextIO
from unicodedata import east_asian_width

DIM, NORMAL = "\x1b[2m", "\x1b[22m"
_CONTROLS = (*range(32), *range(127, 160))
_WITHOUT_CONTROLS = {code: None for code in _CONTROLS if chr(code) not in "\t\n"}


def print_stderr(text: str, indent: int = 0) -> None:
    """Prints a text as `fitted` returns it; errors of a closed terminal are ignored."""
    with contextlib.suppress(OSError):
        print(fitted(text, sys.stderr, indent), file=sys.stderr, flush=True)


def fitted(text: str, stream: TextIO, indent: int = 0) -> str:
    """Wraps text between words for a terminal; later lines are indented."""
    columns = shutil.get_terminal_size().columns
    if not stream.isatty() or max(map(len, text.split("\n"))) <= columns:
        return text
    from textwrap import TextWrapper

    wrapper = TextWrapper(
        columns,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(map(wrapper.fill, text.split("\n")))


def print_note(text: str) -> None:
    """Prints a note about a decision, or about something that could not be done as requested."""
    print_stderr(f"note: {text}")


def print_error(text: str) -> None:
    """Prints an error on one line, even if its text has several lines."""
    print_stderr("error: " + " ".join(text.split()))


def strip_controls(text: str) -> str:
    """Removes control characters, except tab and newline, from a text for the terminal."""
    return text.translate(_WITHOUT_CONTROLS)


def can_draw(stream: TextIO) -> bool:
    """Returns whether `stream` is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def supports_styles(stream: TextIO) -> bool:
    """Returns whether escape codes may go to `stream`: a capable terminal without NO_COLOR."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def stdin_is_terminal() -> bool:
    """Returns whether standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Asks a yes-or-no question on stderr; returns whether a line of stdin answers it with yes."""
    print_stderr(f"{question} [y/N]")
    return is_yes(sys.stdin.readline())


def is_yes(answer: str) -> bool:
    """Returns whether the user's answer to a question is y or yes."""
    return answer.strip().lower() in ("y", "yes")


_STYLE = r"\x1b\[[0-9;]*m"
_PARTS = re.compile(rf"{_STYLE}|\n|[^\S\n]+|[^\s\x1b]+")
_TAB = 8


def word_wrap() -> "WordWrap | None":
    """Returns a WordWrap for stdout; None unless stdout is a terminal that can move its cursor."""
    return WordWrap() if can_draw(sys.stdout) else None


class WordWrap:
    """Wraps text that begins at the left edge: a word that does not fit moves to the next line."""

    def __init__(self) -> None:
        self._columns = shutil.get_terminal_size().columns
        self._column = 0  # cells used in this line
        self._word = ""  # the part of a word at the end of this line

    def feed(self, text: str) -> str:
        """Returns the characters to print for the next piece, which may end within a word.

        `text` may contain newlines, tabs and style codes, but no other control characters.
        """
        return "".join(map(self._part, _PARTS.findall(text)))

    def _part(self, part: str) -> str:
        if part.startswith("\x1b"):
            return part
        if part == "\n":
            self._columns = shutil.get_terminal_size().columns
            self._column, self._word = 0, ""
            return part
        if part.isspace():
            return self._blanks(part)
        if part.isascii():
            return self._letters(part, len(part))
        return "".join(map(self._letter, part))

    def _blanks(self, part: str) -> str:
        """Returns the blanks that fit on the line; those beyond its end are dropped."""
        self._word = ""
        blanks = (" " * self._column + part).expandtabs(_TAB)[self._column : self._columns]
        self._column += len(blanks)
        return blanks

    def _letter(self, letter: str) -> str:
        """Returns the output for one character; a line may break before or after a wide one."""
        is_wide = east_asian_width(letter) in "WF"
        if is_wide:
            self._word = ""
        shown = self._letters(letter, 1 + is_wide)
        if is_wide:
            self._word = ""
        return shown

    def _letters(self, letters: str, width: int) -> str:
        """Returns the output for part of a word, `width` cells wide, and advances the cursor."""
        begun, self._word = self._word, self._word + letters
        if self._column + width <= self._columns:
            self._column += width
            return letters
        moved = min(len(begun), self._column)
        if moved == self._column or moved + width > self._columns:  # the word is longer than a line
            self._column = (self._column + width) % self._columns
            return letters
        # An absolute column: relative movements would be wrong for a cursor past the last column.
        back = f"\x1b[{self._column - moved + 1}G\x1b[K" if moved else ""
        self._column = moved + width
        return f"{back}\n{self._word}"
