"""LFM2's tool format: a list of Python calls between two markers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.python_calls import read_python_calls
from sharpi.dialogue.keyed_arguments import values_in_order
from sharpi.dialogue.tool_format import WrittenCall
from sharpi.dialogue.tools import Tool

LIST_BEGIN, _LIST_END = "<|tool_call_start|>", "<|tool_call_end|>"


class Lfm2(MarkedAnswer):
    """Reads and writes `<|tool_call_start|>[name(key=value), ...]<|tool_call_end|>`.

    Values are read in Python's or JSON's notation, and written as JSON.
    """

    openings = (LIST_BEGIN,)
    markers = (LIST_BEGIN, _LIST_END)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if not (yield from read_python_calls(source, calls)):
            return False
        yield from source.accept_marker(_LIST_END)
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        written = (f"{name}({_keywords(arguments)})" for name, arguments in calls)
        return f"{LIST_BEGIN}[{', '.join(written)}]{_LIST_END}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        choices = []
        for tool in tools:
            values = [
                (
                    f"{grammar.literal(f'{value.key}=')} {grammar.json(value.schema)}",
                    value.is_required,
                )
                for value in values_in_order(tool)
            ]
            choices.append(f'{grammar.literal(f"{tool.name}(")} {grammar.listed(values, ", ")} ")"')
        call = grammar.rule(" | ".join(choices))
        several = f'{call} (", " {call})*' if parallel else call
        return f"{grammar.literal(f'{LIST_BEGIN}[')} {several} {grammar.literal(f']{_LIST_END}')}"


def _keywords(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()
    )
