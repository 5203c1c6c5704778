"""A regular expression for all texts but a few."""

from collections.abc import Iterable

_ANY = r"[\s\S]"


def other_texts(texts: Iterable[str]) -> str:
    """Returns a pattern that matches exactly the texts that are not among these."""
    return f"^{_others(sorted(set(texts)), 0)}$"


def _others(texts: list[str], depth: int) -> str:
    """Returns a pattern for texts that are not in `texts`, from their character `depth` on.

    All of `texts` are equal before that character; the pattern leaves that beginning out.
    """
    longer = [text for text in texts if len(text) > depth]
    letters = list(dict.fromkeys(text[depth] for text in longer))
    ways = [] if len(longer) < len(texts) else [""]  # a text may end here, unless one of them does
    ways.append(f"{_other_letter(letters)}{_ANY}*")
    for letter in letters:
        inner = _others([text for text in longer if text[depth] == letter], depth + 1)
        ways.append(_escaped(letter) + inner)
    return f"({'|'.join(ways)})"


def _other_letter(letters: list[str]) -> str:
    return f"[^{''.join(map(_escaped, letters))}]" if letters else _ANY


def _escaped(letter: str) -> str:
    """Returns a character escaped for Rust's regular expressions, in a set or outside of one."""
    return letter if letter.isalnum() else f"\\u{{{ord(letter):x}}}"
