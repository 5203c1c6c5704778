"""MiniMax M2's tool format: XML with attributes, with all calls in one pair of outer tags."""

import re
from collections.abc import Sequence
from typing import ClassVar

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.bracketed_calls import BracketedCalls
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.keyed_arguments import KeyedArguments
from sharpi.dialogue.keyed_grammar import keyed_expression
from sharpi.dialogue.tool_format import WrittenCall, value_text
from sharpi.dialogue.tools import Tool

OPENING, _CLOSING = "<minimax:tool_call>", "</minimax:tool_call>"
_INVOKE, _INVOKE_END = '<invoke name="', "</invoke>"
_PARAMETER, _PARAMETER_END = '<parameter name="', "</parameter>"
_NAME = re.compile(r"[^\s<>\"]+")


class MiniMax(BracketedCalls):
    """Reads and writes `<parameter name="...">value</parameter>` lines in `<invoke name="...">`."""

    openings: ClassVar = (OPENING,)
    section_ends: ClassVar = (_CLOSING,)
    beginning: ClassVar = _INVOKE
    markers = (OPENING, _CLOSING)

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        name, end = yield from source.read_until(('">', "\n"))
        if end != '">' or not _NAME.fullmatch(name):
            return False
        yield calls.begin(name)
        arguments = KeyedArguments(calls, name)
        while (yield from source.accept_marker(_PARAMETER)):
            key, end = yield from source.read_until(('">',))
            if end is None:
                break
            if not (yield from arguments.pass_value(source, key, (_PARAMETER_END,))):
                return True
        yield from source.accept_marker(_INVOKE_END)
        yield from arguments.end()
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        bodies = [
            f'{_INVOKE}{name}">\n'
            + "".join(
                f'{_PARAMETER}{key}">{value_text(value)}{_PARAMETER_END}\n'
                for key, value in arguments.items()
            )
            + f"{_INVOKE_END}\n"
            for name, arguments in calls
        ]
        return f"{OPENING}\n{''.join(bodies)}{_CLOSING}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = [
            f"{grammar.literal(f'{_INVOKE}{tool.name}{chr(34)}>{chr(10)}')} "
            + keyed_expression(grammar, tool, f'{_PARAMETER}{{}}">', f"{_PARAMETER_END}\n")
            for tool in tools
        ]
        call = grammar.rule(f"({' | '.join(choices)}) {grammar.literal(f'{_INVOKE_END}{chr(10)}')}")
        several = f"{call}+" if parallel else call
        return f"{grammar.literal(f'{OPENING}{chr(10)}')} {several} {grammar.literal(_CLOSING)}"
