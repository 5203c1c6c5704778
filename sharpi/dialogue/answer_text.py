"""AnswerText: an answer's text as it comes, read by generators that wait where more has to come.

A reader is a generator: it yields events, and None where it cannot go on without more text. So a
format is read top to bottom although its text arrives in pieces, and where the pieces are cut
makes no difference.
"""

from collections.abc import Callable, Collection, Generator
from typing import TypeAlias, TypeVar

from sharpi.dialogue.events import AnswerEvent

T = TypeVar("T")
Steps: TypeAlias = Generator[AnswerEvent | None, None, T]


class AnswerText:
    """Text that has come; `at` is where reading goes on, and may be set back.

    `is_ended`: no more will come.
    """

    def __init__(self) -> None:
        self._text = ""
        self.at = 0
        self.is_ended = False

    @property
    def rest(self) -> str:
        """What has come and was not read."""
        return self._text[self.at :]

    def append(self, text: str) -> None:
        """More has come."""
        self._text += text

    def release(self) -> None:
        """Forgets what was read; it cannot be set back to any more."""
        self._text, self.at = self.rest, 0

    def take(self, count: int) -> str:
        """Reads so many characters, which must have come."""
        start, self.at = self.at, self.at + count
        return self._text[start : self.at]

    def pass_until(
        self, marks: Collection[str], event: Callable[[str], AnswerEvent]
    ) -> Steps[str | None]:
        """Passes text on up to the first of the marks and returns that; None at the end."""
        while True:
            before, mark = _cut(self.rest, marks)
            if mark is None and not self.is_ended:
                before = before[: len(before) - _unfinished(before, marks)]
            if before:
                yield event(self.take(len(before)))
            if mark is not None:
                return self.take(len(mark))
            if self.is_ended:
                return None
            self.release()
            yield None

    def read_until(self, marks: Collection[str]) -> Steps[tuple[str, str | None]]:
        """The text up to the first of the marks, and which it is; None: the end came first."""
        while True:
            before, mark = _cut(self.rest, marks)
            if mark is not None or self.is_ended:
                self.take(len(before) + len(mark or ""))
                return before, mark
            yield None

    def skip_blanks(self) -> Steps[None]:
        """Reads white space."""
        while True:
            rest = self.rest
            self.take(len(rest) - len(rest.lstrip()))
            if self.rest or self.is_ended:
                return
            yield None

    def next(self) -> Steps[str]:
        """The next character without reading it; empty at the end."""
        while not self.rest and not self.is_ended:
            yield None
        return self.rest[:1]

    def accept(self, literal: str) -> Steps[bool]:
        """Reads the literal if it comes next."""
        while not self.is_ended and len(self.rest) < len(literal):
            if not literal.startswith(self.rest):
                return False
            yield None
        found = self.rest.startswith(literal)
        if found:
            self.take(len(literal))
        return found

    def accept_mark(self, mark: str) -> Steps[bool]:
        """Reads a marker if it comes next after blanks; one that the end cuts off goes unseen."""
        yield from self.skip_blanks()
        if (yield from self.accept(mark)):
            return True
        if self.is_ended and mark.startswith(self.rest):
            self.take(len(self.rest))
        return False

    def accept_any(self, literals: Collection[str]) -> Steps[str | None]:
        """Reads the first of the literals that comes next, and says which."""
        for literal in literals:
            if (yield from self.accept(literal)):
                return literal
        return None


def _cut(text: str, marks: Collection[str]) -> tuple[str, str | None]:
    """The text before its first mark, and that mark; of two at one place the longer."""
    found = [(at, -len(mark), mark) for mark in marks if (at := text.find(mark)) >= 0]
    if not found:
        return text, None
    at, _, mark = min(found)
    return text[:at], mark


def _unfinished(text: str, marks: Collection[str]) -> int:
    """Length of the text's end that may become a mark."""
    longest = max(map(len, marks), default=1) - 1
    for length in range(min(len(text), longest), 0, -1):
        if any(mark.startswith(text[-length:]) for mark in marks):
            return length
    return 0
