"""What an answer consists of, in the order it streams: reasoning, text, calls of tools."""

from typing import TypeAlias

from sharpi.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Some of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """Some of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """Call number `index` of the answer begins; its arguments follow as `CallArguments`."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Some of the JSON text of a call's arguments; all of a call's together are one JSON object."""

    index: int
    text: str


AnswerEvent: TypeAlias = Reasoning | Text | CallBegin | CallArguments
