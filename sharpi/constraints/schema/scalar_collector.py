"""ScalarCollector: gathers the strings, numbers and listed values that a schema allows."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Any

from sharpi.constraints.patterns.automaton import MAX_STEPS, Automaton, automaton_of
from sharpi.constraints.patterns.infinite import is_infinite
from sharpi.constraints.schema.alternatives import Alternative, unsupported
from sharpi.constraints.schema.formats import FORMATS
from sharpi.constraints.uniqueness.canonical_json import compact_json
from sharpi.constraints.uniqueness.number_range import NumberRange
from sharpi.constraints.uniqueness.string_set import StringSet
from sharpi.constraints.uniqueness.uniqueness_plan import ScalarSet
from sharpi.errors import GrammarError

_DATE = (
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = (
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_LABEL = "[A-Za-z0-9](-?[A-Za-z0-9]){0,15}"
_HOST = f"{_LABEL}(\\.{_LABEL})*"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_HEX = "[0-9a-f]"
# Patterns that match only strings of the formats, for items that must be unique.
_PATTERNS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": "P([1-9][0-9]*[DW]|T[1-9][0-9]*[HMS])",
    "email": f"[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@{_HOST}",
    "hostname": _HOST,
    "ipv4": f"{_BYTE}(\\.{_BYTE}){{3}}",
    "ipv6": f"{_HEX}{{1,4}}(:{_HEX}{{1,4}}){{7}}",
    "uuid": f"{_HEX}{{8}}(-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "uri": f"[a-z]+:(//{_HOST})?(/[A-Za-z0-9._~-]+)*/?(\\?[A-Za-z0-9._~=&-]+)?(#[A-Za-z0-9._~-]+)?",
}
_MAX_CHARACTERS = 256
_MAX_PATTERNS = 16  # compiled for one document, a few ms each
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " \\t"}
_TOKENS = re.compile(r"\\.|\[\^?\]?|\]|.", re.DOTALL)
Patches = dict[int, dict[str, Any]]  # new values of keywords, by a schema's id; None drops one


class ScalarCollector:
    """Gathers the scalars that the alternatives of a schema allow.

    `patches`: gathers the keywords that have to be rewritten. `patterns`: the patterns of the
    document that have been compiled so far.
    """

    def __init__(self, patches: Patches, patterns: set[str]) -> None:
        self._patches, self._patterns = patches, patterns
        self._texts: list[StringSet] = []
        self._numbers: list[NumberRange] = []
        self._listed: set[bytes] = set()
        self._twice: set[bytes] = set()

    def scalars(self) -> ScalarSet:
        """Returns the set of all scalars gathered so far."""
        return ScalarSet(
            tuple(self._texts), tuple(self._numbers), frozenset(self._listed - self._twice)
        )

    def add_values(self, values: list[Any]) -> None:
        """Adds listed values; raises GrammarError for objects, arrays and fractions.

        A value that is listed twice is left out, since `oneOf` does not allow it.
        """
        for value in values:
            if isinstance(value, dict | list | float):
                raise unsupported("of listed objects, arrays or fractions beside other items")
            literal = compact_json(value)
            (self._twice if literal in self._listed else self._listed).add(literal)

    def add(self, merged: Alternative, kind: str) -> None:
        """Adds the scalars of type `kind` that an alternative allows.

        Raises GrammarError for keywords that are not supported for unique items.
        """
        match kind:
            case "string":
                self._texts.append(self._texts_of(merged))
            case "number" | "integer":
                self._numbers.append(_numbers(merged.keywords, is_whole=kind == "integer"))
            case "boolean":
                self._listed |= {b"true", b"false"}
            case "null":
                self._listed.add(b"null")

    def _texts_of(self, merged: Alternative) -> StringSet:
        given = merged.keywords
        low, high = given.get("minLength", 0), given.get("maxLength")
        form, pattern = given.get("format"), given.get("pattern")
        if form in FORMATS:
            if pattern is not None:
                raise unsupported(f"of texts with a pattern and the format {form}")
            pattern = f"^{_PATTERNS[form]}$"
            patch = {"format": None, "pattern": pattern}
            self._patches.setdefault(id(merged.sources["format"]), {}).update(patch)
        if pattern is None:
            return StringSet(low=low, high=high, is_infinite=high is None)
        return self._matching(merged, pattern, low, high)

    def _matching(self, merged: Alternative, pattern: str, low: int, high: int | None) -> StringSet:
        if max(low, high or 0) > _MAX_CHARACTERS:
            raise unsupported(f"of texts with a pattern and more than {_MAX_CHARACTERS} characters")
        plain = _plain_classes(pattern)
        self._patterns.add(plain)
        if len(self._patterns) > _MAX_PATTERNS:
            raise unsupported(f"of texts with more than {_MAX_PATTERNS} patterns")
        union, intersection = (_automaton(plain, is_union=each) for each in (True, False))
        if union != intersection:
            if low == 0 and high is None and is_infinite(pattern):
                return StringSet(is_infinite=True)
            raise unsupported(
                "of texts with a pattern in which \\D, \\W, \\S or the like may differ"
            )
        if plain != pattern:
            self._patches.setdefault(id(merged.sources["pattern"]), {})["pattern"] = plain
        return StringSet(intersection, low, high)


@lru_cache(maxsize=128)
def _automaton(pattern: str, *, is_union: bool) -> Automaton:
    try:
        most = MAX_STEPS // 4
        return automaton_of(pattern, is_union=is_union, ends_strictly=True, most_steps=most)
    except GrammarError as error:
        reason = str(error).removeprefix("not supported in a pattern that must not match: ")
        raise unsupported(f"of texts with a pattern: {reason}") from None


def _plain_classes(pattern: str) -> str:
    """Returns a pattern with `\\d`, `\\w` and `\\s` replaced by their ASCII characters."""
    found, is_inside = [], False
    for token in _TOKENS.findall(pattern):
        letters = _CLASSES.get(token[1:]) if token[0] == "\\" else None
        if letters is not None:
            token = letters if is_inside else f"[{letters}]"
        elif token[0] == "[" and not is_inside:
            is_inside = True
        elif token == "]":
            is_inside = False
        found.append(token)
    return "".join(found)


def _numbers(given: dict[str, Any], *, is_whole: bool) -> NumberRange:
    step = given.get("multipleOf")
    if step is not None and (type(step) is not int or step < 1):
        raise unsupported("of multiples of a fraction")
    low, has_low = _limit(given, "minimum", "exclusiveMinimum", max)
    high, has_high = _limit(given, "maximum", "exclusiveMaximum", min)
    return NumberRange(low, high, has_low, has_high, step or (1 if is_whole else None))


def _limit(
    given: dict[str, Any], name: str, exclusive: str, nearer: Any
) -> tuple[Fraction | None, bool]:
    limit, other = given.get(name), given.get(exclusive)
    if isinstance(other, bool):  # draft 4
        return (None if limit is None else Fraction(repr(limit))), not other
    if other is None or (limit is not None and nearer(limit, other) == limit != other):
        return (None if limit is None else Fraction(repr(limit))), True
    return Fraction(repr(other)), False
