"""Gemma 4's tool format: `call:`, the name and arguments in Gemma's notation, between markers."""

import json
import re
from collections.abc import Mapping
from typing import Any

from sharpi.dialogue.answer_text import AnswerEvent, AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.keyed_arguments import ArgumentSpec, json_text, may_be_text, values_in_order
from sharpi.dialogue.notations import Notation
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import GEMMA_THOUGHT

QUOTE = '<|"|>'
_MAX_DEPTH = 64
_ENDS = (",", "}", "]")
_KEY = re.compile(r"""\s*["']?[\w.-]+["']?\s*""")


def _pass_items(source: AnswerText, calls: Calls, depth: int, opening: str) -> Steps[bool]:
    """Yields `{key:value,...}` or a list as JSON, however the model quotes and separates items."""
    end = "}" if opening == "{" else "]"
    if depth > _MAX_DEPTH or not (yield from source.accept(opening)):
        return False
    yield calls.arguments(opening)
    between = ""
    while not (yield from source.accept_marker(end)):
        has_comma = bool(between) and (yield from source.accept(","))
        yield from source.skip_blanks()
        following = yield from source.next()
        if not following or (between and not has_comma and following in "}]:"):
            return False
        yield calls.arguments(between)
        between = ", "
        if end == "}" and not (yield from _pass_key(source, calls)):
            return False
        if not (yield from _pass_value(source, calls, depth + 1, end == "}")):
            return False
    yield calls.arguments(end)
    return True


def _pass_key(source: AnswerText, calls: Calls) -> Steps[bool]:
    key, marker = yield from source.read_until((":", "="))
    key = key.strip().removeprefix(QUOTE).removesuffix(QUOTE).strip("\"'")
    yield calls.arguments(f"{json.dumps(key, ensure_ascii=False)}: ")
    return marker is not None


def _pass_value(source: AnswerText, calls: Calls, depth: int, has_keys: bool) -> Steps[bool]:
    yield from source.skip_blanks()
    if (yield from source.accept(QUOTE)):
        return (yield from _pass_string(source, calls, has_keys))
    character = yield from source.next()
    if character in ('"', "'"):
        return (yield from pass_value(source, calls.arguments))
    if character in ("{", "["):
        return (yield from _pass_items(source, calls, depth, character))
    word, marker = yield from source.read_until((*_ENDS, QUOTE))
    if marker == "," and has_keys and not (yield from _begins_key(source)):
        rest, marker = yield from source.read_until((QUOTE, "}"))
        word += f",{rest}"
    yield calls.arguments(json_text(word.strip(), {"type": "string"} if marker == QUOTE else {}))
    if marker in _ENDS:
        source.at -= 1
    return marker is not None


def _pass_string(source: AnswerText, calls: Calls, has_keys: bool) -> Steps[bool]:
    """Reads a string after its opening mark; marks in it that do not end it are quotes."""

    def event(text: str) -> AnswerEvent:
        return calls.arguments(json.dumps(text, ensure_ascii=False)[1:-1])

    yield calls.arguments('"')
    while (yield from source.emit_until((QUOTE,), event)) is not None:
        start = source.at
        yield from source.skip_blanks()
        following = yield from source.next()
        is_end = following in ("}", "]", "") or (following == "," and not has_keys)
        if not is_end and has_keys:
            yield from source.accept(",")
            is_end = yield from _begins_key(source)
        source.at = start
        yield calls.arguments('"' if is_end else '\\"')
        if is_end:
            return True
    return False


def _begins_key(source: AnswerText) -> Steps[bool]:
    """Returns whether a key follows, without moving on."""
    start = source.at
    key, marker = yield from source.read_until((":", "=", QUOTE, *_ENDS))
    source.at = start
    return marker in (":", "=") and bool(_KEY.fullmatch(key))


def written_value(value: Any) -> str:
    """Returns a value in Gemma's notation, with sorted keys."""
    if isinstance(value, str):
        return f"{QUOTE}{value}{QUOTE}"
    if isinstance(value, dict):
        pairs = (f"{key}:{written_value(value[key])}" for key in sorted(value))
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written_value, value))}]"
    return json.dumps(value)


_CALL_BEGIN, _CALL_END = "<|tool_call>", "<tool_call|>"
_NAME = re.compile(r"[^\s<>{}]+")


class Gemma4(ToolFormat):
    """Reads and writes `<|tool_call>call:name{key:<|"|>text<|"|>,key:3}<tool_call|>`.

    Reasoning is in a channel.
    """

    reasoning = GEMMA_THOUGHT

    def __init__(self) -> None:
        notation = Notation(name="Gemma 4", section=(_CALL_BEGIN, _CALL_END), repeats=True)
        super().__init__(notation, written=("<|channel>", "<channel|>"))
        self.markers += (QUOTE,)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if not (yield from source.accept("call:")):
            return False
        name, marker = yield from source.read_until(("{", _CALL_END))
        if marker != "{" or not _NAME.fullmatch(name.strip()):
            return False
        source.at -= 1
        yield calls.begin(name.strip())
        yield from _pass_items(source, calls, 0, "{")
        return True

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        return f"call:{name}{written_value(dict(arguments))}"

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        values = [
            (_value_expression(grammar, value), value.is_required)
            for value in sorted(values_in_order(tool), key=lambda value: value.key)
        ]
        return f'{grammar.literal(f"call:{tool.name}{{")} {grammar.listed(values, ",")} "}}"'


def _value_expression(grammar: CallGrammar, value: ArgumentSpec) -> str:
    """Returns a grammar expression for a key and its value; lists and objects are in JSON."""
    key = f"{value.key}:"
    if value.words:
        words = " | ".join(grammar.literal(f"{QUOTE}{word}{QUOTE}") for word in value.words)
        return f"{grammar.literal(key)} ({words})"
    if may_be_text(value.schema):
        return f"{grammar.literal(key + QUOTE)} {grammar.text_until(QUOTE)}"
    return f"{grammar.literal(key)} {grammar.json(value.schema)}"
