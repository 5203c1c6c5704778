"""Tool calls as a name between markers, followed by the arguments as a JSON object."""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.json_calls import JsonCalls, JsonNotation
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.python_call import read_any_calls
from sharpi.dialogue.tool_format import BracketedCalls, Notation
from sharpi.dialogue.tools import Tool

_ARGUMENTS, _NAME, _NUMBER, _ID = "{arguments}", "{name}", "{number}", "{id}"
_ID_PATTERN = {_NUMBER: "/[0-9]+/", _ID: "/[a-zA-Z0-9]{9}/"}
_PLACES = re.compile("(" + "|".join(map(re.escape, _ID_PATTERN)) + ")")
_ANY_NAME = r"(?P<name>[^\s<>{}\[\]`]+?)"
_AROUND_MARKER = re.compile(r"\s+(?=<)|(?<=>)\s+")
_FENCE = "```"


class NamedNotation(Notation, frozen=True, kw_only=True):
    """How one family writes calls.

    `begin`: the marker that begins a call; `rest`: what follows, with places for `{name}`,
    `{arguments}`, the call's `{number}` and an `{id}` of nine letters and digits. `head`: a regular
    expression of what is between `begin` and the arguments, with a place for `{name}`.
    """

    begin: str
    rest: str
    head: str


_DEEPSEEK = NamedNotation(
    name="DeepSeek V3.1", begin="<｜tool▁call▁begin｜>",
    rest="{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
    head="(?:function<｜tool▁sep｜>)?{name}(?:<｜tool▁sep｜>)?",
    section=("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
)  # fmt: skip
_MISTRAL = NamedNotation(
    name="Mistral", begin="[TOOL_CALLS]", rest="{name}[ARGS]{arguments}",
    head=r"{name}(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?", signs=("[TOOL_CALLS]", "[ARGS]"),
)  # fmt: skip
NAMED_NOTATIONS = (
    replace(
        _DEEPSEEK, name="DeepSeek V3", between="\n",
        rest="function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
        signs=(_DEEPSEEK.section[0], "```json"),
    ),
    _DEEPSEEK,
    NamedNotation(
        name="Kimi K2", begin="<|tool_call_begin|>",
        rest="functions.{name}:{number}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
        head=r"(?:functions\.)?{name}(?::\d+)?<\|tool_call_argument_begin\|>",
        section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        others=(("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),),
    ),
    NamedNotation(
        name="Solar Open", begin="<|tool_call:begin|>",
        rest="{id}<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>",
        head=r"[^<]*<\|tool_call:name\|>{name}<\|tool_call:args\|>",
        section=("<|tool_calls|>", "<|calls|>"),
    ),
    replace(
        _MISTRAL, rest="{name}[CALL_ID]{id}[ARGS]{arguments}",
        signs=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    ),
    _MISTRAL,
    NamedNotation(
        name="Functionary 3.1", begin="<function=", rest="{name}>{arguments}</function>",
        head="{name}>",
    ),
)  # fmt: skip


class NamedCalls(BracketedCalls):
    """Reads and writes calls in a NamedNotation; JSON is read in place of a call, too."""

    notation: NamedNotation

    def __init__(self, notation: NamedNotation) -> None:
        super().__init__(notation, notation.begin, [notation.rest])
        self._begun, self._end = notation.rest.split(_ARGUMENTS)
        name = notation.head.replace(_NAME, _ANY_NAME)
        self._head = re.compile(rf"\s*{name}\s*(?:```(?:json)?\s*)?")
        self._closing = self._end.strip(f"{_FENCE}\n")
        self._stops = tuple(filter(None, ("{", notation.begin, self._closing)))

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        start = source.at
        if (yield from read_any_calls(source, calls, is_strict=False)):
            return True
        source.at = start
        return (yield from super().read_call(source, opening, calls))

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        text, stop = yield from source.read_until(self._stops)
        head = self._head.fullmatch(_AROUND_MARKER.sub("", text))
        if stop != "{" or head is None:
            return False
        source.at -= 1
        yield calls.begin(head["name"])
        yield from pass_value(source, calls.arguments)
        if _FENCE in head[0]:
            yield from source.accept_marker(_FENCE)
        if self._closing:
            yield from source.accept_marker(self._closing)
        return True

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        rest = self.notation.rest.replace(_NUMBER, str(number)).replace(_ID, f"{number:09}")
        text = json.dumps(arguments, ensure_ascii=False)
        return self.beginning + rest.replace(_NAME, name).replace(_ARGUMENTS, text)

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        begun = (self.beginning + self._begun).replace(_NAME, tool.name)
        parts = [
            _ID_PATTERN.get(part) or grammar.literal(part) for part in _PLACES.split(begun) if part
        ]
        return " ".join([*parts, grammar.arguments(tool), grammar.literal(self._end)])


class OlderMistral(JsonCalls):
    """Writes a list of JSON objects, and reads calls as newer models write them, too."""

    def __init__(self) -> None:
        section = ("[TOOL_CALLS]", "")
        super().__init__(JsonNotation(name="Mistral", section=section, is_list=True))
        self._newer = NamedCalls(_MISTRAL)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        return (yield from self._newer.read_call(source, opening, calls))
