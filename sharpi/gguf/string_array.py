"""StringArray: the strings of a metadata array, decoded from the mapped file on demand."""

from array import array
from struct import Struct

import numpy as np

from sharpi.gguf.cursor import Cursor

# The largest vocabularies have 262,144 tokens and some 500,000 merges.
MAX_STRINGS = 1 << 22
_LENGTH = Struct("<Q")


class StringArray:
    """The strings of a metadata array, decoded on demand.

    Vocabularies of real files hold invalid UTF-8 (tokens that end inside a character). Such bytes
    become surrogates, not U+FFFD, so that different tokens stay different and can be encoded back.
    """

    def __init__(self, head: memoryview, starts: "array[int]") -> None:
        self._head = head
        self._starts = starts  # where each length field begins, then where the last string ends

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> str:
        starts = self._starts
        at = range(len(self))[index]
        return str(self._head[starts[at] + 8 : starts[at + 1]], "utf-8", "surrogateescape")

    def tolist(self) -> list[str]:
        """Returns all strings; they are decoded at once, with zeros in place of the lengths."""
        if not len(self):
            return []
        starts = np.frombuffer(self._starts, np.uint64).astype(np.int64) - self._starts[0]
        data = np.frombuffer(self._head[self._starts[0] : self._starts[-1]], np.uint8).copy()
        data[starts[:-1, None] + np.arange(_LENGTH.size)] = 0
        if np.count_nonzero(data == 0) != _LENGTH.size * len(self):
            return [self[i] for i in range(len(self))]  # some strings hold zero bytes
        text = data.tobytes().decode("utf-8", "surrogateescape")
        return text.split(_LENGTH.size * "\0")[1:]


def read_string_array(cursor: Cursor, key: str, count: int) -> StringArray:
    """Reads an array of `count` strings; raises ModelFileError if it ends outside the head."""
    head, at = cursor.head, cursor.at
    starts = array("Q")
    append, unpack_from, last = starts.append, _LENGTH.unpack_from, len(head) - 8
    for _ in range(count):
        if at > last:
            raise cursor.overrun(f"a string of {key}", at + 8)
        append(at)
        at += 8 + unpack_from(head, at)[0]
    if at > len(head):
        raise cursor.overrun(f"a string of {key}", at)
    append(at)
    cursor.at = at
    return StringArray(head, starts)
