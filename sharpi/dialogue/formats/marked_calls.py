"""Tool calls whose name is between markers or in tags, with arguments as JSON or in tags."""

import json
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from sharpi.dialogue.answer_text import AnswerText, Calls, Steps
from sharpi.dialogue.call_grammar import CallGrammar
from sharpi.dialogue.formats.json_calls import JsonCalls
from sharpi.dialogue.json_call import pass_value
from sharpi.dialogue.keyed_arguments import (
    ArgumentSpec,
    KeyedArguments,
    json_text,
    may_be_text,
    values_in_order,
)
from sharpi.dialogue.notations import MISTRAL, JsonNotation, MarkedNotation
from sharpi.dialogue.python_call import read_any_calls
from sharpi.dialogue.tool_format import BracketedCalls
from sharpi.dialogue.tools import Tool

_NAME, _NUMBER, _ID, _KEY, _TYPE = "{name}", "{number}", "{id}", "{key}", "{type}"
_IS_TEXT, _SAYS_TEXT = "{is_text}", ('string="true"', 'type="string"')
_PATTERNS = {_NUMBER: "/[0-9]+/", _ID: "/[a-zA-Z0-9]{9}/", _TYPE: "/[a-z]+/"}
_PLACES = re.compile("(" + "|".join(map(re.escape, _PATTERNS)) + ")")
_ANY_NAME = r"(?P<name>[^\s<>{}\[\]`]+?)"
_NAME_IN_TAG = re.compile(r"(?!/)[^\s<>{}()=\"]+")
_AROUND_MARKER = re.compile(r"\s+(?=<)|(?<=>)\s+")
_ITEM, _MAX_DEPTH, _FENCE = "item", 64, "```"
_TYPES = {bool: "boolean", str: "string", int: "number", float: "number", dict: "object"}


class _Tag(Struct, frozen=True):
    """What ends a name in a tag, and the tags that follow before its content."""

    end: str  # "" where white space or the next tag ends the name
    further: tuple[str, ...]


def _tag(after_name: str) -> _Tag:
    end, *further = after_name.rpartition('"')[2].split() or [""]
    return _Tag(end, tuple(further))


def _expression(grammar: CallGrammar, text: str) -> str:
    """Returns a grammar expression for a text with places for numbers, ids and types."""
    parts = (_PATTERNS.get(part) or grammar.literal(part) for part in _PLACES.split(text) if part)
    return " ".join(parts)


