"""Finds the ends of JSON values inside an answer while it streams.

Characters that JSON does not allow in a string, mainly newlines, are escaped. Other errors in the
JSON text are not corrected.
"""

import json
from collections.abc import Callable, Collection

from sharpi.dialogue.answer_text import AnswerText, Steps
from sharpi.dialogue.events import AnswerEvent

_OPENING, _CLOSING = "{[", "}]"


class JsonSpan:
    """Finds the end of a value that begins with `{`, `[` or `"`, then sets `is_complete`."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._is_escaped = self.is_complete = False

    def feed(self, text: str) -> tuple[str, int]:
        """Returns the part of `text` within the value, escaped, and the part's unescaped length."""
        parts = []
        for count, character in enumerate(text, 1):
            parts.append(self._take(character))
            if self.is_complete:
                return "".join(parts), count
        return "".join(parts), len(text)

    def _take(self, character: str) -> str:
        if self._in_string:
            return self._take_in_string(character)
        self._in_string = character == '"'
        self._depth += (character in _OPENING) - (character in _CLOSING)
        self.is_complete = character in _CLOSING and self._depth <= 0
        return character

    def _take_in_string(self, character: str) -> str:
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self._in_string = False
            self.is_complete = self._depth == 0
        elif character < " ":
            return json.dumps(character)[1:-1]
        return character


def pass_value(source: AnswerText, event: Callable[[str], AnswerEvent]) -> Steps[bool]:
    """Yields the text of the next JSON object, list or string as events.

    Returns False if the answer ends inside it. The reading position cannot be set back to earlier
    text afterwards.
    """
    span = JsonSpan()
    while True:
        text, count = span.feed(source.rest)
        source.take(count)
        if text:
            yield event(text)
        if span.is_complete or source.is_ended:
            return span.is_complete
        source.release()
        yield None


def pass_text(
    source: AnswerText, event: Callable[[str], AnswerEvent], closings: Collection[str]
) -> Steps[bool]:
    """Yields unquoted text up to one of the closing tags as events with a JSON string.

    Returns False if the answer ends before a closing tag.
    """
    yield event('"')
    closing = yield from source.emit_until(
        closings, lambda text: event(json.dumps(text, ensure_ascii=False)[1:-1])
    )
    if closing is None:
        return False
    yield event('"')
    return True


def read_value(source: AnswerText) -> Steps[str | None]:
    """Reads the next JSON value of any type and returns its text; None if it is incomplete."""
    if (yield from source.next()) not in tuple('{["'):
        return (yield from _read_word(source))
    span, parts = JsonSpan(), list[str]()
    while not span.is_complete:
        text, count = span.feed(source.rest)
        source.take(count)
        parts.append(text)
        if not span.is_complete:
            if source.is_ended:
                return None
            yield None
    return "".join(parts)


def read_string(source: AnswerText) -> Steps[str | None]:
    """Reads the next JSON string and returns its decoded text; None if no valid string follows."""
    if (yield from source.next()) != '"':
        return None
    text = yield from read_value(source)
    try:
        value = None if text is None else json.loads(text)
    except ValueError:
        return None
    return str(value) if value is not None else None


def _read_word(source: AnswerText) -> Steps[str | None]:
    word = ""
    while (character := (yield from source.next())) and character not in " \t\r\n,:]}":
        word += source.take(1)
    return word or None
