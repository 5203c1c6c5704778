"""Tool calls as JSON objects with a name and arguments, or in Python's notation."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.keyed_arguments import values_in_order
from sharpi.dialogue.python_call import LIST_OPENINGS, read_any_calls
from sharpi.dialogue.tool_format import Notation, ToolFormat
from sharpi.dialogue.tools import Tool


class JsonNotation(Notation, frozen=True, kw_only=True):
    """How one family writes calls as JSON.

    `is_strict`: only objects that name an available tool are calls.
    """

    between: str = ", "
    name_key: str = "name"
    arguments_key: str = "arguments"
    is_strict: bool = False


HERMES = JsonNotation(
    name="Hermes", section=("<tool_call>\n", "\n</tool_call>"), between="\n", repeats=True
)
LLAMA = JsonNotation(
    name="Llama 3", between="; ", arguments_key="parameters", is_single=True, is_strict=True,
    others=(("<|python_tag|>", ""), ("<|python_start|>", "<|python_end|>")), signs=("ipython",),
)  # fmt: skip
JSON_NOTATIONS = (
    JsonNotation(name="Nemotron Nano v2", section=("<TOOLCALL>", "</TOOLCALL>"), is_list=True),
    JsonNotation(name="Granite 3", section=("<|tool_call|>", ""), is_list=True),
    JsonNotation(
        name="Cohere", section=("<|START_ACTION|>", "<|END_ACTION|>"), is_list=True,
        name_key="tool_name", arguments_key="parameters",
    ),
    JsonNotation(
        name="GigaChat 3.1", section=("<|function_call|>", ""), between="", repeats=True
    ),
    JsonNotation(
        name="GigaChat 3", section=("<|message_sep|>\n\nfunction call<|role_sep|>\n", ""),
        between="", is_single=True, others=(("function call<|role_sep|>", ""),),
    ),
    HERMES,
    JsonNotation(name="Apriel", section=("<tool_calls>", "</tool_calls>"), is_list=True),
    JsonNotation(name="MiniMax M1", section=("<tool_calls>\n", "\n</tool_calls>"), between="\n"),
    LLAMA,
    replace(LLAMA, signs=LLAMA.others[0][:1]),
)  # fmt: skip


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


LIST_BEGIN = "<|tool_call_start|>"


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
