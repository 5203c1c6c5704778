"""Tool calls as JSON objects with a name and arguments, after a marker or alone."""

import json
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from sharpi.dialogue.answer_parser import MarkedAnswer
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.python_calls import LIST_OPENINGS, read_any_calls
from sharpi.dialogue.tool_format import WrittenCall, tokens_in
from sharpi.dialogue.tools import Tool

_AROUND_LIST = " \n[]"


class JsonNotation(Struct, frozen=True):
    """How one family writes calls: what is before, between and after them, and their keys.

    `repeats`: `opening` and `closing` are around each call. `others`: further markers that begin a
    call, and `other_end` what may end one. `is_single`: the model writes one call in an answer.
    `is_strict`: only objects that name an available tool are calls. `signs`: what tells the family;
    () for the marker in `opening`.
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
    signs: tuple[str, ...] = ()


HERMES = JsonNotation("Hermes", "<tool_call>\n", "\n</tool_call>", "\n", repeats=True)
LLAMA = JsonNotation(
    "Llama 3", "", "", "; ", arguments_key="parameters", is_single=True, is_strict=True,
    others=("<|python_tag|>", "<|python_start|>"), other_end="<|python_end|>", signs=("ipython",),
)  # fmt: skip
MISTRAL_LIST = JsonNotation("Mistral", "[TOOL_CALLS][", "]")
JSON_NOTATIONS = (
    JsonNotation("Nemotron Nano v2", "<TOOLCALL>[", "]</TOOLCALL>"),
    JsonNotation("Granite 3", "<|tool_call|>[", "]"),
    JsonNotation(
        "Cohere", "<|START_ACTION|>[", "]<|END_ACTION|>", name_key="tool_name",
        arguments_key="parameters",
    ),
    JsonNotation("GigaChat 3.1", "<|function_call|>", between="", repeats=True),
    JsonNotation(
        "GigaChat 3", "<|message_sep|>\n\nfunction call<|role_sep|>\n", between="",
        is_single=True, others=("function call<|role_sep|>",),
    ),
    HERMES,
    JsonNotation("Apriel", "<tool_calls>[", "]</tool_calls>"),
    JsonNotation("MiniMax M1", "<tool_calls>\n", "\n</tool_calls>", "\n"),
    LLAMA,
    replace(LLAMA, signs=LLAMA.others[:1]),
)  # fmt: skip


class JsonCalls(MarkedAnswer):
    """Reads and writes calls in a JsonNotation.

    Without a marker, an object that names an available tool is a call at the beginning of an
    answer, and a list of such objects anywhere. A list of Python calls is read as well.
    """

    bare_openings = LIST_OPENINGS

    def __init__(self, notation: JsonNotation) -> None:
        self._notation, self.name = notation, notation.name
        markers = (notation.opening.rstrip(_AROUND_LIST), *notation.others)
        self.openings = tuple(filter(None, markers))
        self.signs = notation.signs or self.openings[:1]
        self._closing = notation.closing.lstrip(_AROUND_LIST) or notation.other_end
        self.endings = tuple(filter(None, [self._closing]))
        self.markers = tokens_in(
            "".join((notation.opening, *notation.others, notation.closing, notation.other_end))
        )

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        is_strict = self._notation.is_strict
        if not (yield from read_any_calls(source, calls, is_strict=is_strict)):
            return False
        start = source.at
        while (yield from source.accept("}")):  # of which there may be too many
            pass
        has_end = bool(self._closing) and (yield from source.accept_marker(self._closing))
        if source.rest and not has_end:
            source.at = start
        return True

    def read_bare_call(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        return (yield from read_any_calls(source, calls, is_strict=True))

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
