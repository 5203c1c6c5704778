"""Stop strings in streamed text: what may still become one is held back."""

from collections.abc import Sequence


class StopFilter:
    """Feed pieces, get what is safe to show; `stopped` once a stop string was met and cut."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [s for s in stops if s]
        self._held = ""
        self.stopped = False

    def feed(self, piece: str) -> str:
        """Text that can no longer be part of a stop string."""
        if not self._stops:
            return piece
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
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