class MarkedCalls(BracketedCalls):
    """Reads and writes calls in a MarkedNotation.

    JSON is read in place of a call or of its arguments, too. Calls in tags without those around all
    calls need the name of an available tool.
    """

    notation: MarkedNotation

    def __init__(self, notation: MarkedNotation) -> None:
        tags = (notation.call, notation.call_end, notation.argument, notation.argument_end)
        super().__init__(notation, notation.begin, tags)
        self._is_strict = bool(notation.argument and self.endings)
        self._end = notation.call_end.strip(f"{_FENCE}\n")
        self.endings = self.endings or tuple(filter(None, (self._end,)))
        self._call = _tag(notation.call.partition(_NAME)[2])
        self._key_begin, _, after_key = notation.argument.partition(_KEY)
        self._argument = _tag(after_key)
        head = notation.head.replace(_NAME, _ANY_NAME)
        self._head = re.compile(rf"\s*{head}\s*(?:```(?:json)?\s*)?")
        self._stops = (self._key_begin, self._end, self.beginning, *self.endings)
        self._mistaken = [MarkedCalls(each) for each in notation.mistaken]
        self.openings += tuple(text for form in self._mistaken for text in form.openings)
        self.endings += tuple(text for form in self._mistaken for text in form.endings)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        form = next((each for each in self._mistaken if opening in each.openings), self)
        if (yield from source.attempt(read_any_calls(source, calls, is_strict=False))):
            return True
        start = source.at
        if opening == form.beginning and form._is_strict:
            if (yield from form._read_name(source)) not in calls.tools:
                return False
            source.at = start
        return (yield from super(MarkedCalls, form).read_call(source, opening, calls))

    def read_one(self, source: AnswerText, calls: Calls) -> Steps[bool]:
        name = yield from self._read_name(source)
        if name is None:
            return False
        yield calls.begin(name)
        yield from source.skip_blanks()
        if not self._key_begin or (yield from source.next()) == "{":
            yield from pass_value(source, calls.arguments)
            yield from source.accept_marker(_FENCE)
            yield from source.accept_marker(self._end)
        else:
            yield from self._read_arguments(source, KeyedArguments(calls, name))
        return True

    def written(self, number: int, name: str, arguments: Mapping[str, Any]) -> str:
        form = self.notation
        call = form.call.replace(_NUMBER, str(number + form.first)).replace(_ID, f"{number:09}")
        text = json.dumps(arguments, ensure_ascii=False)
        if form.argument:
            text = "".join(self._written(key, value) for key, value in arguments.items())
        return f"{form.begin}{call.replace(_NAME, name)}{text}{form.call_end}"

    def called(self, grammar: CallGrammar, tool: Tool) -> str:
        form = self.notation
        begun = _expression(grammar, (form.begin + form.call).replace(_NAME, tool.name))
        arguments = grammar.arguments(tool)
        if form.argument:
            arguments = " ".join(self._called(grammar, each) for each in values_in_order(tool))
        return f"{begun} {arguments} {grammar.literal(form.call_end)}"

    def _called(self, grammar: CallGrammar, value: ArgumentSpec) -> str:
        """Returns a grammar expression for an argument; one that may be a string is any text."""
        is_text = bool(value.words) or may_be_text(value.schema)
        opening, closing = self._around(value.key, is_text)
        if is_text and not value.words:
            content = grammar.text_until(closing)
        else:
            words = " | ".join(map(grammar.literal, value.words))
            content = f"({words or grammar.json(value.schema)}) {grammar.literal(closing)}"
        part = f"{_expression(grammar, opening)} {content}"
        return part if value.is_required else f"({part})?"

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

    def _read_name(self, source: AnswerText) -> Steps[str | None]:
        """Reads on to the arguments of a call, and returns its name; None if this is no call."""
        if self._key_begin:
            followers = () if self._call.end else (self._key_begin, self._end)
            read = yield from self._read_tag(source, self._call, followers)
            return read and read[0]
        text, stop = yield from source.read_until(
            tuple(filter(None, ("{", self.beginning, self._end)))
        )
        head = self._head.fullmatch(_AROUND_MARKER.sub("", text))
        source.at -= len(stop or "")
        return head["name"] if stop == "{" and head else None

    def _read_tag(
        self, source: AnswerText, tag: _Tag, followers: tuple[str, ...] = ()
    ) -> Steps[tuple[str, bool] | None]:
        """Reads on in a tag; returns its name and whether it says to hold a string."""
        text, end = yield from source.read_until((tag.end or "\n", "\n", *followers))
        source.at -= 0 if tag.end else len(end or "")
        name, _, attributes = text.strip().partition('"')
        if end is None or (tag.end and end != tag.end) or not _NAME_IN_TAG.fullmatch(name):
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
            read = yield from self._read_tag(source, self._argument)
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
        if not (yield from source.accept_marker(self._key_begin)):
            start = source.at
            _, found = yield from source.read_until(self._stops)
            if found != self._key_begin:
                source.at = source.at if found == self._end else start
                return False
        while (yield from source.accept(self._key_begin)):  # which models repeat
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


class OlderMistral(JsonCalls):
    """Writes a list of JSON objects, and reads calls as newer models write them, too."""

    def __init__(self) -> None:
        section = ("[TOOL_CALLS]", "")
        super().__init__(JsonNotation(name="Mistral", section=section, is_list=True))
        self._newer = MarkedCalls(MISTRAL)

    def read_call(self, source: AnswerText, opening: str, calls: Calls) -> Steps[bool]:
        return (yield from self._newer.read_call(source, opening, calls))
