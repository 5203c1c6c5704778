"""Patterns of property names of which some names match several.

llguidance wants patterns of which no name matches two. So they are replaced by others: one for the
names that match one set of the patterns and none of the rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from sharpi.constraints.patterns.automaton import automaton_of
from sharpi.constraints.patterns.characters import Characters, united
from sharpi.constraints.schema.other_matches import pattern_of_ends
from sharpi.constraints.schema.references import Schema
from sharpi.errors import GrammarError

_MAX_STATES = 200
_MAX_PATTERNS = 8
_Goes = list[dict[int, Characters]]
_Label = tuple[bool, ...] | None  # which patterns match; None where programs differ


class _Product:
    """The automaton that reads a name for several patterns at once."""

    def __init__(self, patterns: Sequence[str]) -> None:
        # Widely and narrowly read, as programs do not agree on what a class or `$` matches.
        self._automata = [
            automaton_of(each, is_wide=is_wide, ends_strictly=not is_wide)
            for each in patterns
            for is_wide in (True, False)
        ]
        states = {(0,) * len(self._automata): 0}
        self.goes: _Goes = []
        self.labels: list[_Label] = []
        for state in (queue := list(states)):
            ways: dict[int, list[tuple[int, int]]] = {}
            for characters, after in self._steps(state):
                if after not in states:
                    states[after] = len(states)
                    queue.append(after)
                ways.setdefault(states[after], []).extend(characters)
            self.goes.append({after: united(spans) for after, spans in ways.items()})
            self.labels.append(self._label(state))
            if len(states) > _MAX_STATES:
                raise GrammarError("the patterns of property names are too complex together")

    def _label(self, state: tuple[int, ...]) -> _Label:
        ends = [at in each.accepting for at, each in zip(state, self._automata, strict=True)]
        wide, narrow = tuple(ends[::2]), tuple(ends[1::2])
        return wide if wide == narrow else None

    def _steps(self, state: tuple[int, ...]) -> Iterator[tuple[Characters, tuple[int, ...]]]:
        goes = [each.goes[at] for at, each in zip(state, self._automata, strict=True)]
        spans = [span for each in goes for characters in each.values() for span in characters]
        bounds = sorted({edge for first, last in spans for edge in (first, last + 1)})
        for low, high in pairwise(bounds):
            after = tuple(_next(each, low) for each in goes)
            yield ((low, high - 1),), after


def _next(goes: Mapping[int, Characters], code: int) -> int:
    return next(
        after
        for after, characters in goes.items()
        if any(first <= code <= last for first, last in characters)
    )


def overlap(patterns: Sequence[str]) -> bool:
    """Returns whether some name matches two of the patterns; False if they are too complex."""
    if not 1 < len(patterns) <= _MAX_PATTERNS:
        return False
    try:
        return any(label is None or sum(label) > 1 for label in _Product(patterns).labels)
    except GrammarError:
        return False  # llguidance says whether it can use them


def disjoint(
    patterns: Mapping[str, Schema], names: str | None = None, others: Schema = True
) -> dict[str, Schema]:
    """Returns patterns that mean the same, of which no name matches two.

    With `names`, others than these are not allowed, and `others` holds for those of no pattern.
    Names about which programs differ are not allowed. Raises GrammarError for patterns that are too
    complex.
    """
    if len(patterns) > _MAX_PATTERNS:
        raise GrammarError("the JSON schema has too many patterns of property names")
    found = _Product([*patterns, *([] if names is None else [names])])
    schemas = list(patterns.values())
    new: dict[str, Schema] = {}
    for label in dict.fromkeys(found.labels):
        schema = _schema(label, schemas, others, has_names=names is not None)
        if schema is not None:
            ends = {state for state, each in enumerate(found.labels) if each == label}
            pattern = pattern_of_ends(found.goes, ends)
            if pattern is not None:
                new[pattern] = schema
    return new


def _schema(
    label: _Label, schemas: Sequence[Schema], others: Schema, *, has_names: bool
) -> Schema | None:
    """Returns the schema of the values by names of a label; None for names of no pattern."""
    if label is None:
        return False
    own = [each for each, is_matched in zip(schemas, label, strict=False) if is_matched]
    if has_names and not label[-1]:
        return None
    if not own:
        return others if has_names else None
    return own[0] if len(own) == 1 else {"allOf": own}
