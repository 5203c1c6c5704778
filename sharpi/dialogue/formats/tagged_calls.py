"""Tool calls in tags like those of XML, with a tag for each argument."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sharpi.dialogue.answer_parser import BracketedCalls
from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value, read_calls
from sharpi.dialogue.keyed_arguments import KeyedArguments, json_text, keyed_expression
from sharpi.dialogue.tool_format import WrittenCall, tokens_in, value_text
from sharpi.dialogue.tools import Tool

_NAME, _KEY, _NUMBER, _TYPE, _IS_TEXT = "{name}", "{key}", "{number}", "{type}", "{is_text}"
_VALID_NAME = re.compile(r"[^\s<>{}\"]+")
_SAYS_TEXT = ('string="true"', 'type="string"')
_ITEM, _MAX_DEPTH = "item", 64
_TYPES = {bool: "boolean", str: "string", int: "number", float: "number", dict: "object"}


class TagNotation(Struct, frozen=True):
    """How one family writes calls, with places for `{name}` and `{number}`, `{key}` and its type.

    `call` and `call_end` are around the arguments of a call, `argument` and `argument_end` around
    the value of one; `section` around all calls, or around each if `repeats`. `prefix`: what begins
    the tags in a value that is a list or an object; "" if these are JSON. `signs`: what tells the
    family; () for the first tag.
    """

    name: str
    call: str
    call_end: str
    argument: str
    argument_end: str
    section: tuple[str, str] = ("", "")
    between: str = ""
    repeats: bool = False
    prefix: str = ""
    signs: tuple[str, ...] = ()


def _invoked(name: str, section: str, prefix: str = "", is_typed: bool = False) -> TagNotation:
    """Returns the notation of `<invoke name="...">` with `<parameter name="...">` in it."""
    typed = f' string="{_IS_TEXT}"' if is_typed else ""
    return TagNotation(
        name,
        f'<{prefix}invoke name="{_NAME}">\n',
        f"</{prefix}invoke>\n",
        f'<{prefix}parameter name="{_KEY}"{typed}>',
        f"</{prefix}parameter>\n",
        (f"<{section}>\n", f"</{section}>"),
    )


_DSML, _SPACE = "｜DSML｜", "]<]minimax[>["
_QWEN = TagNotation(
    "Qwen3-Coder", "<function={name}>\n", "</function>\n", "<parameter={key}>\n",
    "\n</parameter>\n", ("<tool_call>\n", "</tool_call>"), "\n", repeats=True,
    signs=("<function=", "<parameter="),
)  # fmt: skip
TAG_NOTATIONS = (
    TagNotation(
        "GLM-4.5", "<tool_call>{name}\n", "</tool_call>",
        "<arg_key>{key}</arg_key>\n<arg_value>", "</arg_value>\n", between="\n",
        signs=("<tool_call>", "<arg_key>"),
    ),
    TagNotation(
        "Hy3", "<tool_call:opensource>{name}<tool_sep:opensource>\n", "</tool_call:opensource>\n",
        "<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>",
        "</arg_value:opensource>\n", ("<tool_calls:opensource>\n", "</tool_calls:opensource>"),
    ),
    TagNotation(
        "Kimi K3", '<|open|>call tool="{name}" index="{number}"<|sep|>', "<|close|>call<|sep|>",
        '<|open|>argument key="{key}" type="{type}"<|sep|>', "<|close|>argument<|sep|>",
        ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    ),
    TagNotation(
        "MiniMax M3", f'{_SPACE}<invoke name="{{name}}">', f"{_SPACE}</invoke>\n",
        f"{_SPACE}<{{key}}>", f"{_SPACE}</{{key}}>",
        (f"{_SPACE}<tool_call>\n", f"{_SPACE}</tool_call>"), prefix=_SPACE,
    ),
    _invoked("MiniMax M2", "minimax:tool_call"),
    _invoked("DeepSeek V3.2", f"{_DSML}function_calls", _DSML, is_typed=True),
    _invoked("DeepSeek V4", f"{_DSML}tool_calls", _DSML, is_typed=True),
    replace(
        _QWEN, name="Seed-OSS", section=("<seed:tool_call>\n", "</seed:tool_call>"), signs=()
    ),
    _QWEN,
)  # fmt: skip


class _Tag(Struct, frozen=True):
    """What is before a name in a tag, what ends it, and the tags that follow before its content."""

    begin: str
    end: str  # "" where white space or the next tag ends the name
    further: tuple[str, ...]


def _tag(written: str, place: str) -> _Tag:
    begin, rest = written.split(place)
    end, *further = rest.rpartition('"')[2].split() or [""]
    return _Tag(begin, end, tuple(further))


class TaggedCalls(BracketedCalls):
    """Reads and writes calls in a TagNotation.

    Calls of available tools are read without the tags around all calls, too, and JSON in place of a
    call or of its arguments.
    """

    def __init__(self, notation: TagNotation) -> None:
        self._notation, self.name = notation, notation.name
        self._call, self._argument = _tag(notation.call, _NAME), _tag(notation.argument, _KEY)
        self.beginning = self._call.begin
        section, section_end = (tag.strip() for tag in notation.section)
        self._has_section = bool(section)
        self.openings = (section, self.beginning) if section else (self.beginning,)
        self.signs = notation.signs or self.openings[:1]
        self._end = notation.call_end.strip()
        self.endings = (section_end,) if section else (self._end,)
        self._followers = () if self._call.end else (self._argument.begin, self._end)
        written = (*notation.section, notation.call, notation.call_end)
        self.markers = tokens_in("".join((*written, notation.argument, notation.argument_end)))

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        start = source.at
        yield from source.skip_blanks()
        if (yield from source.next()) == "{":
            return (yield from read_calls(source, calls))
        if opening == self.beginning and self._has_section:
            read = yield from self._read_name(source, self._call, self._followers)
            if read is None or read[0] not in calls.tools:
                return False
        source.at = start
        return (yield from super().read_call(source, opening, calls))

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        read = yield from self._read_name(source, self._call, self._followers)
        if read is None:
            return False
        yield calls.begin(read[0])
        yield from source.skip_blanks()
        if (yield from source.next()) == "{":
            yield from pass_value(source, calls.arguments)
            yield from source.accept_marker(self._end)
        else:
            yield from self._read_arguments(source, KeyedArguments(calls, read[0]))
        return True

    def write(self, calls: Sequence[WrittenCall]) -> str:
        form, (opening, closing) = self._notation, self._notation.section
        written = [
            form.call.replace(_NAME, name).replace("{number}", str(number))
            + "".join(self._written(key, value) for key, value in arguments.items())
            + form.call_end
            for number, (name, arguments) in enumerate(calls, 1)
        ]
        if form.repeats:
            return form.between.join(f"{opening}{each}{closing}" for each in written)
        return f"{opening}{form.between.join(written)}{closing}"

    def expression(self, grammar: CallGrammar, tools: Sequence[Tool], parallel: bool) -> str:
        form = self._notation
        opening, closing = map(grammar.literal, form.section)
        choices = [self._called(grammar, tool) for tool in tools]
        call = f"({' | '.join(choices)}) {grammar.literal(form.call_end)}"
        call = grammar.rule(f"{opening} {call} {closing}" if form.repeats else call)
        several = f"{call} ({grammar.literal(form.between)} {call})*" if parallel else call
        return several if form.repeats else f"{opening} {several} {closing}"

    def _called(self, grammar: CallGrammar, tool: Tool) -> str:
        """Returns an expression for a call of a tool up to its last argument."""
        form = self._notation

        def around(key: str, is_text: bool) -> tuple[str, str]:
            written = form.argument.replace(_KEY, key).replace(_IS_TEXT, str(is_text).lower())
            parts = (grammar.literal(part) for part in written.split(_TYPE) if part)
            return " /[a-z]+/ ".join(parts), form.argument_end.replace(_KEY, key)

        begun, *rest = form.call.replace(_NAME, tool.name).split(_NUMBER)
        number = f" /[0-9]+/ {grammar.literal(rest[0])}" if rest else ""
        return f"{grammar.literal(begun)}{number} {keyed_expression(grammar, tool, around)}"

    def _written(self, key: str, value: Any) -> str:
        form = self._notation
        kind = "null" if value is None else _TYPES.get(type(value), "array")
        is_text = str(isinstance(value, str)).lower()
        begun = form.argument.replace(_IS_TEXT, is_text).replace(_TYPE, kind).replace(_KEY, key)
        return f"{begun}{value_text(value)}{form.argument_end.replace(_KEY, key)}"

    def _read_name(
        self, source: AnswerText, tag: _Tag, followers: tuple[str, ...] = ()
    ) -> Steps[tuple[str, bool] | None]:
        """Reads a tag after its beginning; returns its name and whether it says to hold a string.

        `followers`: the tags that may follow a name without an end.
        """
        text, end = yield from source.read_until((tag.end or "\n", "\n", *followers))
        source.at -= 0 if tag.end else len(end or "")
        name, _, attributes = text.strip().partition('"')
        if end is None or (tag.end and end != tag.end) or not _VALID_NAME.fullmatch(name):
            return None
        while tag.further and (yield from source.accept_marker(tag.end)):  # models repeat tags
            pass
        for further in tag.further:
            if not (yield from source.accept_marker(further)):
                return None
        return name, any(sign in attributes for sign in _SAYS_TEXT)

    def _read_arguments(self, source: AnswerText, arguments: KeyedArguments) -> Steps[None]:
        form = self._notation
        while not (yield from source.accept_marker(self._end)):
            is_argument = yield from source.accept_marker(self._argument.begin)
            while is_argument and (yield from source.accept(self._argument.begin)):
                pass
            read = (yield from self._read_name(source, self._argument)) if is_argument else None
            if read is None:
                break
            key, says_text = read
            end = form.argument_end.replace(_KEY, key).rstrip()
            if form.argument.endswith("\n"):
                yield from source.accept("\n")
            if form.prefix and not arguments.is_text(key):
                value = yield from _read_nested(source, form.prefix, key, arguments.schema(key))
                if value is None:
                    return
                yield arguments.json(key, value)
            elif not (yield from arguments.pass_value(source, key, (end, end.strip()), says_text)):
                return
        yield from arguments.end()


def _read_nested(
    source: AnswerText, prefix: str, name: str, schema: Mapping[str, Any], depth: int = 0
) -> Steps[str | None]:
    """Reads the value of a tag up to its end, and returns it as JSON text; None without an end.

    Tags within are the members of an object, or of a list if all are named `item`.
    """
    members: list[tuple[str, str]] = []
    while True:
        text, opening = yield from source.read_until((f"{prefix}<",))
        if opening is None or depth > _MAX_DEPTH:
            return None
        if (yield from source.accept(f"/{name}>")):
            break
        inner, _ = yield from source.read_until((">",))
        is_item = inner == _ITEM and "properties" not in schema
        below = schema.get("items") if is_item else schema.get("properties", {}).get(inner)
        value = yield from _read_nested(source, prefix, inner, below or {}, depth + 1)
        if value is None:
            return None
        members.append((inner, value))
    if not members:
        return json_text(text, schema)
    if all(inner == _ITEM for inner, _ in members):
        return f"[{', '.join(value for _, value in members)}]"
    return "{" + ", ".join(f"{json.dumps(inner)}: {value}" for inner, value in members) + "}"
