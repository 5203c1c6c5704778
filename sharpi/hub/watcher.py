"""Who is told how a download goes; the command line shows it as bars or as lines."""

from typing import Protocol


class Watcher(Protocol):
    """Calls come in the order begin, advance..., end for each file; notes come at any time."""

    def note(self, text: str) -> None:
        """Something was decided, or could not be done as asked."""

    def begin(self, path: str, size: int, received: int) -> None:
        """A file of `size` bytes, of which an earlier try received so many."""

    def advance(self, count: int) -> None:
        """So many more bytes of it; negative where the server made it begin again."""

    def end(self) -> None:
        """All of it is there and was checked."""
