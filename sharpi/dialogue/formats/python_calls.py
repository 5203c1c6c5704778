"""Tool calls in Python's notation, `[name(key="value"), ...]`, as LFM2 writes them."""

import json
from collections.abc import Mapping
from typing import Any

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.keyed_arguments import values_in_order
from sharpi.dialogue.python_call import LIST_OPENINGS, read_any_calls
from sharpi.dialogue.tool_format import Notation, ToolFormat
from sharpi.dialogue.tools import Tool

LIST_BEGIN, _LIST_END = "<|tool_call_start|>", "<|tool_call_end|>"


class PythonCalls(ToolFormat):
    """Reads and writes `<|tool_call_start|>[name(key=value), ...]<|tool_call_end|>`.

    Values are read in Python's or JSON's notation, and written as JSON.
    """

    bare_openings = LIST_OPENINGS

    def __init__(self) -> None:
        section = (LIST_BEGIN, _LIST_END)
        super().__init__(Notation(name="LFM2", section=section, between=", ", is_list=True))

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        return (yield from read_any_calls(source, calls, is_strict=True))

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        return (yield from read_any_calls(source, calls, is_strict=True))

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        pairs = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items())
        return f"{name}({', '.join(pairs)})"

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        values = [
            (f"{grammar.literal(f'{each.key}=')} {grammar.json(each.schema)}", each.is_required)
            for each in values_in_order(tool)
        ]
        return f'{grammar.literal(f"{tool.name}(")} {grammar.listed(values, ", ")} ")"'
