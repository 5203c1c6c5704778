"""Patterns of property names of which some names match several.

llguidance wants patterns of which no name matches two. So they are replaced by others: one for the
names that match one set of the patterns and none of the rest.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from sharpi.constraints.patterns.automaton import automaton_of, next_state
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

    def label_of(self, name: str) -> _Label:
        """Returns the label of a name."""
        state = 0
        for letter in name:
            state = next_state(self.goes[state], ord(letter))
        return self.labels[state]

    def _label(self, state: tuple[int, ...]) -> _Label:
        ends = [at in each.accepting for at, each in zip(state, self._automata, strict=True)]
        wide, narrow = tuple(ends[::2]), tuple(ends[1::2])
        return wide if wide == narrow else None

    def _steps(self, state: tuple[int, ...]) -> Iterator[tuple[Characters, tuple[int, ...]]]:
        goes = [each.goes[at] for at, each in zip(state, self._automata, strict=True)]
        spans = [span for each in goes for characters in each.values() for span in characters]
        bounds = sorted({edge for first, last in spans for edge in (first, last + 1)})
        for low, high in pairwise(bounds):
            after = tuple(next_state(each, low) for each in goes)
            yield ((low, high - 1),), after


def overlap(patterns: Sequence[str]) -> bool:
    """Returns whether some name matches two of the patterns; False if they are too complex."""
    if not 1 < len(patterns) <= _MAX_PATTERNS:
        return False
    try:
        return any(label is None or sum(label) > 1 for label in _Product(patterns).labels)
    except GrammarError:
        return False  # llguidance says whether it can use them


def make_disjoint(schema: dict[str, Any], names: str | None = None) -> None:
    """Replaces the patterns of an object by others that mean the same and do not overlap.

    With `names`, others than these are not allowed. Names about which programs differ are not
    allowed. If each name matches a pattern, the most complex one becomes `additionalProperties`.
    Raises GrammarError for patterns that are too complex.
    """
    patterns = schema["patternProperties"]
    if len(patterns) > _MAX_PATTERNS:
        raise GrammarError("the JSON schema has too many patterns of property names")
    found = _Product([*patterns, *([] if names is None else [names])])
    others = False if names is not None else None
    values = list(patterns.values())
    known: dict[_Label, tuple[str, Schema]] = {}
    for label in dict.fromkeys(found.labels):
        value = _schema(label, values, schema.get("additionalProperties", True), names)
        ends = {state for state, each in enumerate(found.labels) if each == label}
        pattern = None if value is None else pattern_of_ends(found.goes, ends)
        if value is not None and pattern is not None:
            known[label] = pattern, value
        elif value is None:
            others = False
    if others is None and known:
        _drop_most_complex(schema, known, found)
    elif names is not None:
        schema["additionalProperties"] = False
    schema["patternProperties"] = dict(known.values())


def _drop_most_complex(
    schema: dict[str, Any], known: dict[_Label, tuple[str, Schema]], product: _Product
) -> None:
    """Lets `additionalProperties` stand for one pattern, also for listed properties."""
    label = max(known, key=lambda each: len(known[each][0]))
    schema["additionalProperties"] = value = known.pop(label)[1]
    listed = schema.get("properties", {})
    schema["properties"] = {
        name: {"allOf": [each, value]} if product.label_of(name) == label else each
        for name, each in listed.items()
    }


def _schema(
    label: _Label, schemas: Sequence[Schema], others: Schema, names: str | None
) -> Schema | None:
    """Returns the schema of the values by names of a label; None for names of no pattern."""
    if label is None:
        return False
    own = [each for each, is_matched in zip(schemas, label, strict=False) if is_matched]
    if names is not None and not label[-1]:
        return None
    if not own:
        return None if names is None else others
    return own[0] if len(own) == 1 else {"allOf": own}
