"""Tool calls in tags like those of XML, with a tag for each argument."""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.json_call import pass_value, read_calls
from sharpi.dialogue.keyed_arguments import (
    ArgumentSpec,
    KeyedArguments,
    json_text,
    may_be_text,
    values_in_order,
)
from sharpi.dialogue.tool_format import BracketedCalls, Notation
from sharpi.dialogue.tools import Tool

_NAME, _KEY, _NUMBER, _TYPE, _IS_TEXT = "{name}", "{key}", "{number}", "{type}", "{is_text}"
_VALID_NAME = re.compile(r"(?!/)[^\s<>{}()=\"]+")
_SAYS_TEXT = ('string="true"', 'type="string"')
_ITEM, _MAX_DEPTH = "item", 64
_TYPES = {bool: "boolean", str: "string", int: "number", float: "number", dict: "object"}


class TagNotation(Notation, frozen=True, kw_only=True):
    """How one family writes calls, with places for `{name}` and `{number}`, `{key}` and its type.

    `call` and `call_end` are around the arguments of a call, `argument` and `argument_end` around
    the value of one. `prefix`: what begins the tags in a value that is a list or an object; "" if
    these are JSON. `mistaken`: what the model writes by mistake, and is read as well.
    """

    call: str
    call_end: str
    argument: str
    argument_end: str
    prefix: str = ""
    mistaken: tuple["TagNotation", ...] = ()


def _invoked(name: str, section: str, mark: str = "", typed: str = "") -> TagNotation:
    """Returns the notation of `<invoke name="...">` with `<parameter name="...">` in it."""
    return TagNotation(
        name=name,
        call=f'<{mark}invoke name="{_NAME}">\n',
        call_end=f"</{mark}invoke>\n",
        argument=f'<{mark}parameter name="{_KEY}"{typed}>',
        argument_end=f"</{mark}parameter>\n",
        section=(f"<{section}>\n", f"</{section}>"),
    )


def _dsml(name: str, *sections: str) -> TagNotation:
    """Returns DeepSeek's notation with the first section; the model mistakes others for it."""
    marks = ("｜DSML｜", "|DSML|", "｜｜DSML｜｜", "||DSML||", "‖DSML‖")
    own, *mistaken = (
        _invoked(name, f"{mark}{section}", mark, f' string="{_IS_TEXT}"')
        for mark in marks
        for section in sections
    )
    return replace(own, mistaken=tuple(mistaken))


