"""Regular expressions for all strings except a few given ones."""

from collections.abc import Iterable

_ANY = r"[\s\S]"


def other_strings(texts: Iterable[str]) -> str:
    """Returns a pattern that matches exactly the strings that are not in `texts`."""
    return f"^{_others(sorted(set(texts)), 0)}$"


def _others(texts: list[str], depth: int) -> str:
    """Returns a pattern for strings that are not in `texts`, from character `depth` on.

    All of `texts` have the same first `depth` characters, which the pattern leaves out.
    """
    longer = [text for text in texts if len(text) > depth]
    chars = list(dict.fromkeys(text[depth] for text in longer))
    alternatives = (
        [] if len(longer) < len(texts) else [""]
    )  # a text may end here, unless one of them does
    alternatives.append(f"{_other_character(chars)}{_ANY}*")
    for char in chars:
        inner = _others([text for text in longer if text[depth] == char], depth + 1)
        alternatives.append(_escaped(char) + inner)
    return f"({'|'.join(alternatives)})"


def _other_character(chars: list[str]) -> str:
    return f"[^{''.join(map(_escaped, chars))}]" if chars else _ANY


def _escaped(char: str) -> str:
    """Returns a character escaped for Rust's regular expressions, in a set or outside of one."""
    return char if char.isalnum() else f"\\u{{{ord(char):x}}}"
