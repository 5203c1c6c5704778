"""DeepSeek's tool format: calls between markers, with a JSON code block in V3 and R1."""

import json
import re
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import BracketedCalls
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

CALLS_BEGIN, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _SEPARATOR, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_BLOCK, _BLOCK_END = "```json", "```"
_NAME = re.compile(r"[^\s<>{}`]+")


class DeepSeek(BracketedCalls):
    """Reads the formats of V3 and V3.1; writes V3's if `has_blocks`, else V3.1's.

    V3: `function`, separator, name, newline, JSON as a code block. V3.1: name, separator, JSON.
    """

    openings = (CALLS_BEGIN, _BEGIN)
    section_ends = (_CALLS_END,)
    beginning = _BEGIN
    markers = (CALLS_BEGIN, _CALLS_END, _BEGIN, _SEPARATOR, _END)

    def __init__(self, *, has_blocks: bool) -> None:
        self._has_blocks = has_blocks
        self._end = f"\n{_BLOCK_END}{_END}" if has_blocks else _END
        self._between = "\n" if has_blocks else ""

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        name, end = yield from source.read_until((_SEPARATOR, _END))
        if end != _SEPARATOR:
            return False
        yield from source.skip_blanks()
        is_block = (yield from source.next()) != "{"
        if is_block:
            name, _ = yield from source.read_until(("\n", _END))
            yield from source.skip_blanks()
            yield from source.accept_any((_BLOCK, _BLOCK_END))
            yield from source.skip_blanks()
        if not _NAME.fullmatch(name.strip()) or (yield from source.next()) != "{":
            return False
        yield calls.begin(name.strip())
        yield from pass_value(source, calls.arguments)
        if is_block:
            yield from source.accept_marker(_BLOCK_END)
        yield from source.accept_marker(_END)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        return CALLS_BEGIN + self._between.join(map(self._written, calls)) + _CALLS_END

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        call = grammar.rule(f"({grammar.called(tools, self._begun)}) {grammar.literal(self._end)}")
        several = f"({grammar.literal(self._between)} {call})*" if parallel else ""
        return f"{grammar.literal(CALLS_BEGIN)} {call} {several} {grammar.literal(_CALLS_END)}"

    def _begun(self, name: str) -> str:
        """Returns the text of a call before its arguments."""
        if self._has_blocks:
            return f"{_BEGIN}function{_SEPARATOR}{name}\n{_BLOCK}\n"
        return f"{_BEGIN}{name}{_SEPARATOR}"

    def _written(self, call: WrittenCall) -> str:
        name, arguments = call
        return f"{self._begun(name)}{json.dumps(arguments, ensure_ascii=False)}{self._end}"
