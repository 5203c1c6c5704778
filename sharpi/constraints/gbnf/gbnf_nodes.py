"""What the rules of a GBNF grammar consist of."""

from typing import TypeAlias

from sharpi.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Characters:
    """Text or one character of a set, as Lark writes it."""

    lark: str


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the vocabulary, which is no text."""

    lark: str


@dataclass(frozen=True, slots=True)
class Reference:
    """Another rule."""

    name: str


@dataclass(frozen=True, slots=True)
class Run:
    """One after the other."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """As often as `times` says, in Lark's words: `*`, `+`, `?`, `{2,3}`."""

    part: "Node"
    times: str


Node: TypeAlias = Characters | Token | Reference | Run | Choice | Repeat
