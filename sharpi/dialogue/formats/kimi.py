"""Kimi K2's tool format: a section of calls with ids such as `functions.get_time:0`."""

import itertools
import json
import re
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import BracketedCalls
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

SECTION_BEGIN, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
# The model sometimes writes these instead.
_SINGULAR_BEGIN, _SINGULAR_END = "<|tool_call_section_begin|>", "<|tool_call_section_end|>"
_BEGIN, _END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_ID = re.compile(r"(?:functions\.)?([^\s<>{}]+?)(?::\d+)?")


class Kimi(BracketedCalls):
    """Reads and writes calls: a begin marker, an id, the arguments' marker, JSON, an end marker."""

    openings = (SECTION_BEGIN, _SINGULAR_BEGIN, _BEGIN)
    section_ends = (_SECTION_END, _SINGULAR_END)
    beginning = _BEGIN
    markers = (SECTION_BEGIN, _SECTION_END, _BEGIN, _ARGUMENTS, _END)

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        call_id, marker = yield from source.read_until((_ARGUMENTS, _END))
        found = _ID.fullmatch(call_id.strip())
        yield from source.skip_blanks()
        if marker != _ARGUMENTS or found is None or (yield from source.next()) != "{":
            return False
        yield calls.begin(found[1])
        yield from pass_value(source, calls.arguments)
        yield from source.accept_marker(_END)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        numbers = itertools.count()
        return (
            SECTION_BEGIN
            + "".join(
                f"{_BEGIN}functions.{name}:{next(numbers)}{_ARGUMENTS}"
                f"{json.dumps(arguments, ensure_ascii=False)}{_END}"
                for name, arguments in calls
            )
            + _SECTION_END
        )

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = [
            f"{grammar.literal(f'{_BEGIN}functions.{tool.name}:')} /[0-9]+/ "
            f"{grammar.literal(_ARGUMENTS)} {grammar.arguments(tool)}"
            for tool in tools
        ]
        call = grammar.rule(f"({' | '.join(choices)}) {grammar.literal(_END)}")
        several = f"{call}+" if parallel else call
        return f"{grammar.literal(SECTION_BEGIN)} {several} {grammar.literal(_SECTION_END)}"
