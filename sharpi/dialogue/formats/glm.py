"""The tool format of GLM-4.5 and later: a name in `<tool_call>`, then keys and values in tags."""

import re
from collections.abc import Sequence

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.keyed_arguments import KeyedArguments, keyed_expression
from sharpi.dialogue.tool_format import WrittenCall, value_text
from sharpi.dialogue.tools import Tool

_OPENING, _CLOSING = "<tool_call>", "</tool_call>"
_KEY, _KEY_END = "<arg_key>", "</arg_key>"
_VALUE, _VALUE_END = "<arg_value>", "</arg_value>"
_NAME = re.compile(r"[^\s<>{}]+")


class Glm(MarkedAnswer):
    """Reads and writes `<tool_call>name`, then lines with `<arg_key>` and `<arg_value>` in turn."""

    openings = (_OPENING,)
    markers = (_OPENING, _CLOSING, _KEY, _KEY_END, _VALUE, _VALUE_END)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        name, end = yield from source.read_until(("\n", _KEY, _CLOSING))
        if end is None or not _NAME.fullmatch(name.strip()):
            return False
        source.at -= len(end)
        yield calls.begin(name.strip())
        yield from _read_arguments(source, KeyedArguments(calls, name.strip()))
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        return "\n".join(
            f"{_OPENING}{name}\n"
            + "".join(
                f"{_KEY}{key}{_KEY_END}\n{_VALUE}{value_text(value)}{_VALUE_END}\n"
                for key, value in arguments.items()
            )
            + _CLOSING
            for name, arguments in calls
        )

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        def opening(key: str, is_text: bool) -> str:
            return f"{_KEY}{key}{_KEY_END}\n{_VALUE}"

        choices = [
            f"{grammar.literal(f'{_OPENING}{tool.name}{chr(10)}')} "
            + keyed_expression(grammar, tool, opening, f"{_VALUE_END}\n")
            for tool in tools
        ]
        call = grammar.rule(f"({' | '.join(choices)}) {grammar.literal(_CLOSING)}")
        return f'{call} ("\\n" {call})*' if parallel else call


def _read_arguments(source: AnswerText, arguments: KeyedArguments) -> Steps[None]:
    while (yield from source.accept_marker(_KEY)):
        key, _ = yield from source.read_until((_KEY_END,))
        if not (yield from source.accept_marker(_VALUE)):
            break
        if not (yield from arguments.pass_value(source, key, (_VALUE_END,))):
            return
    yield from source.accept_marker(_CLOSING)
    yield from arguments.end()
