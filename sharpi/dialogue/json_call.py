"""Reads a tool call written as a JSON object with a name and arguments."""

import json
from collections.abc import Collection

from msgspec import Struct

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.json_object import pass_value, read_string, read_value

_NAMES, _ARGUMENTS = ("name", "tool_name"), ("arguments", "parameters")
_BESIDE = ("type", "id")


class _Read(Struct):
    """The state while a call's JSON object is read."""

    name: str | None = None
    held: str | None = None  # arguments that preceded the name
    is_begun: bool = False


def read_call(
    source: AnswerText, calls: Calls, names: Collection[str] | None = None
) -> Steps[bool]:
    """Reads the next JSON object as a call and yields its events.

    Arguments stream if the name precedes them. Returns False, without yielding events, if the
    object is not a call. If `names` is given, a call must have one of these names and no other keys
    than `name`, `arguments` or `parameters`, `type` and `id`.
    """
    if not (yield from source.accept("{")):
        return False
    read = _Read()
    while (yield from _read_member(source, calls, names, read)):
        yield from source.skip_blanks()
        if not (yield from source.accept(",")):
            break
    if read.is_begun:
        yield from source.accept("}")
        return True
    if not (yield from source.accept("}")) or read.name is None or _refused(read.name, names):
        return False
    held = "{}" if read.held is None else _object_text(read.held)
    if held is None:
        return False
    yield calls.begin(read.name)
    yield calls.arguments(held)
    return True


def read_calls(source: AnswerText, calls: Calls) -> Steps[bool]:
    """Reads an object, or a list up to its end or to the first object that is no call.

    Returns False if it has read no call.
    """
    if not (yield from source.accept("[")):
        return (yield from read_call(source, calls))
    count = calls.count
    while True:
        yield from source.skip_blanks()
        start = source.at
        if not (yield from read_call(source, calls)):
            source.at = start
            return calls.count > count
        yield from source.skip_blanks()
        if not (yield from source.accept(",")):
            yield from source.accept_marker("]")
            return True


def _read_member(
    source: AnswerText, calls: Calls, names: Collection[str] | None, read: _Read
) -> Steps[bool]:
    """Reads one key and its value; returns False if they are incomplete or rule out a call."""
    yield from source.skip_blanks()
    key = yield from read_string(source)
    if key is None:
        return False
    yield from source.skip_blanks()
    if not (yield from source.accept(":")):
        return False
    yield from source.skip_blanks()
    if key in _NAMES and read.name is None:
        read.name = yield from read_string(source)
        return read.name is not None and not _refused(read.name, names)
    if key in _ARGUMENTS and not read.is_begun:
        return (yield from _read_arguments(source, calls, names, read))
    if names is not None and key not in _BESIDE:
        return False
    return (yield from read_value(source)) is not None


def _read_arguments(
    source: AnswerText, calls: Calls, names: Collection[str] | None, read: _Read
) -> Steps[bool]:
    is_object = (yield from source.next()) == "{"
    if read.name is None or not is_object:
        read.held = yield from read_value(source)
        return read.held is not None
    if _refused(read.name, names):
        return False
    yield calls.begin(read.name)
    read.is_begun = True
    return (yield from pass_value(source, calls.arguments))


def _refused(name: str, names: Collection[str] | None) -> bool:
    return not name or (names is not None and name not in names)


def _object_text(text: str) -> str | None:
    """Returns the JSON text of the object in `text`; None if `text` is any other value.

    The object may be encoded as a JSON string. Null counts as an empty object.
    """
    try:
        value = json.loads(text)
        if isinstance(value, str):
            text = value
            value = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return "{}"
    return text if isinstance(value, dict) else None
