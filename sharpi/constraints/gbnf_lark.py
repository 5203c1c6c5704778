"""Converts the rules of a GBNF grammar into a Lark grammar for llguidance.

The terminals of GBNF are single characters. The terminals of Lark are regular expressions that
match greedily. So every part of a rule without recursion becomes one terminal, as large as
possible, that matches exactly the same strings. Where two terminals follow each other within a
recursive rule, the first one matches greedily.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sharpi.constraints.gbnf_parser import (
    Group,
    Node,
    Reference,
    Repetition,
    Terminal,
    parse_gbnf,
)
from sharpi.errors import GrammarError


def lark_of_gbnf(text: str) -> str:
    """Converts a GBNF grammar to a Lark grammar; raises GrammarError for invalid GBNF."""
    rules = parse_gbnf(text)
    for name, node in rules.items():
        for reference in _references(node):
            if reference not in rules:
                raise GrammarError(
                    f"GBNF grammar: rule {name!r} refers to {reference!r}, which is not defined"
                )
    return _Writer(rules).lark


class _Writer:
    """Writes the Lark grammar; rules are renamed, since not every GBNF name is valid in Lark."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._terminals = _terminals(rules)
        self._names = {
            name: f"{'R' if name in self._terminals else 'r'}{at}" for at, name in enumerate(rules)
        }
        self._lines = [f"start: {self._names['root']}"]
        for name, node in rules.items():
            written = self._text(node) if name in self._terminals else self._rule(node)
            self._lines.append(f"{self._names[name]}: {written}")
        self.lark = "\n".join(self._lines) + "\n"

    def _is_terminal(self, node: Node) -> bool:
        return all(
            symbol.name in self._terminals if isinstance(symbol, Reference) else not symbol.is_token
            for symbol in _symbols(node)
        )

    def _text(self, node: Node) -> str:
        """Returns a node in Lark's notation."""
        match node:
            case Terminal(lark):
                return lark
            case Reference(name):
                return self._names[name]
            case Repetition(part, times):
                return f"({self._text(part)}){times}"
            case Group(parts, separator):
                return separator.join(map(self._grouped, parts)) or '""'

    def _grouped(self, node: Node) -> str:
        text = self._text(node)
        return f"({text})" if isinstance(node, Group) else text

    def _rule(self, node: Node) -> str:
        """Returns a node of a recursive rule in Lark's notation."""
        if self._is_terminal(node):
            return self._terminal(self._text(node))
        match node:
            case Repetition(part, times):
                return f"({self._rule(part)}){times}"
            case Group():
                written = node.separator.join(self._joined(node))
                return written if node.separator == " " else f"({written})"
            case _:
                return self._text(node)

    def _joined(self, group: Group) -> list[str]:
        """Returns the parts of a rule in Lark's notation, adjacent terminals joined to one."""
        written: list[str] = []
        pending: list[Node] = []
        for part in (*group.parts, None):
            if part is not None and self._is_terminal(part):
                pending.append(part)
                continue
            if pending:
                written.append(self._terminal(self._text(Group(tuple(pending), group.separator))))
                pending.clear()
            if part is not None:
                written.append(f"({self._rule(part)})")
        return written

    def _terminal(self, text: str) -> str:
        name = f"T{len(self._lines)}"
        self._lines.append(f"{name}: {text}")
        return name


def _terminals(rules: Mapping[str, Node]) -> set[str]:
    """Returns the names of the rules that can be terminals: without recursion and token ids."""
    users: defaultdict[str, list[str]] = defaultdict(list)
    open_references: dict[str, int] = {}
    for name, node in rules.items():
        references = set(_references(node))
        open_references[name] = len(references) + _has_token(node)
        for reference in references:
            users[reference].append(name)
    ready = [name for name, count in open_references.items() if count == 0]
    terminals: set[str] = set()
    while ready:
        name = ready.pop()
        terminals.add(name)
        for user in users[name]:
            open_references[user] -= 1
            if open_references[user] == 0:
                ready.append(user)
    return terminals


def _references(node: Node) -> list[str]:
    return [symbol.name for symbol in _symbols(node) if isinstance(symbol, Reference)]


def _has_token(node: Node) -> bool:
    return any(isinstance(symbol, Terminal) and symbol.is_token for symbol in _symbols(node))


def _symbols(node: Node) -> Iterator[Terminal | Reference]:
    """Yields the terminals and references within a node, in order."""
    match node:
        case Repetition(part, _):
            yield from _symbols(part)
        case Group(parts):
            for part in parts:
                yield from _symbols(part)
        case _:
            yield node
