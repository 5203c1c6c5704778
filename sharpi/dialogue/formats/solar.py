"""Solar Open's tool format: messages that begin with a marker of their kind."""

import json
import re
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import BracketedCalls
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool
from sharpi.tokenizer.reasoning import ReasoningMarkers

_BEGIN, _NAME, _ARGUMENTS = "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>"
_END, _SECTION, _CALLS_END = "<|tool_call:end|>", "<|tool_calls|>", "<|calls|>"
_MESSAGE, _MESSAGE_END, _CONTENT = "<|begin|>assistant", "<|end|>", "<|content|>"
SECTION_BEGIN = _SECTION
_NAMED = re.compile(r"[^\s<>{}]+")


class Solar(BracketedCalls):
    """Reads and writes `<|tool_call:begin|>id<|tool_call:name|>name<|tool_call:args|>{...}`."""

    openings = (_SECTION, _BEGIN)
    section_ends = (_CALLS_END,)
    beginning = _BEGIN
    markers = (_SECTION, _CALLS_END, _BEGIN, _NAME, _ARGUMENTS, _END, _CONTENT, _MESSAGE_END)
    reasoning = ReasoningMarkers("<|think|>", _MESSAGE_END)
    answer_markers = (_MESSAGE, _CONTENT, _MESSAGE_END)

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        _, marker = yield from source.read_until((_NAME, _END))
        if marker != _NAME:
            return False
        name, marker = yield from source.read_until((_ARGUMENTS, _END))
        yield from source.skip_blanks()
        is_named = marker == _ARGUMENTS and _NAMED.fullmatch(name.strip())
        if not is_named or (yield from source.next()) != "{":
            return False
        yield calls.begin(name.strip())
        yield from pass_value(source, calls.arguments)
        yield from source.accept_marker(_END)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        written = (
            f"{_BEGIN}{number}{_NAME}{name}{_ARGUMENTS}"
            f"{json.dumps(arguments, ensure_ascii=False)}{_END}"
            for number, (name, arguments) in enumerate(calls)
        )
        return f"{_SECTION}{''.join(written)}{_CALLS_END}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = [
            f"{grammar.literal(f'{_NAME}{tool.name}{_ARGUMENTS}')} {grammar.arguments(tool)}"
            for tool in tools
        ]
        call = grammar.rule(
            f"{grammar.literal(_BEGIN)} /[0-9a-z]+/ ({' | '.join(choices)}) {grammar.literal(_END)}"
        )
        several = f"{call}+" if parallel else call
        return f"{grammar.literal(_SECTION)} {several} {grammar.literal(_CALLS_END)}"
