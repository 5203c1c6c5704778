"""Converts Gemma 4's notation of values to JSON: keys are bare, strings between `<|"|>` markers.

JSON is read as well, since models sometimes write it instead.
"""

import json

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.json_object import pass_text, pass_value
from sharpi.dialogue.typed_value import json_text

QUOTE = '<|"|>'
_MAX_DEPTH = 64
_ENDS = (",", "}", "]")


def pass_object(source: AnswerText, calls: Calls, depth: int = 0) -> Steps[bool]:
    """Reads `{key:value,...}` and yields it as JSON text, in events of the newest call.

    Returns False if the text is not an object, or the answer ends inside it.
    """
    return (yield from _pass_items(source, calls, depth, "{", "}"))


def _pass_items(
    source: AnswerText, calls: Calls, depth: int, opening: str, end: str
) -> Steps[bool]:
    if depth > _MAX_DEPTH or not (yield from source.accept(opening)):
        return False
    yield calls.arguments(opening)
    between = ""
    while not (yield from source.accept_marker(end)):
        if between and not (yield from source.accept(",")):
            return False
        yield from source.skip_blanks()
        if not (yield from source.next()):
            return False
        yield calls.arguments(between)
        between = ", "
        if end == "}" and not (yield from _pass_key(source, calls)):
            return False
        if not (yield from _pass_value(source, calls, depth + 1)):
            return False
    yield calls.arguments(end)
    return True


def _pass_key(source: AnswerText, calls: Calls) -> Steps[bool]:
    key, marker = yield from source.read_until((":",))
    key = key.strip().removeprefix(QUOTE).removesuffix(QUOTE).strip('"')
    yield calls.arguments(f"{json.dumps(key, ensure_ascii=False)}: ")
    return marker is not None


def _pass_value(source: AnswerText, calls: Calls, depth: int) -> Steps[bool]:
    yield from source.skip_blanks()
    if (yield from source.accept(QUOTE)):
        return (yield from pass_text(source, calls.arguments, (QUOTE,)))
    character = yield from source.next()
    if character == '"':
        return (yield from pass_value(source, calls.arguments))
    if character == "{":
        return (yield from pass_object(source, calls, depth))
    if character == "[":
        return (yield from _pass_items(source, calls, depth, "[", "]"))
    word, marker = yield from source.read_until(_ENDS)
    yield calls.arguments(json_text(word.strip(), {}))
    if marker is not None:
        source.at -= len(marker)
    return marker is not None


def written_value(value: object) -> str:
    """Returns a value in Gemma's notation."""
    if isinstance(value, str):
        return f"{QUOTE}{value}{QUOTE}"
    if isinstance(value, dict):
        return written_object(value)
    if isinstance(value, list):
        return f"[{','.join(map(written_value, value))}]"
    return json.dumps(value)


def written_object(values: dict[str, object]) -> str:
    """Returns an object in Gemma's notation, with sorted keys."""
    return "{" + ",".join(f"{key}:{written_value(values[key])}" for key in sorted(values)) + "}"
