"""Tells patterns of which each beginning of a match can go on in endless ways."""

from collections.abc import Set
from itertools import product

from sharpi.constraints.patterns.automaton import MAX_STEPS, Automaton, automaton_of
from sharpi.constraints.patterns.characters import LAST, Characters

_MAX_LETTERS = 100
_PLAIN: Characters = ((9, 10), (13, 13), (32, 126), (160, 0xD7FF), (0xE000, LAST))


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
