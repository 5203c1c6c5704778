"""Stop strings in streamed text: what may still become one is held back."""

from collections.abc import Sequence


class StopFilter:
    """Feed pieces, get what is safe to show; `found` is the stop string that was met and cut."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [s for s in stops if s]
        self._held = ""
        self.found: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop string was met."""
        return self.found is not None

    def feed(self, piece: str) -> str:
        """Text that can no longer be part of a stop string."""
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
        """What was held back and is now known to be text."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The longest end of the text that begins the stop string."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
