"""The tool format of Qwen3-Coder and Qwen3.5: calls in XML-like tags, with a tag per parameter."""

import re
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import read_call
from sharpi.dialogue.keyed_arguments import KeyedArguments, keyed_expression
from sharpi.dialogue.tool_format import WrittenCall, value_text
from sharpi.dialogue.tools import Tool

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_NAME = re.compile(r"[^\s<>]+")


class QwenCoder(MarkedAnswer):
    """Reads and writes `<tool_call>`, `<function=name>`, `<parameter=key>`, value and closing tags.

    Each tag and value is on a separate line. Calls without the outer tags, or with JSON inside
    them, are read as well.
    """

    openings = (_OPENING, _FUNCTION)
    markers = (_OPENING, _CLOSING)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        if opening == _OPENING:
            yield from source.skip_blanks()
            if not (yield from source.accept(_FUNCTION)):
                is_call = yield from read_call(source, calls)
                return is_call and (yield from _close(source))
        name, end = yield from source.read_until((">", "\n"))
        if end != ">" or not _NAME.fullmatch(name):
            return False
        if opening == _FUNCTION and name not in calls.tools:
            return False
        yield calls.begin(name)
        yield from _read_parameters(source, KeyedArguments(calls, name))
        return (yield from _close(source))

    def write(self, calls: Sequence[WrittenCall]) -> str:
        return "\n".join(
            f"{_OPENING}\n{_FUNCTION}{name}>\n"
            + "".join(
                f"{_PARAMETER}{key}>\n{value_text(value)}\n{_PARAMETER_END}\n"
                for key, value in arguments.items()
            )
            + f"{_FUNCTION_END}\n{_CLOSING}"
            for name, arguments in calls
        )

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        def opening(key: str, is_text: bool) -> str:
            return f"{_PARAMETER}{key}>\n"

        closing = f"\n{_PARAMETER_END}\n"
        choices = [
            f"{grammar.literal(f'{_OPENING}{chr(10)}{_FUNCTION}{tool.name}>{chr(10)}')} "
            + keyed_expression(grammar, tool, opening, closing)
            for tool in tools
        ]
        end = grammar.literal(f"{_FUNCTION_END}\n{_CLOSING}")
        call = grammar.rule(f"({' | '.join(choices)}) {end}")
        return f'{call} ("\\n" {call})*' if parallel else call


def _read_parameters(source: AnswerText, arguments: KeyedArguments) -> Steps[None]:
    while (yield from source.accept_marker(_PARAMETER)):
        key, end = yield from source.read_until((">",))
        if end is None:
            break
        yield from source.accept("\n")
        closings = (f"\n{_PARAMETER_END}", _PARAMETER_END)
        if not (yield from arguments.pass_value(source, key, closings)):
            return
    yield from source.accept_marker(_FUNCTION_END)
    yield from arguments.end()


def _close(source: AnswerText) -> Steps[bool]:
    yield from source.accept_marker(_CLOSING)
    return True
