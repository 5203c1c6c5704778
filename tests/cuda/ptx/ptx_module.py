"""Reads a PTX module: its variables, and of an entry point the instructions and registers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_VARIABLE = re.compile(
    r"\.(?P<space>global|const|shared|local|param)\s+(?:\.align\s+(?P<align>\d+)\s+)?"
    r"(?:\.v(?P<vector>[24])\s+)?\.(?P<type>\w+)\s+(?P<name>[\w$]+)\s*(?P<sizes>(?:\[\d*\])*)"
    r"(?:\s*=\s*(?P<values>\{[^}]*\}|[^;]+))?"
)
_REGISTER = re.compile(r"(%?[\w$]+)(?:<(\d+)>)?")
_SPACE = re.compile(r"\s*")
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
_INSTRUCTION = re.compile(r"(?:@(!?)([%\w$]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\[[^\]]*\]|\{[^}]*\}|[^,|\s]+")
_TYPE_BYTES = {"pred": 1} | {f"{kind}{8 * n}": n for kind in "bsuf" for n in (1, 2, 4, 8)}


class PtxError(ValueError):
    """The text is not PTX that this reader knows; the message has the place."""


@dataclass(frozen=True)
class Variable:
    """A variable of a module or an entry point; `num_bytes` is 0 for `extern x[]`."""

    name: str
    space: str
    align: int
    num_bytes: int
    contents: bytes = b""


class Instruction(NamedTuple):
    """One instruction; operands are as written: a list for a vector, registers by their own names.

    `scope` numbers the braces that it stands in, outermost first: registers may hide others.
    """

    opcode: str
    operands: tuple[str | tuple[str, ...], ...]
    predicate: str
    negated: bool
    scope: tuple[int, ...]
    text: str


@dataclass
class Entry:
    """An entry point: parameters, variables of its own, instructions, and where labels point."""

    name: str
    params: list[Variable]
    variables: list[Variable] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    registers: dict[tuple[tuple[int, ...], str], int] = field(default_factory=dict)


class Module:
    """The text of a module, of which entry points are read when they are asked for."""

    def __init__(self, text: str) -> None:
        self._text = _COMMENT.sub(" ", text)
        self._entries = {
            match[1]: match
            for match in re.finditer(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)", self._text)
        }
        head, _, _ = self._text.partition(".entry")
        self.variables = [_variable(match) for match in _VARIABLE.finditer(head)]

    @property
    def entry_names(self) -> list[str]:
        """The names of the entry points, in the order of the text."""
        return list(self._entries)

    def entry(self, name: str) -> Entry:
        """Reads an entry point; raises PtxError."""
        if name not in self._entries:
            raise PtxError(f"no entry point {name}")
        match = self._entries[name]
        params = [_variable(found) for found in _VARIABLE.finditer(match[2])]
        entry = Entry(name, params)
        for scope, statement in self._statements(match.end()):
            _take(entry, scope, statement)
        return entry

    def _statements(self, begin: int) -> Iterator[tuple[tuple[int, ...], str]]:
        """The statements of a body with their scopes, and labels with their colon."""
        text, place = self._text, self._text.index("{", begin) + 1
        scope: tuple[int, ...] = (0,)
        opened = 0
        while scope:
            place = _SPACE.match(text, place).end()  # type: ignore[union-attr]
            if text[place] == "{":
                opened += 1
                scope, place = (*scope, opened), place + 1
            elif text[place] == "}":
                scope, place = scope[:-1], place + 1
            elif label := _LABEL.match(text, place):
                yield scope, f"{label[1]}:"
                place = label.end()
            else:
                end = text.index(";", place)
                yield scope, text[place:end]
                place = end + 1


def _take(entry: Entry, scope: tuple[int, ...], statement: str) -> None:
    if statement.endswith(":"):
        entry.labels[statement[:-1]] = len(entry.instructions)
    elif statement.startswith(".reg"):
        declared = statement.split(None, 2)[2]
        for name, count in _REGISTER.findall(declared):
            entry.registers[scope, name] = int(count or 0)
    elif variable := _VARIABLE.match(statement):
        entry.variables.append(_variable(variable))
    elif not statement.startswith((".pragma", ".loc", ".file")):
        entry.instructions.append(_instruction(scope, statement))


def _instruction(scope: tuple[int, ...], statement: str) -> Instruction:
    text = " ".join(statement.split())
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        raise PtxError(f"cannot read: {text}")
    operands = [
        tuple(part.strip() for part in operand[1:-1].split(",")) if operand[0] == "{" else operand
        for operand in _OPERAND.findall(match[4])
    ]
    return Instruction(match[3], tuple(operands), match[2] or "", match[1] == "!", scope, text)


def _variable(match: re.Match[str]) -> Variable:
    width = _TYPE_BYTES[match["type"]] * int(match["vector"] or 1)
    counts = re.findall(r"\[(\d*)\]", match["sizes"] or "")
    num_bytes = width
    for count in counts:
        num_bytes *= int(count or 0)
    contents = _contents(match["values"] or "", _TYPE_BYTES[match["type"]]).ljust(num_bytes, b"\0")
    align = int(match["align"] or width)
    return Variable(match["name"], match["space"], align, num_bytes, contents)


def _contents(values: str, width: int) -> bytes:
    words = values.strip("{} \n\t").split(",") if values else []
    numbers = np.array([immediate(word.strip()) for word in words], np.uint64)
    return numbers.astype(f"u{width}").tobytes()


@cache
def immediate(text: str) -> int:
    """Returns the 64 bits of a literal; raises PtxError."""
    if text.startswith(("0f", "0F", "0d", "0D")):
        return int(text[2:], 16)
    try:
        return int(text.rstrip("U"), 0) & (2**64 - 1)
    except ValueError:
        raise PtxError(f"{text} is no literal") from None
