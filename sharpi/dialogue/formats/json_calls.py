"""Tool calls as JSON objects with a name and arguments, or in Python's notation."""

import json
from collections.abc import Mapping
from typing import Any

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.keyed_arguments import values_in_order
from sharpi.dialogue.notations import JsonNotation
from sharpi.dialogue.python_call import LIST_OPENINGS, read_any_calls
from sharpi.dialogue.tool_format import ToolFormat
from sharpi.dialogue.tools import Tool

LIST_BEGIN = "<|tool_call_start|>"  # of LFM2


class JsonCalls(ToolFormat):
    """Reads and writes calls in a JsonNotation.

    Without a marker, an object that names an available tool is a call at the beginning of an
    answer, and a list of such objects anywhere. A list of Python calls is read as well.
    """

    notation: JsonNotation
    bare_openings = LIST_OPENINGS

    def __init__(self, notation: JsonNotation) -> None:
        super().__init__(notation, written=(text for pair in notation.others for text in pair))

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        is_strict = self.notation.is_strict
        if not (yield from read_any_calls(source, calls, is_strict=is_strict)):
            return False
        start = source.at
        while (yield from source.accept("}")):  # of which there may be too many
            pass
        yield from source.skip_blanks()
        after = yield from source.next()
        if after and not any(end.startswith(after) for end in self.endings):
            source.at = start
        return True

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        return (yield from read_any_calls(source, calls, is_strict=True))

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        call = {self.notation.name_key: name, self.notation.arguments_key: arguments}
        return json.dumps(call, ensure_ascii=False)

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        quoted, form = json.dumps(tool.name, ensure_ascii=False), self.notation
        begun = grammar.literal(f'{{"{form.name_key}": {quoted}, "{form.arguments_key}": ')
        return f'{begun} {grammar.arguments(tool)} "}}"'


class PythonCalls(JsonCalls):
    """Reads and writes `<|tool_call_start|>[name(key=value), ...]<|tool_call_end|>`.

    Values are read in Python's or JSON's notation, and written as JSON.
    """

    def __init__(self) -> None:
        section = (LIST_BEGIN, "<|tool_call_end|>")
        super().__init__(JsonNotation(name="LFM2", section=section, is_list=True, is_strict=True))

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        pairs = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items())
        return f"{name}({', '.join(pairs)})"

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        values = [
            (f"{grammar.literal(f'{each.key}=')} {grammar.json(each.schema)}", each.is_required)
            for each in values_in_order(tool)
        ]
        return f'{grammar.literal(f"{tool.name}(")} {grammar.listed(values, ", ")} ")"'
