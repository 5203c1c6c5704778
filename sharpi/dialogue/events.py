"""The events of an answer, in the order in which they stream: reasoning, text and tool calls."""

from typing import TypeAlias

from msgspec import Struct


class Reasoning(Struct, frozen=True):
    """A part of the reasoning before the answer."""

    text: str


class Text(Struct, frozen=True):
    """A part of the answer's text, outside reasoning and calls."""

    text: str


class CallBegin(Struct, frozen=True):
    """Begins call number `index` of the answer; its arguments follow as `CallArguments`."""

    index: int
    name: str


class CallArguments(Struct, frozen=True):
    """A part of the JSON text of a call's arguments; together the parts form one JSON object."""

    index: int
    text: str


AnswerEvent: TypeAlias = Reasoning | Text | CallBegin | CallArguments
