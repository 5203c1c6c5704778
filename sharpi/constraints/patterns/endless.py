"""Tells patterns of which each beginning of a match can go on in endless ways."""

from collections.abc import Set

from sharpi.constraints.patterns.automaton import MAX_STEPS, Automaton, automaton_of
from sharpi.constraints.patterns.characters import WRITABLE, common

_MAX_LETTERS = 100


def is_endless(pattern: str) -> bool:
    """Returns whether each beginning of a match has endless ways to go on; False if it is long.

    Only characters count that JSON may spell as they are, or by a letter after a backslash.
    """
    if len(pattern) > _MAX_LETTERS:
        return False
    return all(
        _has_no_dead_end(_short_automaton_of(pattern, is_wide=is_wide)) for is_wide in (True, False)
    )


def _short_automaton_of(pattern: str, *, is_wide: bool) -> Automaton:
    most = MAX_STEPS // 20
    return automaton_of(pattern, is_wide=is_wide, ends_strictly=True, most_steps=most)


def _has_no_dead_end(found: Automaton) -> bool:
    steps = writable_steps(found)
    live = _leading_to(found.accepting, steps)
    circles = {state for state in live if state in reached(steps[state] & live, steps, live)}
    return 0 in live and reached({0}, steps, live) <= _leading_to(circles, steps, live)


def writable_steps(found: Automaton) -> list[set[int]]:
    """Returns for each state the next ones, by characters that JSON may spell."""
    return [
        {after for after, characters in goes.items() if common(characters, WRITABLE)}
        for goes in found.goes
    ]


def reached(begin: Set[int], steps: list[set[int]], within: Set[int]) -> set[int]:
    """Returns the states `within` that are reached from some, which belong to them."""
    found, left = set(begin), list(begin)
    while left:
        new = (steps[left.pop()] & within) - found
        found |= new
        left += new
    return found


def _leading_to(ends: Set[int], steps: list[set[int]], within: Set[int] | None = None) -> set[int]:
    every = set(range(len(steps))) if within is None else set(within)
    return {state for state in every if not ends.isdisjoint(reached({state}, steps, every))}
