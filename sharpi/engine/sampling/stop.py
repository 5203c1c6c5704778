"""StopFilter: finds stop strings in streamed text, and holds back their possible beginnings."""

from collections.abc import Sequence


class StopFilter:
    """Takes pieces and returns the text that is safe to show; `found` is the stop string found."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [s for s in stops if s]
        self._held = ""
        self.found: str | None = None

    @property
    def stopped(self) -> bool:
        """True if a stop string was met."""
        return self.found is not None

    def feed(self, piece: str) -> str:
        """Adds a piece; returns the text that can no longer be part of a stop string."""
        if not self._stops:
            return piece
        text = self._held + piece
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, self.found = min(found, key=lambda each: each[0])
            self._held = ""
            return text[:at]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Returns the text that was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Returns the length of the longest end of the text with which the stop string begins."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
