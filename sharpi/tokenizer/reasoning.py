"""Tells a model's reasoning from its answer while the text streams: `<think>` ... `</think>`."""

from collections.abc import Iterator
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"
Kind = Literal["reasoning", "answer"]
Piece = tuple[Kind, str]


def opens_reasoning(prompt: str) -> bool:
    """Whether a rendered prompt ends inside an opened block, as some templates do."""
    return prompt.rfind(OPEN) > prompt.rfind(CLOSE)


class ReasoningSplitter:
    """Feed text, get pieces with their kind; markers are dropped, also when cut in two."""

    def __init__(self, starts_inside: bool = False) -> None:
        self._inside = starts_inside
        self._held = ""

    def feed(self, text: str) -> Iterator[Piece]:
        """The pieces that are certain; what may still be a marker waits."""
        self._held += text
        while True:
            marker = CLOSE if self._inside else OPEN
            before, found, after = self._held.partition(marker)
            if not found:
                break
            if before:
                yield self._kind, before
            self._inside, self._held = not self._inside, after
        keep = _unfinished(self._held, marker)
        shown, self._held = (
            self._held[: len(self._held) - keep],
            self._held[len(self._held) - keep :],
        )
        if shown:
            yield self._kind, shown

    def flush(self) -> Iterator[Piece]:
        """What waited and is now known to be text."""
        if self._held:
            yield self._kind, self._held
        self._held = ""

    @property
    def _kind(self) -> Kind:
        return "reasoning" if self._inside else "answer"


def _unfinished(text: str, marker: str) -> int:
    """Length of the text's end that begins the marker."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0
