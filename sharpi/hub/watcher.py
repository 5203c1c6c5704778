"""The protocol by which a download reports progress; the command line shows bars or lines."""

from typing import Protocol


class Watcher(Protocol):
    """Receives begin, advance..., end for each file, in this order; notes come at any time."""

    def note(self, text: str) -> None:
        """Reports a decision, or something that could not be done as requested."""

    def begin(self, path: str, size: int, received: int) -> None:
        """Reports a new file of `size` bytes; an earlier attempt received `received` of them."""

    def advance(self, count: int) -> None:
        """Reports `count` more bytes; negative if the server made the download restart."""

    def end(self) -> None:
        """Reports that the file is complete and its checksum correct."""
