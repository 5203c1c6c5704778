"""The nodes of a GBNF grammar's rules."""

from typing import TypeAlias

from msgspec import Struct


class Characters(Struct, frozen=True):
    """Text or one character of a set, in Lark's notation."""

    lark: str


class Token(Struct, frozen=True):
    """One token of the vocabulary that is not text."""

    lark: str


class Reference(Struct, frozen=True):
    """A reference to another rule."""

    name: str


class Run(Struct, frozen=True):
    """A sequence of parts."""

    parts: tuple["Node", ...]


class Choice(Struct, frozen=True):
    """A choice among parts."""

    parts: tuple["Node", ...]


class Repeat(Struct, frozen=True):
    """A repeated part."""

    part: "Node"
    times: str  # in Lark's notation: `*`, `+`, `?`, `{2,3}`


Node: TypeAlias = Characters | Token | Reference | Run | Choice | Repeat
