"""Character sets: sorted, disjoint ranges of code points, and their regular expressions.

JSON Schema validators differ in whether a class such as `\\w` goes beyond ASCII. The wide meaning
of a class is the union of all validators' meanings, the narrow one their intersection.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from sharpi.errors import GrammarError

Characters: TypeAlias = tuple[tuple[int, int], ...]  # (first, last)
LAST = 0x10FFFF
ALL: Characters = ((0, LAST),)
# Characters that JSON may hold unescaped or as a two-character escape such as `\n`.
JSON_CHARACTERS: Characters = ((9, 10), (13, 13), (32, 126), (160, 0xD7FF), (0xE000, LAST))
_LAST_ASCII = 0x7F
_CLASSES: dict[str, Characters] = {
    "DIGIT": ((48, 57),),
    "WORD": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "SPACE": ((9, 13), (28, 32)),  # Python has 28 to 31, too
}
_NARROW_SPACE: Characters = ((9, 13), (32, 32))


def union(ranges: Iterable[tuple[int, int]]) -> Characters:
    """Returns the union of ranges of code points, each (first, last)."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def complement(characters: Characters) -> Characters:
    """Returns all characters that are not in a set."""
    found, begin = [], 0
    for first, last in characters:
        if first > begin:
            found.append((begin, first - 1))
        begin = last + 1
    return (*found, (begin, LAST)) if begin <= LAST else tuple(found)


def intersection(one: Characters, other: Characters) -> Characters:
    """Returns the characters that are in both sets."""
    pairs = ((max(a, c), min(b, d)) for a, b in one for c, d in other)
    return tuple((first, last) for first, last in pairs if first <= last)


def num_of(characters: Characters) -> int:
    """Returns the number of characters in a set."""
    return sum(last - first + 1 for first, last in characters)


def has(characters: Characters, code: int) -> bool:
    """Returns whether a code point is in the set."""
    return any(first <= code <= last for first, last in characters)


def in_class(parts: Sequence[tuple[Any, Any]], *, is_union: bool = True) -> Characters:
    """Returns the characters of a class such as `[a-z\\d]`, which Python's `re` has parsed.

    `is_union`: the union of all validators' meanings of the class, else their intersection.
    """
    if parts and str(parts[0][0]) == "NEGATE":
        return complement(in_class(parts[1:], is_union=not is_union))
    return union(each for part in parts for each in _part(*part, is_union=is_union))


def _part(kind: Any, value: Any, *, is_union: bool) -> Characters:
    match str(kind):
        case "LITERAL":
            return ((value, value),)
        case "RANGE":
            return (value,)
        case "CATEGORY":
            return _category(str(value), is_union=is_union)
    raise GrammarError(f"not supported in a pattern that must not match: {kind}")


def _category(name: str, *, is_union: bool) -> Characters:
    is_negated, base = "NOT_" in name, name.rpartition("_")[2]
    known = _CLASSES[base]
    if base == "SPACE" and is_negated == is_union:
        known = _NARROW_SPACE
    ascii_part = complement((*known, (_LAST_ASCII + 1, LAST))) if is_negated else known
    return union((*ascii_part, (_LAST_ASCII + 1, LAST))) if is_union else ascii_part


def sample_character(characters: Characters) -> str:
    """Returns one of the characters, preferably a lower-case letter, or else ASCII."""
    for low, high in ((97, 122), (48, 57), (65, 90), (33, 126), (0, 127)):
        for first, last in characters:
            if max(first, low) <= min(last, high):
                return chr(max(first, low))
    return chr(characters[0][0])


def as_pattern(characters: Characters) -> str:
    """Returns a regular expression, valid in Python and Rust, for one character of the set."""
    if characters == ALL:
        return r"[\s\S]"
    is_long = len(characters) > 1 and characters[-1][1] == LAST
    shown = complement(characters) if is_long else characters
    if shown == characters and len(shown) == 1 and shown[0][0] == shown[0][1]:
        return escaped(chr(shown[0][0]))
    return f"[{'^' if is_long else ''}{''.join(map(_range_text, shown))}]"


def _range_text(span: tuple[int, int]) -> str:
    first, last = (escaped(chr(code)) for code in span)
    return first if first == last else f"{first}-{last}"


def escaped(char: str) -> str:
    """Returns a character escaped for regular expressions, inside and outside brackets."""
    if char.isascii() and char.isalnum():
        return char
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
