"""Message: the format of messages between two ranks: a header of fixed size, then array bytes.

Nothing is pickled: a rank accepts integers and floats of a stated length, and nothing else.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from sharpi.errors import ClusterError

_HEADER = struct.Struct("<4sHHqQ")  # magic, version, kind, number, bytes that follow
_MAGIC, _VERSION = b"shrp", 1
HEADER_BYTES = _HEADER.size
MAX_BODY_BYTES = 1 << 30


class Kind(IntEnum):
    """The kinds of messages; the numbers are part of the format."""

    STEP = 1  # the tokens of a step, and the values that the next layers need
    OUTPUTS = 2  # the values of a step's outputs after the last layer
    COPY_PAGE = 3
    COPY_STATE = 4
    FAILED = 5  # a step failed; the body says why, in UTF-8
    CLOSE = 6  # the first rank has ended
    DROP_WINDOWS = 7  # drops a page's windows


class Message(NamedTuple):
    """One message; `number` is the number of the step that it belongs to."""

    kind: Kind
    number: int
    body: bytes | memoryview = b""

    def header(self) -> bytes:
        """Returns the header, whose size is HEADER_BYTES."""
        return _HEADER.pack(_MAGIC, _VERSION, self.kind, self.number, len(self.body))


def read_header(data: bytes | memoryview) -> tuple[Kind, int, int]:
    """Returns a message's kind, its number, and the length of its body in bytes.

    Raises ClusterError if the header is not one of this version of sharpi.
    """
    magic, version, kind, number, length = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or kind not in Kind._value2member_map_:
        raise ClusterError("a message came that is not sharpi's; all ranks need the same version")
    if length > MAX_BODY_BYTES:
        raise ClusterError(f"a message of {length} bytes came; at most {MAX_BODY_BYTES} are taken")
    return Kind(kind), number, length
