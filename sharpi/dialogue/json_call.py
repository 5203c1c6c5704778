"""Reads tool calls written as JSON objects with a name and arguments, and JSON as it streams."""

import json
from collections.abc import Callable, Collection
from typing import Any, NoReturn

from sharpi.dialogue.answer_text import AnswerEvent, AnswerText, Calls, Steps

_OPENING, _CLOSING = "{[", "}]"
_NEVER = "<`"  # in JSON outside of strings, where they begin a marker or end a code block
_QUOTES = "\"'"
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


class JsonSpan:
    """Finds the end of a value that begins with `{`, `[` or a quote, then sets `is_complete`.

    What models take from Python becomes JSON: single quotes, `True`, `False`, `None`, and a comma
    after the last item. Closing brackets that are missing before a marker are added.
    """

    def __init__(self) -> None:
        self._closings, self._quote, self._is_escaped = "", "", False
        self._word = self._comma = ""  # held back: a word, or a comma and the blanks after it
        self.is_complete = False

    def feed(self, text: str) -> tuple[str, int]:
        """Returns the JSON of the part of `text` within the value, and that part's length."""
        parts: list[str] = []
        for count, character in enumerate(text):
            if character in _NEVER and not self._quote and self._closings:
                return "".join((*parts, self.rest())), count
            parts.append(self._take(character))
            if self.is_complete:
                return "".join(parts), count + 1
        return "".join(parts), len(text)

    def rest(self) -> str:
        """Completes the value; returns the brackets that are missing, or "" within a string."""
        self.is_complete = not self._quote
        return self._closings if self.is_complete else ""

    def _take(self, character: str) -> str:
        if self._quote:
            return self._take_in_string(character)
        if self._comma and character.isspace():
            self._comma += character
            return ""
        before = "" if character in _CLOSING else self._comma
        self._comma = ""
        if character.isalpha():
            self._word += character
            return before
        before += _PYTHON_WORDS.get(self._word, self._word)
        self._word = ""
        if character == ",":
            self._comma = character
            return before
        if character in _QUOTES:
            self._quote = character
            return before + '"'
        if character in _OPENING:
            self._closings = _CLOSING[_OPENING.index(character)] + self._closings
        elif character in _CLOSING:
            self._closings = self._closings[1:]
            self.is_complete = not self._closings
        return before + character

    def _take_in_string(self, character: str) -> str:
        if self._is_escaped:
            self._is_escaped = False
            return character if character == "'" else "\\" + _escaped(character)
        if character == "\\":
            self._is_escaped = True
            return ""
        if character == self._quote:
            self._quote = ""
            self.is_complete = not self._closings
            return '"'
        return '\\"' if character == '"' else _escaped(character)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character < " " else character


def json_value(text: str) -> Any:
    """Returns the value of JSON, or of Python's list or object; raises ValueError otherwise."""
    text = _PYTHON_WORDS.get(text, text)
    if text.startswith(tuple(_OPENING)):
        value, length = JsonSpan().feed(text)
        text = value + text[length:].strip(f" \n{_CLOSING}")  # of which there may be too many
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


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
        if source.is_ended and source.is_whole and not span.is_complete:
            yield event(span.rest())
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
    if (yield from source.next()) not in tuple(_OPENING + _QUOTES):
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
    if (yield from source.next()) not in tuple(_QUOTES):
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


_AROUND = ("function", "tool")  # keys of a name, or of an object with name and arguments
_NAMES, _ARGUMENTS = ("name", "tool_name", *_AROUND), ("arguments", "parameters")
_BESIDE = ("type", "id")


def read_calls(
    source: AnswerText, calls: Calls, names: Collection[str] | None = None
) -> Steps[bool]:
    """Reads calls in a list or one after another, up to the first object that is no call.

    Arguments stream if the name precedes them. Returns False, without yielding events, if the first
    object is not a call. If `names` is given, a call must have one of these names and no other keys
    than those of a call.
    """
    is_list = yield from source.accept("[")
    count, end = calls.count, source.at
    while True:
        yield from source.skip_blanks()
        if not (yield from _CallReader(source, calls, names).read()):
            break
        end = source.at
        yield from source.skip_blanks()
        yield from source.accept_any((",", ";"))
    source.at = end
    if is_list and calls.count > count:
        yield from source.accept_marker(",")
        yield from source.accept_marker("]")
    return calls.count > count


class _CallReader:
    """Reads one JSON object as a call."""

    def __init__(self, source: AnswerText, calls: Calls, names: Collection[str] | None) -> None:
        self._source, self._calls, self._names = source, calls, names
        self._name = ""
        self._held = "{}"  # arguments that preceded the name
        self._is_begun = False

    def read(self) -> Steps[bool]:
        """Yields the call's events; returns False, without events, if the object is no call."""
        source = self._source
        has_more = yield from source.accept("{")
        while has_more and (yield from self._read_member()):
            yield from source.skip_blanks()
            has_more = yield from source.accept(",")
        is_closed = yield from source.accept("}")
        if self._is_begun:
            return True
        held = _object_text(self._held)
        if not is_closed or not self._name or held is None:
            return False
        yield self._calls.begin(self._name)
        yield self._calls.arguments(held)
        return True

    def _read_member(self) -> Steps[bool]:
        """Reads one key and its value; returns False if they are incomplete or rule out a call."""
        source = self._source
        yield from source.skip_blanks()
        key = yield from read_string(source)
        yield from source.skip_blanks()
        if key is None or not (yield from source.accept(":")):
            return False
        yield from source.skip_blanks()
        is_object = (yield from source.next()) == "{"
        if self._is_begun:
            return (yield from read_value(source)) is not None
        if key in _AROUND and is_object:
            self._is_begun = yield from _CallReader(source, self._calls, self._names).read()
            return self._is_begun
        if key in _NAMES and not self._name:
            name = (yield from read_string(source)) or ""
            self._name = name if self._names is None or name in self._names else ""
            return bool(self._name)
        if key in _ARGUMENTS and self._name and is_object:
            self._is_begun = True
            yield self._calls.begin(self._name)
            return (yield from pass_value(source, self._calls.arguments))
        if self._names is not None and key not in (*_BESIDE, *_ARGUMENTS):
            return False
        value = yield from read_value(source)
        self._held = value if key in _ARGUMENTS and value is not None else self._held
        return value is not None


def _object_text(text: str) -> str | None:
    """Returns the JSON text of an object, null or a string of one; None for anything else."""
    try:
        value = json.loads(text)
        if isinstance(value, str):
            value = json_value(value)
            text = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return "{}"
    return text if isinstance(value, dict) else None