_SPACE = "]<]minimax[>["
_QWEN = TagNotation(
    name="Qwen3-Coder", call="<function={name}>\n", call_end="</function>\n",
    argument="<parameter={key}>\n", argument_end="\n</parameter>\n",
    section=("<tool_call>\n", "</tool_call>"), between="\n", repeats=True,
    signs=("<function=", "<parameter="),
)  # fmt: skip
TAG_NOTATIONS = (
    TagNotation(
        name="GLM-4.5", call="<tool_call>{name}\n", call_end="</tool_call>",
        argument="<arg_key>{key}</arg_key>\n<arg_value>", argument_end="</arg_value>\n",
        between="\n", signs=("<tool_call>", "<arg_key>"),
    ),
    TagNotation(
        name="Hy3", call="<tool_call:opensource>{name}<tool_sep:opensource>\n",
        call_end="</tool_call:opensource>\n",
        argument="<arg_key:opensource>{key}</arg_key:opensource>\n<arg_value:opensource>",
        argument_end="</arg_value:opensource>\n",
        section=("<tool_calls:opensource>\n", "</tool_calls:opensource>"),
    ),
    TagNotation(
        name="Kimi K3", call='<|open|>call tool="{name}" index="{number}"<|sep|>',
        call_end="<|close|>call<|sep|>",
        argument='<|open|>argument key="{key}" type="{type}"<|sep|>',
        argument_end="<|close|>argument<|sep|>",
        section=("<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    ),
    TagNotation(
        name="MiniMax M3", call=f'{_SPACE}<invoke name="{{name}}">',
        call_end=f"{_SPACE}</invoke>\n", argument=f"{_SPACE}<{{key}}>",
        argument_end=f"{_SPACE}</{{key}}>",
        section=(f"{_SPACE}<tool_call>\n", f"{_SPACE}</tool_call>"), prefix=_SPACE,
    ),
    _invoked("MiniMax M2", "minimax:tool_call"),
    _invoked("Muse", "atem:function_calls", "atem:"),
    _dsml("DeepSeek V3.2", "function_calls", "tool_calls"),
    _dsml("DeepSeek V4", "tool_calls", "function_calls"),
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

    notation: TagNotation

    def __init__(self, notation: TagNotation) -> None:
        self._call, self._argument = _tag(notation.call, _NAME), _tag(notation.argument, _KEY)
        tags = (notation.call, notation.call_end, notation.argument, notation.argument_end)
        super().__init__(notation, self._call.begin, tags)
        self._end = notation.call_end.strip()
        self._has_section = bool(self.endings)
        self.endings = self.endings or (self._end,)
        self._followers = () if self._call.end else (self._argument.begin, self._end)
        self._stops = (self._argument.begin, self._end, self.beginning, *self.endings)
        self._mistaken = [TaggedCalls(each) for each in notation.mistaken]
        self.openings += tuple(text for form in self._mistaken for text in form.openings)
        self.endings += tuple(text for form in self._mistaken for text in form.endings)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        form = next((each for each in self._mistaken if opening in each.openings), self)
        start = source.at
        yield from source.skip_blanks()
        if (yield from source.next()) == "{":
            return (yield from read_calls(source, calls))
        if opening == form.beginning and form._has_section:
            read = yield from form._read_name(source, form._call, form._followers)
            if read is None or read[0] not in calls.tools:
                return False
        source.at = start
        return (yield from super(TaggedCalls, form).read_call(source, opening, calls))

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

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        call = self.notation.call.replace(_NAME, name).replace(_NUMBER, str(number + 1))
        parts = (self._written(key, value) for key, value in arguments.items())
        return f"{call}{''.join(parts)}{self.notation.call_end}"

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        form = self.notation
        begun, *rest = form.call.replace(_NAME, tool.name).split(_NUMBER)
        number = [f"/[0-9]+/ {grammar.literal(rest[0])}"] if rest else []
        arguments = (self._argument_expression(grammar, each) for each in values_in_order(tool))
        return " ".join(
            (grammar.literal(begun), *number, *arguments, grammar.literal(form.call_end))
        )

    def _argument_expression(self, grammar: CallGrammar, value: ArgumentSpec) -> str:
        """Returns a grammar expression for an argument; one that may be a string is any text."""
        is_text = bool(value.words) or may_be_text(value.schema)
        opening, closing = self._around(value.key, is_text)
        before = " /[a-z]+/ ".join(grammar.literal(part) for part in opening.split(_TYPE) if part)
        if is_text and not value.words:
            content = grammar.text_until(closing)
        else:
            words = " | ".join(map(grammar.literal, value.words))
            content = f"({words or grammar.json(value.schema)}) {grammar.literal(closing)}"
        return f"{before} {content}" if value.is_required else f"({before} {content})?"

    def _around(self, key: str, is_text: bool) -> tuple[str, str]:
        form = self.notation
        opening = form.argument.replace(_KEY, key).replace(_IS_TEXT, str(is_text).lower())
        return opening, form.argument_end.replace(_KEY, key)

    def _written(self, key: str, value: Any) -> str:
        is_text = isinstance(value, str)
        opening, closing = self._around(key, is_text)
        kind = "null" if value is None else _TYPES.get(type(value), "array")
        text = value if is_text else json.dumps(value, ensure_ascii=False)
        return f"{opening.replace(_TYPE, kind)}{text}{closing}"

    def _read_name(
        self, source: AnswerText, tag: _Tag, followers: tuple[str, ...] = ()
    ) -> Steps[tuple[str, bool] | None]:
        """Reads on in a tag; returns its name and whether it says to hold a string."""
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
        form = self.notation
        while (yield from self._finds_argument(source)):
            read = yield from self._read_name(source, self._argument)
            if read is None:
                continue
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

    def _finds_argument(self, source: AnswerText) -> Steps[bool]:
        """Reads past the tag of the next argument; returns False at the end of the call."""
        if (yield from source.accept_marker(self._end)):
            return False
        tag = self._argument.begin
        if not (yield from source.accept_marker(tag)):
            start = source.at
            _, found = yield from source.read_until(self._stops)
            if found != tag:
                source.at = source.at if found == self._end else start
                return False
        while (yield from source.accept(tag)):  # which models repeat
            pass
        return True


def _read_nested(
    source: AnswerText, prefix: str, name: str, schema: Mapping[str, Any], depth: int = 0
) -> Steps[str | None]:
    """Reads a tag's value to its end as JSON text; tags within are members or items."""
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
