"""Automaton: the finite automaton of a regular expression, as large as one of few lines needs."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from msgspec import Struct

from sharpi.constraints.patterns.characters import (
    ALL,
    LAST,
    Characters,
    common_letter,
    has,
    united,
)
from sharpi.constraints.patterns.pattern_graph import PatternGraph
from sharpi.errors import GrammarError

_MAX_STATES = 64
MAX_STEPS = 300_000  # comparisons of characters; about 50 ms
_MAX_LETTERS = 1000
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


def next_state(goes: Mapping[int, Characters], code: int) -> int:
    """Returns the state that a character leads to; `goes` has one for each character."""
    return next(after for after, characters in goes.items() if has(characters, code))


def automaton_of(
    pattern: str,
    *,
    is_wide: bool = True,
    ends_strictly: bool = False,
    most_steps: int = MAX_STEPS,
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
    graph = PatternGraph(is_wide=is_wide, ends_strictly=ends_strictly, most_steps=most_steps)
    begin = graph.node()
    graph.reading[begin].append((ALL, begin))
    end = graph.add(parsed, begin)
    graph.reading[end].append((ALL, end))
    return _smallest(_determined(graph, begin, end))


def _determined(graph: PatternGraph, begin: int, end: int) -> Automaton:
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


def _steps(graph: PatternGraph, nodes: frozenset[int]) -> Iterator[tuple[tuple[int, int], _Set]]:
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
        reached = frozenset(node for characters, node in edges if has(characters, low))
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
