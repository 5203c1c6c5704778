"""From rules of GBNF to a Lark grammar for llguidance.

GBNF knows characters only; Lark's rules consist of terminals, each the longest match. Whatever
needs no recursion becomes one terminal, as large as can be, which is a regular expression and
means exactly the same. Where two terminals meet at a recursive rule the first one is greedy.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sharpi.constraints.gbnf.gbnf import parse_gbnf
from sharpi.constraints.gbnf.gbnf_nodes import (
    Characters,
    Choice,
    Node,
    Reference,
    Repeat,
    Run,
    Token,
)
from sharpi.errors import GrammarError


def lark_of_gbnf(text: str) -> str:
    """The same language as Lark; raises GrammarError."""
    rules = parse_gbnf(text)
    for name, node in rules.items():
        for reference in _references(node):
            if reference not in rules:
                raise GrammarError(
                    f"GBNF grammar: rule {name!r} names {reference!r}, which is none"
                )
    return _Writer(rules).lark


class _Writer:
    """Rules are numbered, since not every name of GBNF's is one of Lark's."""

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
            leaf.name in self._terminals
            if isinstance(leaf, Reference)
            else isinstance(leaf, Characters)
            for leaf in _leaves(node)
        )

    def _text(self, node: Node) -> str:
        """A node as it stands."""
        match node:
            case Characters(lark) | Token(lark):
                return lark
            case Reference(name):
                return self._names[name]
            case Repeat(part, times):
                return f"({self._text(part)}){times}"
            case Run(parts):
                return " ".join(map(self._grouped, parts)) or '""'
            case Choice(parts):
                return " | ".join(map(self._grouped, parts))

    def _grouped(self, node: Node) -> str:
        text = self._text(node)
        return f"({text})" if isinstance(node, Run | Choice) else text

    def _rule(self, node: Node) -> str:
        """A node of a recursive rule: what is terminal in it gets a name of its own."""
        if self._is_terminal(node):
            return self._terminal(self._text(node))
        match node:
            case Repeat(part, times):
                return f"({self._rule(part)}){times}"
            case Run(parts):
                return " ".join(self._joined(parts, Run))
            case Choice(parts):
                return "(" + " | ".join(self._joined(parts, Choice)) + ")"
            case _:
                return self._text(node)

    def _joined(self, parts: Sequence[Node], kind: type[Run] | type[Choice]) -> list[str]:
        """The parts of a rule, neighbours that are terminal as one."""
        written: list[str] = []
        pending: list[Node] = []
        for part in (*parts, None):
            if part is not None and self._is_terminal(part):
                pending.append(part)
                continue
            if pending:
                written.append(self._terminal(self._text(kind(tuple(pending)))))
                pending.clear()
            if part is not None:
                written.append(f"({self._rule(part)})")
        return written

    def _terminal(self, text: str) -> str:
        name = f"T{len(self._lines)}"
        self._lines.append(f"{name}: {text}")
        return name


def _terminals(rules: Mapping[str, Node]) -> set[str]:
    """Rules that neither refer to themselves, however indirectly, nor name tokens."""
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
    return [leaf.name for leaf in _leaves(node) if isinstance(leaf, Reference)]


def _has_token(node: Node) -> bool:
    return any(isinstance(leaf, Token) for leaf in _leaves(node))


def _leaves(node: Node) -> Iterator[Node]:
    """What a node consists of at last, in order."""
    match node:
        case Repeat(part, _):
            yield from _leaves(part)
        case Run(parts) | Choice(parts):
            for part in parts:
                yield from _leaves(part)
        case _:
            yield node
