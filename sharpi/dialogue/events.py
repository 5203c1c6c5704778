"""The events of an answer, in the order in which they stream: reasoning, text and tool calls."""

from typing import TypeAlias

from msgspec import Struct


class Reasoning(Struct, frozen=True):
    """Some of what the model thinks before it answers."""

    text: str


class Text(Struct, frozen=True):
    """Some of the answer itself."""

    text: str


class CallBegin(Struct, frozen=True):
    """Call number `index` of the answer begins; its arguments follow as `CallArguments`."""

    index: int
    name: str


class CallArguments(Struct, frozen=True):
    """Some of the JSON text of a call's arguments; all of a call's together are one JSON object."""

    index: int
    text: str


AnswerEvent: TypeAlias = Reasoning | Text | CallBegin | CallArguments
