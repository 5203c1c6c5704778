"""The protocol by which a download reports progress; the command line shows bars or lines."""

from typing import Protocol


class Watcher(Protocol):
    """Receives the progress of downloads.

    For each file, `begin` is called, then `advance` repeatedly, then `end`. `note` may be called at
    any time.
    """

    def note(self, text: str) -> None:
        """Reports a message for the user, about a choice or a problem."""

    def begin(self, path: str, size: int, received: int) -> None:
        """Reports the start of a file of `size` bytes, of which `received` are already on disk."""

    def advance(self, count: int) -> None:
        """Reports `count` more received bytes; negative if the server restarted the download."""

    def end(self) -> None:
        """Reports that the file is complete and its checksum is right."""
