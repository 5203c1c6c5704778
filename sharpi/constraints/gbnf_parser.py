"""Parses GBNF, llama.cpp's grammar format, into one syntax tree per rule.

The syntax is that of llama.cpp's grammars/README.md. Tokens by id or text (`<[7]>`, `<think>`) are
supported, negated tokens are not.
"""

import json
import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from sharpi.errors import GrammarError

_CHARACTER = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrt\\\"\[\]]))|([^\\])",
    re.DOTALL,
)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
ANY = "/(?s:.)/"


def literal(text: str) -> str:
    """Returns Lark's string literal for the text between two GBNF quotes; raises ValueError."""
    return json.dumps("".join(_characters(text)), ensure_ascii=False)


def character_set(text: str) -> str:
    """Returns Lark's regular expression of a set in GBNF; raises ValueError for invalid ones."""
    is_negated = text.startswith("^")
    chars = _characters(text[is_negated:])
    if not chars:
        raise ValueError("a set of characters is empty")
    inner, at = "", 0
    while at < len(chars):
        is_range = chars[at + 1 : at + 2] == ["-"] and at + 2 < len(chars)
        inner += _code(chars[at])
        if is_range:
            inner += "-" + _code(chars[at + 2])
        at += 3 if is_range else 1
    return f"/[{'^' if is_negated else ''}{inner}]/"


def _characters(text: str) -> list[str]:
    chars, at = [], 0
    while at < len(text):
        found = _CHARACTER.match(text, at)
        if found is None:
            raise ValueError(f"{text[at : at + 2]} is not a GBNF escape")
        chars.append(_character(found))
        at = found.end()
    return chars


