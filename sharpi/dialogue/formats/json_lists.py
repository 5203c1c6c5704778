"""Tool formats that write calls as JSON objects after a marker, alone or in a list."""

import json
from collections.abc import Sequence

from msgspec import Struct

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import read_calls
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool


class JsonNotation(Struct, frozen=True):
    """The markers and the keys of one family's calls."""

    opening: str
    closing: str = ""  # "" without one
    name_key: str = "name"
    arguments_key: str = "arguments"
    is_list: bool = True  # `[{...}, {...}]`, else one object after each marker


NEMOTRON = JsonNotation("<TOOLCALL>", "</TOOLCALL>")
GRANITE = JsonNotation("<|tool_call|>")
COHERE = JsonNotation("<|START_ACTION|>", "<|END_ACTION|>", "tool_name", "parameters")
GIGACHAT = JsonNotation("<|function_call|>", is_list=False)
NOTATIONS = (NEMOTRON, COHERE, GRANITE, GIGACHAT)


class JsonLists(MarkedAnswer):
    """Reads and writes calls in a JsonNotation; reads an object where a list is written, too."""

    def __init__(self, notation: JsonNotation) -> None:
        self._notation = notation
        self.openings = (notation.opening,)
        self.markers = tuple(filter(None, (notation.opening, notation.closing)))

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if not (yield from read_calls(source, calls)):
            return False
        if self._notation.closing:
            yield from source.accept_marker(self._notation.closing)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        form = self._notation
        objects = [
            json.dumps({form.name_key: name, form.arguments_key: arguments}, ensure_ascii=False)
            for name, arguments in calls
        ]
        if form.is_list:
            return f"{form.opening}[{', '.join(objects)}]{form.closing}"
        return "".join(f"{form.opening}{each}{form.closing}" for each in objects)

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        form = self._notation
        opening, closing = grammar.literal(form.opening), grammar.literal(form.closing)
        call = grammar.rule(f'({grammar.called(tools, self._begun)}) "}}"')
        if form.is_list:
            several = f'(", " {call})*' if parallel else ""
            return f'{opening} "[" {call} {several} "]" {closing}'
        one = grammar.rule(f"{opening} {call} {closing}")
        return f"{one}+" if parallel else one

    def _begun(self, name: str) -> str:
        quoted, form = json.dumps(name, ensure_ascii=False), self._notation
        return f'{{"{form.name_key}": {quoted}, "{form.arguments_key}": '
