"""DeepSeek: calls between markers of its own; V3 and R1 with a JSON code block, V3.1 without."""

import json
import re
from collections.abc import Sequence
from typing import ClassVar

from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.calls import Calls
from sharpi.dialogue.json_object import pass_value
from sharpi.dialogue.marked_answer import MarkedAnswer
from sharpi.dialogue.source import Source, Steps
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

CALLS_BEGIN, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _SEPARATOR, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_BLOCK, _BLOCK_END = "```json", "```"
_NAME = re.compile(r"[^\s<>{}`]+")


class DeepSeek(MarkedAnswer):
    """Both are read; `has_blocks`: what is written is V3's.

    V3: `function`, separator, name, line end, JSON as a code block. V3.1: name, separator, JSON.
    """

    openings: ClassVar = (CALLS_BEGIN, _BEGIN)
    marks = (CALLS_BEGIN, _CALLS_END, _BEGIN, _SEPARATOR, _END)

    def __init__(self, *, has_blocks: bool) -> None:
        self._has_blocks = has_blocks

    def read_call(self, source: Source, opening: str, calls: Calls) -> Steps[bool]:
        if opening == CALLS_BEGIN:
            yield from source.skip_blanks()
            if not (yield from source.accept(_BEGIN)):
                return False
        if not (yield from _read_one(source, calls)):
            return False
        while True:
            yield from source.skip_blanks()
            start = source.at
            if not (yield from source.accept(_BEGIN)):
                break
            if not (yield from _read_one(source, calls)):
                source.at = start
                break
        yield from source.accept(_CALLS_END)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        between = "\n" if self._has_blocks else ""
        return CALLS_BEGIN + between.join(map(self._written, calls)) + _CALLS_END

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = [f"{self._begun(grammar, tool.name)} {grammar.arguments(tool)}" for tool in tools]
        end = grammar.literal(f"\n{_BLOCK_END}" if self._has_blocks else "")
        call = grammar.rule(
            f"{grammar.mark(_BEGIN)} ({' | '.join(choices)}) {end} {grammar.mark(_END)}"
        )
        between = grammar.literal("\n" if self._has_blocks else "")
        several = f"({between} {call})*" if parallel else ""
        return f"{grammar.mark(CALLS_BEGIN)} {call} {several} {grammar.mark(_CALLS_END)}"

    def _written(self, call: WrittenCall) -> str:
        name, arguments = call
        text = json.dumps(arguments, ensure_ascii=False)
        if self._has_blocks:
            body = f"function{_SEPARATOR}{name}\n{_BLOCK}\n{text}\n{_BLOCK_END}"
        else:
            body = f"{name}{_SEPARATOR}{text}"
        return f"{_BEGIN}{body}{_END}"

    def _begun(self, grammar: CallGrammar, name: str) -> str:
        separator = grammar.mark(_SEPARATOR)
        if self._has_blocks:
            return f'"function" {separator} {grammar.literal(f"{name}{chr(10)}{_BLOCK}{chr(10)}")}'
        return f"{grammar.literal(name)} {separator}"


def _read_one(source: Source, calls: Calls) -> Steps[bool]:
    """A call after its begin marker."""
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
    yield from source.skip_blanks()
    if is_block:
        yield from source.accept(_BLOCK_END)
        yield from source.skip_blanks()
    yield from source.accept(_END)
    return True
