"""The nodes of a GBNF grammar's rules."""

from typing import TypeAlias

from msgspec import Struct


class Characters(Struct, frozen=True):
    """Text or one character of a set, as Lark writes it."""

    lark: str


class Token(Struct, frozen=True):
    """One token of the vocabulary, which is no text."""

    lark: str


class Reference(Struct, frozen=True):
    """Another rule."""

    name: str


class Run(Struct, frozen=True):
    """One after the other."""

    parts: tuple["Node", ...]


class Choice(Struct, frozen=True):
    """One of them."""

    parts: tuple["Node", ...]


class Repeat(Struct, frozen=True):
    """As often as `times` says, in Lark's words: `*`, `+`, `?`, `{2,3}`."""

    part: "Node"
    times: str


Node: TypeAlias = Characters | Token | Reference | Run | Choice | Repeat
