"""Cursor: reads the head of a GGUF file from front to back, checks all bounds, words errors."""

import struct
from pathlib import Path

from sharpi.errors import ModelFileError


def file_error(path: Path, what: str) -> ModelFileError:
    """Returns an error with the message `path: what`, on one line.

    Unprintable characters are replaced, so that text from the file can neither break the line nor
    control the terminal.
    """
    return ModelFileError(printable(f"{path}: {what}"))


def printable(text: str) -> str:
    """Replaces control characters, newlines and bytes that were not UTF-8 by U+FFFD."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


# Real heads reach 20 MB (a vocabulary and an embedded tokenizer.json). A larger head is refused, so
# that a forged length cannot make sharpi allocate more than a small multiple of this.
MAX_HEAD_BYTES = 1 << 28
_MAX_NAME_BYTES = 65535  # the specification's limit for a metadata key


class Cursor:
    """A reading position in `head`, the first bytes of a file of `file_bytes` bytes.

    A read beyond the end of `head` raises ModelFileError.
    """

    def __init__(self, path: Path, head: memoryview, file_bytes: int) -> None:
        self.path = path
        self.head = head
        self.file_bytes = file_bytes
        self.at = 0

    def error(self, what: str) -> ModelFileError:
        """Returns an error whose message is the file's path and `what` is wrong with the file."""
        return file_error(self.path, what)

    def out_of_bounds(self, what: str, end: int) -> ModelFileError:
        """Returns the error for the item `what`, which would end beyond the head, at byte `end`."""
        if end <= self.file_bytes:
            return self.error(f"{what} ends beyond the {len(self.head)} bytes that a head may have")
        return self.error(
            f"truncated or corrupt: {what} would end at byte {end}, the file at {self.file_bytes}"
        )

    def take(self, count: int, what: str) -> memoryview:
        """Returns a view of the next `count` bytes and moves past them; errors call them `what`."""
        end = self.at + count
        if end > len(self.head):
            raise self.out_of_bounds(what, end)
        part = self.head[self.at : end]
        self.at = end
        return part

    def uint32(self, what: str) -> int:
        """Reads an unsigned 32-bit number."""
        return int.from_bytes(self.take(4, what), "little")

    def uint64(self, what: str) -> int:
        """Reads an unsigned 64-bit number."""
        return int.from_bytes(self.take(8, what), "little")

    def uint64s(self, count: int, what: str) -> tuple[int, ...]:
        """Reads `count` unsigned 64-bit numbers; the caller has checked `count`."""
        return struct.unpack(f"<{count}Q", self.take(8 * count, what))

    def count(self, what: str, least_bytes: int, limit: int) -> int:
        """Reads and returns a number of items, which `what` names, and checks it.

        `least_bytes`: the minimal size of an item. Raises ModelFileError for more items than fit
        into the rest of the head, or more than `limit`.
        """
        count = self.uint64(f"the number of {what}")
        if count * least_bytes > len(self.head) - self.at:
            raise self.error(f"truncated or corrupt: {count} {what} do not fit into the file")
        if count > limit:
            raise self.error(f"corrupt: {count} {what}, more than the {limit} that sharpi accepts")
        return count

    def name(self, what: str) -> str:
        """Reads a metadata key or a tensor's name, which must be short printable UTF-8."""
        length = self.uint64(f"the length of {what}")
        if not 0 < length <= _MAX_NAME_BYTES:
            raise self.error(f"corrupt: {what} has {length} bytes, not 1 to {_MAX_NAME_BYTES}")
        start = self.at
        name = str(self.take(length, what), "utf-8", "replace")
        if not name.isprintable() or "\ufffd" in name:
            raise self.error(f"corrupt: {what} at byte {start} is not printable UTF-8")
        return name

    def text(self, what: str) -> str:
        """Reads a string of any length; bytes that are not UTF-8 become lone surrogates."""
        length = self.uint64(f"the length of {what}")
        return str(self.take(length, what), "utf-8", "surrogateescape")