def _character(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return found[5] or _ESCAPED.get(found[4], found[4])
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise ValueError(f"{found[0]} is not a character")
    return chr(number)


def _code(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"


class Terminal(Struct, frozen=True):
    """A string or one character of a set, or one token as `<[7]>`, in Lark's notation."""

    lark: str
    is_token: bool = False


class Reference(Struct, frozen=True):
    """A reference to another rule."""

    name: str


class Group(Struct, frozen=True):
    """Parts in a row, or alternatives of which one matches."""

    parts: tuple["Node", ...]
    separator: Literal[" ", " | "]


class Repetition(Struct, frozen=True):
    """A part with a quantifier."""

    part: "Node"
    times: str  # in Lark's notation: `*`, `+`, `?`, `{2,3}`


Node: TypeAlias = Terminal | Reference | Group | Repetition


_MAX_DEPTH = 50
_MAX_TIMES = 3  # quantifiers after one element, as in a*+?, which nest as groups do
_LEXEMES = re.compile(
    r"(?P<blank>(?:[ \t]|\#[^\r\n]*)+)|(?P<line>(?:\r\n?|\n))"
    r"|(?P<is>::=)|(?P<name>[A-Za-z0-9_-]+)"
    r'|"(?P<text>(?:[^"\\]|\\.)*)"|\[(?P<set>(?:[^\]\\]|\\.)*)\]|(?P<token><[^<>\s"]+>)'
    r"|\{\s*(?P<low>\d{1,6})\s*(?P<comma>,?)\s*(?P<high>\d{0,6})\s*\}|(?P<sign>[|()*+?.])",
    re.DOTALL,
)
_QUANTIFIERS = ("*", "+", "?")


def parse_gbnf(text: str) -> dict[str, Node]:
    """Returns a grammar's rules by name; raises GrammarError with the line of a syntax error."""
    parser = _Parser(text)
    rules: dict[str, Node] = {}
    while (name := parser.next_name()) is not None:
        rules[name] = parser.alternation(depth=0)
    if "root" not in rules:
        raise GrammarError("the GBNF grammar has no rule `root` to begin with")
    return rules


class _Parser:
    """A recursive-descent parser with one lexeme of lookahead, which is None at the end."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._next: re.Match[str] | None = None
        self._advance()

    def next_name(self) -> str | None:
        """Reads the name and `::=` of the next rule; returns None at the end of the grammar."""
        self._skip_lines()
        if self._next is None:
            return None
        name = self._take("name")
        if name is None or self._take("is") is None:
            raise self._fault("a rule `name ::= ...` was expected")
        self._skip_lines()
        return name

    def alternation(self, depth: int) -> Node:
        """Parses the alternatives up to the end of the rule or group."""
        if depth > _MAX_DEPTH:
            raise self._fault("groups are nested too deeply")
        parts = [self._concatenation(depth)]
        while self._take_sign("|"):
            self._skip_lines()
            parts.append(self._concatenation(depth))
        return parts[0] if len(parts) == 1 else Group(tuple(parts), " | ")

    def _concatenation(self, depth: int) -> Node:
        parts: list[Node] = []
        while True:
            if depth:
                self._skip_lines()
            part = self._part(depth)
            if part is None:
                break
            parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Group(tuple(parts), " ")

    def _part(self, depth: int) -> Node | None:
        if (text := self._take("text")) is not None:
            return self._lark(literal, text)
        if (members := self._take("set")) is not None:
            return self._lark(character_set, members)
        if (token := self._take("token")) is not None:
            return Terminal(token, is_token=True)
        if (name := self._take("name")) is not None:
            return Reference(name)
        if self._take_sign("."):
            return Terminal(ANY)
        return self._group(depth) if self._take_sign("(") else None

    def _group(self, depth: int) -> Node:
        inner = self.alternation(depth + 1)
        self._skip_lines()
        if not self._take_sign(")"):
            raise self._fault("`)` was expected")
        return inner

    def _repeated(self, part: Node) -> Node:
        times = 0
        while self._next is not None:
            lexeme = self._next
            if lexeme["low"] is not None:
                part = Repetition(part, self._bounds(lexeme))
            elif lexeme["sign"] in _QUANTIFIERS:
                part = Repetition(part, lexeme["sign"])
            else:
                break
            times += 1
            if times > _MAX_TIMES:
                raise self._fault("too many repetitions of one thing")
            self._advance()
        return part

    def _bounds(self, lexeme: re.Match[str]) -> str:
        low, high = int(lexeme["low"]), lexeme["high"]
        if not lexeme["comma"] and high:
            raise self._fault("a repetition is {2}, {2,} or {2,3}")
        if high and int(high) < low:
            raise self._fault(f"a repetition of {low} to {high} times")
        return f"{{{low},{high}}}" if lexeme["comma"] else f"{{{low}}}"

    def _lark(self, write: Callable[[str], str], text: str) -> Terminal:
        try:
            return Terminal(write(text))
        except ValueError as error:
            raise self._fault(str(error)) from error

    def _take(self, kind: str) -> str | None:
        """Consumes the next lexeme if it is of this kind; returns its text, or else None."""
        if self._next is None or self._next[kind] is None:
            return None
        taken = self._next[kind]
        self._advance()
        return str(taken)

    def _take_sign(self, sign: str) -> bool:
        if self._next is None or self._next["sign"] != sign:
            return False
        self._advance()
        return True

    def _skip_lines(self) -> None:
        while self._next is not None and self._next["line"] is not None:
            self._advance()

    def _advance(self) -> None:
        self._next = None
        while self._at < len(self._text):
            found = _LEXEMES.match(self._text, self._at)
            if found is None:
                raise self._fault("not GBNF")
            self._at = found.end()
            if found["blank"] is None:
                self._next = found
                return

    def _fault(self, message: str) -> GrammarError:
        at = self._at if self._next is None else self._next.start()
        line = self._text.count("\n", 0, at) + 1
        seen = self._text[at : at + 20].split("\n")[0]
        return GrammarError(f"GBNF grammar, line {line}: {message}, at {seen!r}")
