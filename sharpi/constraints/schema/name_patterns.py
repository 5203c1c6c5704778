"""Rewrites `patternProperties` whose patterns overlap.

llguidance requires that no property name matches two patterns. So the patterns are replaced by
disjoint ones, one for each set of patterns that some names match together.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from sharpi.constraints.patterns.automaton import automaton_of, next_state
from sharpi.constraints.patterns.characters import Characters, union
from sharpi.constraints.schema.complement_pattern import pattern_of_states
from sharpi.constraints.schema.references import Schema
from sharpi.errors import GrammarError

_MAX_STATES = 200
_MAX_PATTERNS = 8
_Transitions = list[dict[int, Characters]]
_Label = tuple[bool, ...] | None  # which patterns match; None where validators differ


class _Product:
    """The product automaton of several patterns."""

    def __init__(self, patterns: Sequence[str]) -> None:
        # Each pattern in its wide and narrow meaning: validators differ on classes and `$`.
        self._automata = [
            automaton_of(each, is_union=is_union, ends_strictly=not is_union)
            for each in patterns
            for is_union in (True, False)
        ]
        states = {(0,) * len(self._automata): 0}
        self.transitions: _Transitions = []
        self.labels: list[_Label] = []
        for state in (queue := list(states)):
            ranges: dict[int, list[tuple[int, int]]] = {}
            for characters, after in self._steps(state):
                if after not in states:
                    states[after] = len(states)
                    queue.append(after)
                ranges.setdefault(states[after], []).extend(characters)
            self.transitions.append({after: union(spans) for after, spans in ranges.items()})
            self.labels.append(self._label(state))
            if len(states) > _MAX_STATES:
                raise GrammarError("the patterns of property names are too complex together")

    def label_of(self, name: str) -> _Label:
        """Returns a flag per pattern, True if the name matches it; None if validators disagree."""
        state = 0
        for char in name:
            state = next_state(self.transitions[state], ord(char))
        return self.labels[state]

    def _label(self, state: tuple[int, ...]) -> _Label:
        ends = [at in each.accepting for at, each in zip(state, self._automata, strict=True)]
        wide, narrow = tuple(ends[::2]), tuple(ends[1::2])
        return wide if wide == narrow else None

    def _steps(self, state: tuple[int, ...]) -> Iterator[tuple[Characters, tuple[int, ...]]]:
        transitions = [each.transitions[at] for at, each in zip(state, self._automata, strict=True)]
        spans = [
            span for each in transitions for characters in each.values() for span in characters
        ]
        bounds = sorted({edge for first, last in spans for edge in (first, last + 1)})
        for low, high in pairwise(bounds):
            after = tuple(next_state(each, low) for each in transitions)
            yield ((low, high - 1),), after


def overlap(patterns: Sequence[str]) -> bool:
    """Returns whether some name may match two of the patterns; False if too complex to tell."""
    if not 1 < len(patterns) <= _MAX_PATTERNS:
        return False
    try:
        return any(label is None or sum(label) > 1 for label in _Product(patterns).labels)
    except GrammarError:
        return False  # llguidance says whether it can use them


def make_disjoint(schema: dict[str, Any], names: str | None = None) -> None:
    """Replaces `patternProperties` by equivalent patterns of which no two match the same name.

    `names`: the pattern of the allowed names. Names on which validators disagree are not allowed.
    If every name matches a pattern, `additionalProperties` replaces the longest pattern. Raises
    GrammarError for patterns that are too complex.
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
        pattern = None if value is None else pattern_of_states(found.transitions, ends)
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
    """Replaces the longest pattern by `additionalProperties`.

    The pattern's schema is added to those listed properties that the pattern matches.
    """
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
    """Returns the schema of properties whose names match the patterns flagged in `label`.

    Returns None if the names need no pattern. `others`: the schema of names without a pattern.
    """
    if label is None:
        return False
    own = [each for each, is_matched in zip(schemas, label, strict=False) if is_matched]
    if names is not None and not label[-1]:
        return None
    if not own:
        return None if names is None else others
    return own[0] if len(own) == 1 else {"allOf": own}
