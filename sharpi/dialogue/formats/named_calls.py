"""Tool calls as a name between markers, followed by the arguments as a JSON object."""

import json
import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sharpi.dialogue.answer_parser import BracketedCalls
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.json_calls import MISTRAL_LIST, JsonCalls
from sharpi.dialogue.formats.python_calls import read_any_calls
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.tool_format import WrittenCall, tokens_in
from sharpi.dialogue.tools import Tool

_ARGUMENTS, _NAME, _ID = "{arguments}", "{name}", "{id}"
_ID_PATTERN = {"{number}": "/[0-9]+/", _ID: "/[a-zA-Z0-9]{9}/"}
_PLACES = re.compile("(" + "|".join(map(re.escape, _ID_PATTERN)) + ")")
_ANY_NAME = r"(?P<name>[^\s<>{}\[\]`]+?)"
_FENCE = "```"


class NamedNotation(Struct, frozen=True):
    """How one family writes calls.

    `begin`: the marker that begins a call; `rest`: what follows, with places for `{name}`,
    `{arguments}`, the call's `{number}` and an `{id}` of nine letters and digits. `head`: a regular
    expression of what is between `begin` and the arguments, with a place for `{name}`. `section`:
    the markers around all calls; `others`: pairs that are read in their place. `signs`: what tells
    the family; () for the first marker.
    """

    name: str
    begin: str
    rest: str
    head: str
    section: tuple[str, str] = ("", "")
    others: tuple[tuple[str, str], ...] = ()
    between: str = ""
    signs: tuple[str, ...] = ()


_DEEPSEEK_HEAD = "(?:function<｜tool▁sep｜>)?{name}(?:<｜tool▁sep｜>)?"
_DEEPSEEK_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_MISTRAL = NamedNotation(
    "Mistral", "[TOOL_CALLS]", "{name}[ARGS]{arguments}",
    r"{name}(?:\[CALL_ID\][^\[]*)?(?:\[ARGS\])?", signs=("[TOOL_CALLS]", "[ARGS]"),
)  # fmt: skip
NAMED_NOTATIONS = (
    NamedNotation(
        "DeepSeek V3", "<｜tool▁call▁begin｜>",
        "function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
        _DEEPSEEK_HEAD, _DEEPSEEK_SECTION, between="\n",
        signs=(_DEEPSEEK_SECTION[0], "```json"),
    ),
    NamedNotation(
        "DeepSeek V3.1", "<｜tool▁call▁begin｜>",
        "{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>", _DEEPSEEK_HEAD, _DEEPSEEK_SECTION,
    ),
    NamedNotation(
        "Kimi K2", "<|tool_call_begin|>",
        "functions.{name}:{number}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>",
        r"(?:functions\.)?{name}(?::\d+)?<\|tool_call_argument_begin\|>",
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        # The model sometimes writes these instead.
        others=(("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),),
    ),
    NamedNotation(
        "Solar Open", "<|tool_call:begin|>",
        "{id}<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>",
        r"[^<]*<\|tool_call:name\|>{name}<\|tool_call:args\|>",
        ("<|tool_calls|>", "<|calls|>"),
    ),
    replace(
        _MISTRAL, rest="{name}[CALL_ID]{id}[ARGS]{arguments}",
        signs=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
    ),
    _MISTRAL,
    NamedNotation("Functionary 3.1", "<function=", "{name}>{arguments}</function>", "{name}>"),
)  # fmt: skip


class NamedCalls(BracketedCalls):
    """Reads and writes calls in a NamedNotation; `writer` writes them in another one instead."""

    def __init__(self, notation: NamedNotation, writer: JsonCalls | None = None) -> None:
        self._notation, self._writer = notation, writer
        self.bare_openings = () if writer is None else writer.bare_openings
        self.name, self.beginning = notation.name, notation.begin
        sections = (notation.section, *notation.others)
        self.openings = (*(begin for begin, _ in sections if begin), notation.begin)
        self.signs = notation.signs or self.openings[:1]
        self.endings = tuple(end for _, end in sections if end)
        self._begun, self._end = notation.rest.split(_ARGUMENTS)
        name = notation.head.replace(_NAME, _ANY_NAME)
        self._head = re.compile(rf"\s*{name}\s*(?:```(?:json)?\s*)?")
        self.markers = tokens_in("".join((*notation.section, notation.begin, notation.rest)))
        self._closing = self._end.strip(f"{_FENCE}\n")
        self._stops = tuple(filter(None, ("{", notation.begin, self._closing)))

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        start = source.at
        if (yield from read_any_calls(source, calls, is_strict=False)):
            return True
        source.at = start
        return (yield from super().read_call(source, opening, calls))

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        form = self._writer
        return form is not None and (yield from form.read_bare_call(source, calls))

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        text, stop = yield from source.read_until(self._stops)
        head = self._head.fullmatch(text)
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

    def write(self, calls: Sequence[WrittenCall]) -> str:
        if self._writer is not None:
            return self._writer.write(calls)
        form, (opening, closing) = self._notation, self._notation.section
        written = (
            form.begin
            + form.rest.replace("{number}", str(number))
            .replace(_ID, f"{number:09}")
            .replace(_NAME, name)
            .replace(_ARGUMENTS, json.dumps(arguments, ensure_ascii=False))
            for number, (name, arguments) in enumerate(calls)
        )
        return f"{opening}{form.between.join(written)}{closing}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        if self._writer is not None:
            return self._writer.expression(grammar, tools, parallel)
        form = self._notation
        choices = [
            f"{_begun(grammar, form.begin + self._begun, tool)} {grammar.arguments(tool)}"
            for tool in tools
        ]
        call = grammar.rule(f"({' | '.join(choices)}) {grammar.literal(self._end)}")
        several = f"{call} ({grammar.literal(form.between)} {call})*" if parallel else call
        opening, closing = map(grammar.literal, form.section)
        return f"{opening} {several} {closing}"


def _begun(grammar: CallGrammar, text: str, tool: Tool) -> str:
    """Returns an expression for the text of a call before its arguments."""
    return " ".join(
        _ID_PATTERN.get(part) or grammar.literal(part)
        for part in _PLACES.split(text.replace(_NAME, tool.name))
        if part
    )


OLDER_MISTRAL = NamedCalls(replace(_MISTRAL, signs=()), JsonCalls(MISTRAL_LIST))
