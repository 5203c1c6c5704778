"""A regular expression for all texts that another one does not match."""

from collections.abc import Mapping, Sequence, Set

from sharpi.constraints.patterns.automaton import automaton_of
from sharpi.constraints.patterns.characters import Characters, as_pattern
from sharpi.errors import GrammarError

_MAX_LETTERS = 8000
_Ways = dict[tuple[int, int], str]  # a pattern of what leads from one state to another
_BEGIN, _END = -1, -2


def pattern_of_others(pattern: str) -> str | None:
    """Returns a pattern of texts of which no part matches `pattern`; None if there are none.

    Raises GrammarError for patterns that are too complex, or have look-around and the like. Texts
    that only some programs would match are left out.
    """
    found = automaton_of(pattern)
    return pattern_of_ends(found.goes, set(range(len(found.goes))) - found.accepting)


def pattern_of_ends(goes: Sequence[Mapping[int, Characters]], ends: Set[int]) -> str | None:
    """Returns a pattern of the texts that lead from state 0 to one of `ends`; None without any.

    `goes` has for each state the next states, by characters. Raises GrammarError if the pattern
    would be too long.
    """
    ways: _Ways = {
        (state, after): as_pattern(characters)
        for state, steps in enumerate(goes)
        for after, characters in steps.items()
    }
    ways |= {(state, _END): "" for state in ends} | {(_BEGIN, 0): ""}
    left = set(range(len(goes)))
    while left:
        state = min(left, key=lambda each: (_cost(ways, each), each))
        left.remove(state)
        ways = _without(ways, state)
    if (_BEGIN, _END) not in ways:
        return None
    return f"^({ways[_BEGIN, _END]})$"


def _cost(ways: _Ways, state: int) -> int:
    before = [len(way) for (a, b), way in ways.items() if b == state != a]
    after = [len(way) for (a, b), way in ways.items() if a == state != b]
    return sum(before) * len(after) + sum(after) * len(before)


def _without(ways: _Ways, state: int) -> _Ways:
    """Returns the ways around a state, which replace those through it."""
    loop = ways.get((state, state))
    again = "" if loop is None else f"({loop})*"
    found = {pair: way for pair, way in ways.items() if state not in pair}
    before = [(a, way) for (a, b), way in ways.items() if b == state != a]
    after = [(b, way) for (a, b), way in ways.items() if a == state != b]
    for a, first in before:
        for b, last in after:
            way = _grouped(first) + again + _grouped(last)
            found[a, b] = f"{found[a, b]}|{way}" if (a, b) in found else way
    if sum(map(len, found.values())) > _MAX_LETTERS:
        raise GrammarError("a pattern that must not match is too complex")
    return found


def _grouped(way: str) -> str:
    return f"({way})" if "|" in way else way
