"""Automaton: the finite automaton of a regular expression, as large as one of few lines needs."""

import re
from collections.abc import Iterator, Set
from itertools import pairwise, product
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from msgspec import Struct

from sharpi.constraints.schema.characters import (
    ALL,
    LAST,
    Characters,
    common_letter,
    in_class,
    others,
    united,
)
from sharpi.errors import GrammarError

_MAX_STATES = 64
_MAX_NODES = 1500
_MAX_STEPS = 300_000  # comparisons of characters; about 50 ms
_MAX_LETTERS = 1000
_MAX_LETTERS_OF_ENDLESS = 100
_ANY_BUT_LINE_END = others(((10, 10),))
_PLAIN: Characters = ((9, 10), (13, 13), (32, 126), (160, 0xD7FF), (0xE000, LAST))
_Set = tuple[bool, frozenset[int]]  # whether nothing is read yet, and nodes of the graph


class Automaton(Struct, frozen=True):
    """Reads texts from state 0 on; `goes` has for each state its next states, by characters."""

    goes: list[dict[int, Characters]]
    accepting: frozenset[int]

    def shortest(self, *, accepted: bool = True) -> str | None:
        """Returns a shortest text that is accepted, or is not; None if there is none."""
        known, left = {0}, [(0, "")]
        for state, text in left:
            if (state in self.accepting) == accepted:
                return text
            for after, characters in self.goes[state].items():
                if after not in known:
                    known.add(after)
                    left.append((after, text + common_letter(characters)))
        return None


def is_endless(pattern: str) -> bool:
    """Returns whether each beginning of a match has endless ways to go on; False if it is long.

    Only characters count that JSON may spell as they are, or by a letter after a backslash.
    """
    if len(pattern) > _MAX_LETTERS_OF_ENDLESS:
        return False
    return all(
        _has_no_dead_end(_short_automaton_of(pattern, is_wide=is_wide)) for is_wide in (True, False)
    )


def _short_automaton_of(pattern: str, *, is_wide: bool) -> Automaton:
    most = _MAX_STEPS // 20
    return automaton_of(pattern, is_wide=is_wide, ends_strictly=True, most_steps=most)


def _has_no_dead_end(found: Automaton) -> bool:
    steps = [
        {after for after, characters in goes.items() if _may_be_written(characters)}
        for goes in found.goes
    ]
    live = _leading_to(found.accepting, steps)
    circles = {state for state in live if state in _reached(steps[state] & live, steps, live)}
    return 0 in live and _reached({0}, steps, live) <= _leading_to(circles, steps, live)


def _may_be_written(characters: Characters) -> bool:
    pairs = product(characters, _PLAIN)
    return any(max(a, low) <= min(b, high) for (a, b), (low, high) in pairs)


def _reached(begin: Set[int], steps: list[set[int]], within: Set[int]) -> set[int]:
    """Returns the states that are reached from some, which belong to them."""
    found, left = set(begin), list(begin)
    while left:
        new = (steps[left.pop()] & within) - found
        found |= new
        left += new
    return found


def _leading_to(ends: Set[int], steps: list[set[int]], within: Set[int] | None = None) -> set[int]:
    every = set(range(len(steps))) if within is None else set(within)
    return {state for state in every if not ends.isdisjoint(_reached({state}, steps, every))}


class _Graph:
    """A graph whose edges read a character, or nothing; some only at the begin or end of a text."""

    def __init__(self, *, is_wide: bool, ends_strictly: bool, most_steps: int) -> None:
        self.most_steps = most_steps
        self._is_wide, self._ends_strictly = is_wide, ends_strictly
        self.num_steps = 0
        self.free: list[list[tuple[str, int]]] = []
        self.reading: list[list[tuple[Characters, int]]] = []

    def node(self) -> int:
        if len(self.free) >= _MAX_NODES:
            raise GrammarError("a pattern that must not match is too long")
        self.free.append([])
        self.reading.append([])
        return len(self.free) - 1

    def add(self, parts: Any, begin: int) -> int:
        """Adds a sequence that starts at a node; returns the node where it ends."""
        for kind, value in parts:
            begin = self._add_one(str(kind), value, begin)
        return begin

    def _add_one(self, kind: str, value: Any, begin: int) -> int:
        match kind:
            case "LITERAL":
                return self._read(((value, value),), begin)
            case "NOT_LITERAL":
                return self._read(others(((value, value),)), begin)
            case "ANY":
                return self._read(_ANY_BUT_LINE_END, begin)
            case "IN":
                return self._read(in_class(value, is_wide=self._is_wide), begin)
            case "AT":
                return self._at(str(value), begin)
            case "BRANCH":
                return self._branch(value[1], begin)
            case "SUBPATTERN" if not value[1] and not value[2]:
                return self.add(value[3], begin)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(value[0], value[1], value[2], begin)
        raise GrammarError(f"not supported in a pattern that must not match: {kind.lower()}")

    def _read(self, characters: Characters, begin: int) -> int:
        end = self.node()
        self.reading[begin].append((characters, end))
        return end

    def _at(self, where: str, begin: int) -> int:
        if where not in ("AT_BEGINNING", "AT_END"):
            raise GrammarError(f"not supported in a pattern that must not match: {where.lower()}")
        end = self.node()
        self.free[begin].append((where, end))
        if (
            where == "AT_END" and not self._ends_strictly
        ):  # Python's `$` is also before a line end that is the last character
            self.free[self._read(((10, 10),), begin)].append((where, end))
        return end

    def _branch(self, branches: Any, begin: int) -> int:
        end = self.node()
        for each in branches:
            self.free[self.add(each, begin)].append(("", end))
        return end

    def _repeat(self, low: int, high: Any, parts: Any, begin: int) -> int:
        for _ in range(low):
            begin = self.add(parts, self._skip(begin))
        if high == _parser.MAXREPEAT:
            loop = self.node()
            self.free[begin].append(("", loop))
            self.free[self.add(parts, loop)].append(("", loop))
            return loop
        end = self.node()
        for _ in range(high - low):
            self.free[begin].append(("", end))
            begin = self.add(parts, self._skip(begin))
        self.free[begin].append(("", end))
        return end

    def _skip(self, begin: int) -> int:
        end = self.node()
        self.free[begin].append(("", end))
        return end

    def closure(self, nodes: frozenset[int], *at: str) -> frozenset[int]:
        """Returns the nodes and all that are reached without a character."""
        found, left = set(nodes), list(nodes)
        while left:
            for where, node in self.free[left.pop()]:
                if (not where or where in at) and node not in found:
                    found.add(node)
                    left.append(node)
        return frozenset(found)


