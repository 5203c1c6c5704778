"""Regular expressions for the strings that a pattern does not match, by state elimination."""

from collections.abc import Mapping, Sequence, Set

from sharpi.constraints.patterns.automaton import automaton_of
from sharpi.constraints.patterns.characters import Characters, as_pattern
from sharpi.errors import GrammarError

_MAX_CHARACTERS = 8000
_Edges = dict[tuple[int, int], str]  # patterns, by (from state, to state)
_BEGIN, _END = -1, -2


def complement_pattern(pattern: str) -> str | None:
    """Returns a pattern for the strings that `pattern` does not match; None if it matches all.

    Strings on which validators disagree are left out. Raises GrammarError for patterns that are too
    complex, or have look-around or back references.
    """
    found = automaton_of(pattern)
    return pattern_of_states(
        found.transitions, set(range(len(found.transitions))) - found.accepting
    )


def pattern_of_states(
    transitions: Sequence[Mapping[int, Characters]], ends: Set[int]
) -> str | None:
    """Returns a pattern for the strings that lead from state 0 to one of the states `ends`.

    `transitions`: for each state, the characters that lead to each next state. Returns None if no
    string leads to `ends`. Raises GrammarError if the pattern would be too long.
    """
    edges: _Edges = {
        (state, after): as_pattern(characters)
        for state, steps in enumerate(transitions)
        for after, characters in steps.items()
    }
    edges |= {(state, _END): "" for state in ends} | {(_BEGIN, 0): ""}
    left = set(range(len(transitions)))
    while left:
        state = min(left, key=lambda each: (_cost(edges, each), each))
        left.remove(state)
        edges = _without(edges, state)
    if (_BEGIN, _END) not in edges:
        return None
    return f"^({edges[_BEGIN, _END]})$"


def _cost(edges: _Edges, state: int) -> int:
    before = [len(label) for (a, b), label in edges.items() if b == state != a]
    after = [len(label) for (a, b), label in edges.items() if a == state != b]
    return sum(before) * len(after) + sum(after) * len(before)


def _without(edges: _Edges, state: int) -> _Edges:
    """Returns the edges without a state; new edges replace the paths through the state."""
    loop = edges.get((state, state))
    again = "" if loop is None else f"({loop})*"
    found = {pair: label for pair, label in edges.items() if state not in pair}
    before = [(a, label) for (a, b), label in edges.items() if b == state != a]
    after = [(b, label) for (a, b), label in edges.items() if a == state != b]
    for a, first in before:
        for b, last in after:
            label = _grouped(first) + again + _grouped(last)
            found[a, b] = f"{found[a, b]}|{label}" if (a, b) in found else label
    if sum(map(len, found.values())) > _MAX_CHARACTERS:
        raise GrammarError("a pattern that must not match is too complex")
    return found


def _grouped(label: str) -> str:
    return f"({label})" if "|" in label else label
