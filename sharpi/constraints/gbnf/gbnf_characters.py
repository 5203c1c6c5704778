"""Converts characters, escapes and character sets from GBNF to Lark."""

import json
import re

_CHARACTER = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrt\\\"\[\]]))|([^\\])",
    re.DOTALL,
)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
ANY = "/(?s:.)/"


def literal(text: str) -> str:
    """Returns Lark's string literal for the text between two GBNF quotes; raises ValueError."""
    return json.dumps("".join(_characters(text)), ensure_ascii=False)


def character_set(text: str) -> str:
    """Returns Lark's regular expression for the text between the brackets of a GBNF set.

    Raises ValueError for an empty set or an invalid escape.
    """
    is_negated = text.startswith("^")
    chars = _characters(text[is_negated:])
    if not chars:
        raise ValueError("a set of characters is empty")
    inner, at = "", 0
    while at < len(chars):
        is_range = chars[at + 1 : at + 2] == ["-"] and at + 2 < len(chars)
        inner += _code(chars[at])
        if is_range:
            inner += "-" + _code(chars[at + 2])
        at += 3 if is_range else 1
    return f"/[{'^' if is_negated else ''}{inner}]/"


def _characters(text: str) -> list[str]:
    chars, at = [], 0
    while at < len(text):
        found = _CHARACTER.match(text, at)
        if found is None:
            raise ValueError(f"{text[at : at + 2]} is not a GBNF escape")
        chars.append(_character(found))
        at = found.end()
    return chars


def _character(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return found[5] or _ESCAPED.get(found[4], found[4])
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise ValueError(f"{found[0]} is not a character")
    return chr(number)


def _code(char: str) -> str:
    return f"\\x{{{ord(char):x}}}"
