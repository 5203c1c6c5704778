"""Automaton: the minimal deterministic finite automaton (DFA) of a regular expression."""

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
    has,
    sample_character,
    union,
)
from sharpi.constraints.patterns.nfa import Nfa
from sharpi.errors import GrammarError

_MAX_STATES = 64
MAX_STEPS = 300_000  # comparisons of characters; about 50 ms of CPU time
_MAX_CHARACTERS = 1000
_Set = tuple[bool, frozenset[int]]  # whether nothing is read yet; NFA nodes


class Automaton(Struct, frozen=True):
    """A deterministic finite automaton with the initial state 0.

    `transitions`: for each state, the characters that lead to each next state.
    """

    transitions: list[dict[int, Characters]]
    accepting: frozenset[int]

    def shortest(self, *, accepted: bool = True) -> str | None:
        """Returns a shortest accepted string, or a shortest rejected one if not `accepted`.

        Returns None if all strings are rejected, or accepted respectively.
        """
        known, left = {0}, [(0, "")]
        for state, text in left:
            if (state in self.accepting) == accepted:
                return text
            for after, characters in self.transitions[state].items():
                if after not in known:
                    known.add(after)
                    left.append((after, text + sample_character(characters)))
        return None


def next_state(transitions: Mapping[int, Characters], code: int) -> int:
    """Returns the state that a code point leads to; `transitions` are those of one state."""
    return next(after for after, characters in transitions.items() if has(characters, code))


def automaton_of(
    pattern: str,
    *,
    is_union: bool = True,
    ends_strictly: bool = False,
    most_steps: int = MAX_STEPS,
) -> Automaton:
    """Returns an automaton of the strings in which `pattern` matches some part.

    JSON Schema validators differ on classes such as `\\w`. With `is_union`, a class is the union of
    the validators' meanings, else their intersection. With `ends_strictly`, `$` does not match
    before a final line end. Raises GrammarError for patterns that are invalid or too complex.
    """
    if len(pattern) > _MAX_CHARACTERS:
        raise GrammarError("a pattern that must not match is too long")
    try:
        parsed = _parser.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise GrammarError(f"not supported in a pattern that must not match: {error}") from error
    if parsed.state.flags & ~re.UNICODE.value:
        raise GrammarError("not supported in a pattern that must not match: flags")
    graph = Nfa(is_union=is_union, ends_strictly=ends_strictly, most_steps=most_steps)
    begin = graph.node()
    graph.reading[begin].append((ALL, begin))
    end = graph.add(parsed, begin)
    graph.reading[end].append((ALL, end))
    return _minimized(_determinized(graph, begin, end))


def _determinized(graph: Nfa, begin: int, end: int) -> Automaton:
    first: _Set = True, graph.closure(frozenset([begin]), "AT_BEGINNING")
    ids, transitions, accepting = {first: 0}, [], set()
    for known in (queue := [first]):
        is_first, nodes = known
        at = ("AT_BEGINNING", "AT_END") if is_first else ("AT_END",)
        if end in graph.closure(nodes, *at):
            accepting.add(ids[known])
        ranges: dict[int, list[tuple[int, int]]] = {}
        for span, after in _steps(graph, nodes):
            if after not in ids:
                ids[after] = len(ids)
                queue.append(after)
            ranges.setdefault(ids[after], []).append(span)
        transitions.append({state: union(spans) for state, spans in ranges.items()})
        if len(ids) > 4 * _MAX_STATES:
            raise GrammarError("a pattern that must not match is too complex")
    return Automaton(transitions, frozenset(accepting))


def _steps(graph: Nfa, nodes: frozenset[int]) -> Iterator[tuple[tuple[int, int], _Set]]:
    """Yields disjoint ranges that cover all code points, each with the NFA nodes it leads to."""
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


def _minimized(found: Automaton) -> Automaton:
    """Returns the automaton with equivalent states merged, by partition refinement."""
    groups = [state in found.accepting for state in range(len(found.transitions))]
    kinds: list[Any] = list(groups)
    while True:
        signs = [
            (kinds[state], _merged(transitions, kinds))
            for state, transitions in enumerate(found.transitions)
        ]
        ids: dict[Any, int] = {}
        numbers = [ids.setdefault(sign, len(ids)) for sign in signs]
        if len(ids) == len(set(kinds)):
            break
        kinds = numbers
    if len(ids) > _MAX_STATES:
        raise GrammarError("a pattern that must not match is too complex")
    transitions = [
        dict(_merged(found.transitions[numbers.index(n)], numbers)) for n in range(len(ids))
    ]
    return Automaton(transitions, frozenset(numbers[state] for state in found.accepting))


def _merged(
    transitions: dict[int, Characters], kinds: list[Any]
) -> tuple[tuple[Any, Characters], ...]:
    ranges: dict[Any, list[tuple[int, int]]] = {}
    for state, spans in transitions.items():
        ranges.setdefault(kinds[state], []).extend(spans)
    return tuple(sorted((kind, union(spans)) for kind, spans in ranges.items()))
