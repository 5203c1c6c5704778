"""Suggests the known word that a user probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns "; did you mean ...?" with the closest known word, or an empty string."""
    close = get_close_matches(word.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
