"""AnswerText and Calls: the input of an answer's reader, and the events that it yields.

A reader is a generator that yields events, and yields None when it needs more text. So a format's
code reads from top to bottom although the text arrives in pieces, and the result does not depend on
where the pieces are split.
"""

from collections.abc import Callable, Collection, Generator, Sequence
from typing import TypeAlias, TypeVar

from msgspec import Struct

from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import unfinished


class Reasoning(Struct, frozen=True):
    """A part of the reasoning before the answer."""

    text: str


class Text(Struct, frozen=True):
    """A part of the answer's text, outside reasoning and calls."""

    text: str


class CallBegin(Struct, frozen=True):
    """Begins call number `index` of the answer; its arguments follow as `CallArguments`."""

    index: int
    name: str


class CallArguments(Struct, frozen=True):
    """A part of the JSON text of a call's arguments; together the parts form one JSON object."""

    index: int
    text: str


AnswerEvent: TypeAlias = Reasoning | Text | CallBegin | CallArguments


T = TypeVar("T")
Steps: TypeAlias = Generator[AnswerEvent | None, None, T]


class AnswerText:
    """The text of an answer received so far, with a reading position.

    `at`: the reading position, which may be set back. `is_ended`: no more text will arrive.
    `is_whole`: the model ended it, not a limit.
    """

    def __init__(self) -> None:
        self._text = ""
        self.at = 0
        self.is_ended = self.is_whole = False

    @property
    def rest(self) -> str:
        """The text that was received and not read yet."""
        return self._text[self.at :]

    def append(self, text: str) -> None:
        """Adds received text."""
        self._text += text

    def release(self) -> None:
        """Frees the text before `at`, so that `at` cannot be set back to it any more."""
        self._text, self.at = self.rest, 0

    def attempt(self, reading: "Steps[bool]") -> "Steps[bool]":
        """Runs a reader, and goes back to where it began if it returns False."""
        start = self.at
        is_read = yield from reading
        self.at = self.at if is_read else start
        return is_read

    def take(self, count: int) -> str:
        """Reads and returns `count` characters, which must have been received."""
        start, self.at = self.at, self.at + count
        return self._text[start : self.at]

    def emit_until(
        self, markers: Collection[str], event: Callable[[str], AnswerEvent]
    ) -> Steps[str | None]:
        """Yields the text up to the first of `markers` as events, and returns that marker.

        Returns None if the answer ends before a marker.
        """
        while True:
            before, marker = self._cut(markers)
            if marker is None and not self.is_ended:
                before = before[: len(before) - unfinished(before, markers)]
            if before:
                yield event(self.take(len(before)))
            if marker is not None:
                return self.take(len(marker))
            if self.is_ended:
                return None
            self.release()
            yield None

    def read_until(self, markers: Collection[str]) -> Steps[tuple[str, str | None]]:
        """Reads up to and including the first of `markers`; returns the text before and the marker.

        The marker is None if the answer ends before one.
        """
        while True:
            before, marker = self._cut(markers)
            if marker is not None or self.is_ended:
                self.take(len(before) + len(marker or ""))
                return before, marker
            yield None

    def _cut(self, markers: Collection[str]) -> tuple[str, str | None]:
        """Returns the text before the first marker, and the longest one there, or None."""
        rest = self.rest
        found = [(at, -len(marker), marker) for marker in markers if (at := rest.find(marker)) >= 0]
        if not found:
            return rest, None
        at, _, marker = min(found)
        may_be_longer = any(
            each != marker and each.startswith(rest[at:]) for each in markers if not self.is_ended
        )
        return rest[:at], None if may_be_longer else marker

    def skip_blanks(self) -> Steps[None]:
        """Skips white space."""
        while True:
            rest = self.rest
            self.take(len(rest) - len(rest.lstrip()))
            if self.rest or self.is_ended:
                return
            yield None

    def next(self) -> Steps[str]:
        """Returns the next character without moving `at`; empty at the end of the answer."""
        while not self.rest and not self.is_ended:
            yield None
        return self.rest[:1]

    def accept(self, literal: str) -> Steps[bool]:
        """Reads `literal` if it is the next text; returns whether it is."""
        while not self.is_ended and len(self.rest) < len(literal):
            if not literal.startswith(self.rest):
                return False
            yield None
        found = self.rest.startswith(literal)
        if found:
            self.take(len(literal))
        return found

    def accept_marker(self, marker: str) -> Steps[bool]:
        """Skips white space and reads the marker if it follows; returns whether it does.

        A marker that the end of the answer cuts off is dropped.
        """
        yield from self.skip_blanks()
        if (yield from self.accept(marker)):
            return True
        if self.is_ended and marker.startswith(self.rest):
            self.take(len(self.rest))
        return False

    def accept_any(self, literals: Collection[str]) -> Steps[str | None]:
        """Reads the first of `literals` that is the next text and returns it; None without one."""
        for literal in literals:
            if (yield from self.accept(literal)):
                return literal
        return None


class Calls:
    """Numbers the tool calls of one answer."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self.count = 0

    def begin(self, name: str) -> CallBegin:
        """Counts a new call and returns the event that begins it."""
        self.count += 1
        return CallBegin(self.count - 1, name)

    def arguments(self, text: str) -> CallArguments:
        """Returns an event with more JSON text of the newest call's arguments."""
        return CallArguments(self.count - 1, text)
