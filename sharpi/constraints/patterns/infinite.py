"""Detects patterns where each prefix of a match can be completed in infinitely many ways."""

from collections.abc import Set

from sharpi.constraints.patterns.automaton import MAX_STEPS, Automaton, automaton_of
from sharpi.constraints.patterns.characters import JSON_CHARACTERS, intersection

_MAX_CHARACTERS = 100


def is_infinite(pattern: str) -> bool:
    """Returns whether each prefix of a match can be completed in infinitely many ways.

    Only characters that a JSON string may hold unescaped or as a two-character escape count.
    Returns False without a check for patterns of more than 100 characters.
    """
    if len(pattern) > _MAX_CHARACTERS:
        return False
    return all(
        _has_no_dead_end(_short_automaton_of(pattern, is_union=is_union))
        for is_union in (True, False)
    )


def _short_automaton_of(pattern: str, *, is_union: bool) -> Automaton:
    most = MAX_STEPS // 20
    return automaton_of(pattern, is_union=is_union, ends_strictly=True, most_steps=most)


def _has_no_dead_end(found: Automaton) -> bool:
    steps = json_successors(found)
    live = _leading_to(found.accepting, steps)
    cycles = {state for state in live if state in reachable(steps[state] & live, steps, live)}
    return 0 in live and reachable({0}, steps, live) <= _leading_to(cycles, steps, live)


def json_successors(found: Automaton) -> list[set[int]]:
    """Returns, for each state of an automaton, the states that one of JSON_CHARACTERS leads to."""
    return [
        {
            after
            for after, characters in transitions.items()
            if intersection(characters, JSON_CHARACTERS)
        }
        for transitions in found.transitions
    ]


def reachable(begin: Set[int], steps: list[set[int]], within: Set[int]) -> set[int]:
    """Returns the states of `within` that can be reached from `begin`, and `begin` itself."""
    found, left = set(begin), list(begin)
    while left:
        new = (steps[left.pop()] & within) - found
        found |= new
        left += new
    return found


def _leading_to(ends: Set[int], steps: list[set[int]], within: Set[int] | None = None) -> set[int]:
    every = set(range(len(steps))) if within is None else set(within)
    return {state for state in every if not ends.isdisjoint(reachable({state}, steps, every))}