def automaton_of(
    pattern: str,
    *,
    is_wide: bool = True,
    ends_strictly: bool = False,
    most_steps: int = _MAX_STEPS,
) -> Automaton:
    """Returns an automaton of the texts of which some part matches; raises GrammarError.

    Where programs differ in what a class matches, `is_wide` takes what any of them matches, and
    otherwise what all do. With `ends_strictly`, `$` is not before a last line end.
    """
    if len(pattern) > _MAX_LETTERS:
        raise GrammarError("a pattern that must not match is too long")
    try:
        parsed = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise GrammarError(f"not supported in a pattern that must not match: {error}") from error
    if parsed.state.flags & ~re.UNICODE.value:
        raise GrammarError("not supported in a pattern that must not match: flags")
    graph = _Graph(is_wide=is_wide, ends_strictly=ends_strictly, most_steps=most_steps)
    begin = graph.node()
    graph.reading[begin].append((ALL, begin))
    end = graph.add(parsed, begin)
    graph.reading[end].append((ALL, end))
    return _smallest(_determined(graph, begin, end))


def _determined(graph: _Graph, begin: int, end: int) -> Automaton:
    first: _Set = True, graph.closure(frozenset([begin]), "AT_BEGINNING")
    ids, goes, accepting = {first: 0}, [], set()
    for known in (queue := [first]):
        is_first, nodes = known
        at = ("AT_BEGINNING", "AT_END") if is_first else ("AT_END",)
        if end in graph.closure(nodes, *at):
            accepting.add(ids[known])
        ways: dict[int, list[tuple[int, int]]] = {}
        for span, after in _steps(graph, nodes):
            if after not in ids:
                ids[after] = len(ids)
                queue.append(after)
            ways.setdefault(ids[after], []).append(span)
        goes.append({state: united(spans) for state, spans in ways.items()})
        if len(ids) > 4 * _MAX_STATES:
            raise GrammarError("a pattern that must not match is too complex")
    return Automaton(goes, frozenset(accepting))


def _steps(graph: _Graph, nodes: frozenset[int]) -> Iterator[tuple[tuple[int, int], _Set]]:
    """Yields ranges of characters, and the nodes that each leads to; together these are all."""
    edges = [edge for node in nodes for edge in graph.reading[node]]
    bounds = {0, LAST + 1}
    for characters, _ in edges:
        bounds |= {edge for first, last in characters for edge in (first, last + 1)}
    graph.num_steps += len(edges) * len(bounds)
    if graph.num_steps > graph.most_steps:
        raise GrammarError("a pattern that must not match is too complex")
    ordered = sorted(bounds)
    for low, high in pairwise(ordered):
        reached = frozenset(
            node
            for characters, node in edges
            if any(first <= low <= last for first, last in characters)
        )
        yield (low, high - 1), (False, graph.closure(reached))


def _smallest(found: Automaton) -> Automaton:
    """Returns the automaton with equal states merged."""
    groups = [state in found.accepting for state in range(len(found.goes))]
    kinds: list[Any] = list(groups)
    while True:
        signs = [(kinds[state], _merged(goes, kinds)) for state, goes in enumerate(found.goes)]
        ids: dict[Any, int] = {}
        numbers = [ids.setdefault(sign, len(ids)) for sign in signs]
        if len(ids) == len(set(kinds)):
            break
        kinds = numbers
    if len(ids) > _MAX_STATES:
        raise GrammarError("a pattern that must not match is too complex")
    goes = [dict(_merged(found.goes[numbers.index(n)], numbers)) for n in range(len(ids))]
    return Automaton(goes, frozenset(numbers[state] for state in found.accepting))


def _merged(goes: dict[int, Characters], kinds: list[Any]) -> tuple[tuple[Any, Characters], ...]:
    ways: dict[Any, list[tuple[int, int]]] = {}
    for state, spans in goes.items():
        ways.setdefault(kinds[state], []).extend(spans)
    return tuple(sorted((kind, united(spans)) for kind, spans in ways.items()))
