"""Breaks lines of streamed text between words, so that the terminal cuts no word."""

import re
import shutil
import sys
from unicodedata import east_asian_width

from sharpi.cli.output.terminal import can_draw

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
