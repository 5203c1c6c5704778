"""Converts characters, escapes and character sets from GBNF to Lark."""

import json
import re

_LETTER = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([nrt\\\"\[\]]))|([^\\])",
    re.DOTALL,
)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
ANY = "/(?s:.)/"


def literal(text: str) -> str:
    """Returns Lark's literal for the text between two quotes; raises ValueError."""
    return json.dumps("".join(_letters(text)), ensure_ascii=False)


def character_set(text: str) -> str:
    """Returns Lark's regular expression for the text between two brackets; raises ValueError."""
    is_negated = text.startswith("^")
    letters = _letters(text[is_negated:])
    if not letters:
        raise ValueError("a set of characters is empty")
    inner, at = "", 0
    while at < len(letters):
        is_range = letters[at + 1 : at + 2] == ["-"] and at + 2 < len(letters)
        inner += _code(letters[at])
        if is_range:
            inner += "-" + _code(letters[at + 2])
        at += 3 if is_range else 1
    return f"/[{'^' if is_negated else ''}{inner}]/"


def _letters(text: str) -> list[str]:
    letters, at = [], 0
    while at < len(text):
        found = _LETTER.match(text, at)
        if found is None:
            raise ValueError(f"{text[at : at + 2]} is not a GBNF escape")
        letters.append(_letter(found))
        at = found.end()
    return letters


def _letter(found: re.Match[str]) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        return found[5] or _ESCAPED.get(found[4], found[4])
    number = int(code, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise ValueError(f"{found[0]} is not a character")
    return chr(number)


def _code(letter: str) -> str:
    return f"\\x{{{ord(letter):x}}}"
