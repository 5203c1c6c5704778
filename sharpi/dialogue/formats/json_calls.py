"""Tool calls as JSON objects with a name and arguments, after a marker or alone."""

import json
from collections.abc import Sequence

from msgspec import Struct

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.python_calls import list_openings, read_python_calls
from sharpi.dialogue.json_call import accept_fence, read_calls
from sharpi.dialogue.tool_format import WrittenCall, tokens_in
from sharpi.dialogue.tools import Tool

_AROUND_LIST = " \n[]"


class JsonNotation(Struct, frozen=True):
    """How one family writes calls: what is before, between and after them, and their keys.

    `repeats`: `opening` and `closing` are around each call. `others`: further markers that begin a
    call, and `other_end` what may end one. `is_single`: the model writes one call in an answer.
    `is_strict`: only objects that name an available tool are calls.
    """

    name: str
    opening: str
    closing: str = ""
    between: str = ", "
    repeats: bool = False
    name_key: str = "name"
    arguments_key: str = "arguments"
    others: tuple[str, ...] = ()
    other_end: str = ""
    is_single: bool = False
    is_strict: bool = False


HERMES = JsonNotation("Hermes", "<tool_call>\n", "\n</tool_call>", "\n", repeats=True)
NEMOTRON = JsonNotation("Nemotron Nano v2", "<TOOLCALL>[", "]</TOOLCALL>")
GRANITE = JsonNotation("Granite 3", "<|tool_call|>[", "]")
COHERE = JsonNotation(
    "Cohere", "<|START_ACTION|>[", "]<|END_ACTION|>", name_key="tool_name",
    arguments_key="parameters",
)  # fmt: skip
GIGACHAT = JsonNotation("GigaChat 3.1", "<|function_call|>", between="", repeats=True)
GIGACHAT_ROLE = JsonNotation(
    "GigaChat 3", "<|message_sep|>\n\nfunction call<|role_sep|>\n", between="", is_single=True,
    others=("function call<|role_sep|>",),
)  # fmt: skip
APRIEL = JsonNotation("Apriel", "<tool_calls>[", "]</tool_calls>")
MINIMAX_M1 = JsonNotation("MiniMax M1", "<tool_calls>\n", "\n</tool_calls>", "\n")
MISTRAL_LIST = JsonNotation("Mistral", "[TOOL_CALLS][", "]")
LLAMA = JsonNotation(
    "Llama 3", "", "", "; ", arguments_key="parameters", is_single=True, is_strict=True,
    others=("<|python_tag|>", "<|python_start|>"), other_end="<|python_end|>",
)  # fmt: skip


class JsonCalls(MarkedAnswer):
    """Reads and writes calls in a JsonNotation.

    Without a marker, an object that names an available tool is a call at the beginning of an
    answer, and a list of such objects anywhere. A list of Python calls is read as well.
    """

    def __init__(self, notation: JsonNotation) -> None:
        self._notation, self.name = notation, notation.name
        markers = (notation.opening.rstrip(_AROUND_LIST), *notation.others)
        self.openings = tuple(filter(None, markers))
        self._closing = notation.closing.lstrip(_AROUND_LIST) or notation.other_end
        self.markers = tokens_in(
            "".join((notation.opening, *notation.others, notation.closing, notation.other_end))
        )

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        if not (yield from _read_any(source, calls, self._notation.is_strict)):
            return False
        start = source.at
        while (yield from source.accept("}")):  # of which there may be too many
            pass
        has_end = bool(self._closing) and (yield from source.accept_marker(self._closing))
        if source.rest and not has_end:
            source.at = start
        return True

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        yield from source.skip_blanks()
        return (yield from _read_any(source, calls, strict=True))

    def bare_openings(self, calls: Calls) -> tuple[str, ...]:
        key = self._notation.name_key
        lists = (f'[{{"{key}": {json.dumps(name)}' for name in calls.tools)
        return (*lists, *list_openings(calls))

    def write(self, calls: Sequence[WrittenCall]) -> str:
        form = self._notation
        objects = (
            json.dumps({form.name_key: name, form.arguments_key: arguments}, ensure_ascii=False)
            for name, arguments in calls
        )
        if form.repeats:
            return form.between.join(f"{form.opening}{each}{form.closing}" for each in objects)
        return f"{form.opening}{form.between.join(objects)}{form.closing}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        form = self._notation
        called = f'({grammar.called(tools, self._begun)}) "}}"'
        opening, closing = grammar.literal(form.opening), grammar.literal(form.closing)
        call = grammar.rule(f"{opening} {called} {closing}" if form.repeats else called)
        is_several = parallel and not form.is_single
        several = f"{call} ({grammar.literal(form.between)} {call})*" if is_several else call
        return several if form.repeats else f"{opening} {several} {closing}"

    def _begun(self, name: str) -> str:
        quoted, form = json.dumps(name, ensure_ascii=False), self._notation
        return f'{{"{form.name_key}": {quoted}, "{form.arguments_key}": '


def _read_any(source: AnswerText, calls: Calls, strict: bool) -> Steps[bool]:
    """Reads calls in Python's notation or as JSON; `strict`: of available tools only."""
    start = source.at
    yield from accept_fence(source)
    if (yield from source.next()) == "[" and (yield from read_python_calls(source, calls)):
        return True
    source.at = start
    return (yield from read_calls(source, calls, calls.tools if strict else None))
