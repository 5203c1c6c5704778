"""Mistral's tool formats: `[TOOL_CALLS]`, then a JSON list of calls or a name with arguments."""

import json
import re
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value, read_calls
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

_OPENING, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_NAME = re.compile(r"[^\s\[\]{}]+")
_SAMPLE_ID = "000000000"


class Mistral(MarkedAnswer):
    """Reads both versions of the format; writes the newer one if `is_newer`.

    Older: `[TOOL_CALLS][{"name": ..., "arguments": ...}]`. Newer: `[TOOL_CALLS]name[ARGS]{...}`,
    with `[CALL_ID]` and an id before `[ARGS]` if `has_ids`.
    """

    openings = (_OPENING,)

    def __init__(self, *, is_newer: bool = False, has_ids: bool = False) -> None:
        self._is_newer, self._has_ids = is_newer, has_ids
        self.markers = (_OPENING, _ARGUMENTS, _ID) if is_newer else (_OPENING,)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if (yield from source.next()) == "[":
            return (yield from read_calls(source, calls))
        return (yield from _read_named(source, calls))

    def write(self, calls: Sequence[WrittenCall]) -> str:
        if self._is_newer:
            call_id = f"{_ID}{_SAMPLE_ID}" if self._has_ids else ""
            return "".join(
                f"{_OPENING}{name}{call_id}{_ARGUMENTS}{json.dumps(arguments, ensure_ascii=False)}"
                for name, arguments in calls
            )
        objects = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return _OPENING + json.dumps(objects, ensure_ascii=False)

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = [f"{self._begun(grammar, tool.name)} {grammar.arguments(tool)}" for tool in tools]
        if self._is_newer:
            call = grammar.rule(" | ".join(choices))
            return f"{call}+" if parallel else call
        call = grammar.rule(f'({" | ".join(choices)}) "}}"')
        several = f'(", " {call})*' if parallel else ""
        return f'{grammar.literal(f"{_OPENING}[")} {call} {several} "]"'

    def _begun(self, grammar: CallGrammar, name: str) -> str:
        """Returns an expression for the text of a call before its arguments."""
        if not self._is_newer:
            quoted = json.dumps(name, ensure_ascii=False)
            return grammar.literal(f'{{"name": {quoted}, "arguments": ')
        if not self._has_ids:
            return grammar.literal(f"{_OPENING}{name}{_ARGUMENTS}")
        named, arguments = grammar.literal(f"{_OPENING}{name}{_ID}"), grammar.literal(_ARGUMENTS)
        return f"{named} /[a-zA-Z0-9]{{9}}/ {arguments}"


def _read_named(source: AnswerText, calls: Calls) -> Steps[bool]:
    name, end = yield from source.read_until((_ID, _ARGUMENTS, "{", _OPENING))
    if end == _ID:
        _, end = yield from source.read_until((_ARGUMENTS, "{", _OPENING))
    if end not in (_ARGUMENTS, "{") or not _NAME.fullmatch(name.strip()):
        return False
    if end == "{":
        source.at -= 1
    yield from source.skip_blanks()
    if (yield from source.next()) != "{":
        return False
    yield calls.begin(name.strip())
    yield from pass_value(source, calls.arguments)
    return True
