"""The nodes of the syntax trees of GBNF rules."""

from typing import TypeAlias

from msgspec import Struct


class Characters(Struct, frozen=True):
    """A terminal: a string, or one character of a set, in Lark's notation."""

    lark: str


class Token(Struct, frozen=True):
    """A terminal that is one token of the vocabulary, as `<[7]>` or `<think>`."""

    lark: str


class Reference(Struct, frozen=True):
    """A reference to another rule."""

    name: str


class Concatenation(Struct, frozen=True):
    """A sequence of parts."""

    parts: tuple["Node", ...]


class Alternation(Struct, frozen=True):
    """Alternatives, of which one matches."""

    parts: tuple["Node", ...]


class Repetition(Struct, frozen=True):
    """A part with a quantifier."""

    part: "Node"
    times: str  # in Lark's notation: `*`, `+`, `?`, `{2,3}`


Node: TypeAlias = Characters | Token | Reference | Concatenation | Alternation | Repetition
