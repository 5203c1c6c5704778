"""The header of a message: what is read from it, and which headers are refused."""

import pytest

from sharpi.cluster.message import HEADER_BYTES, MAX_BODY_BYTES, Kind, Message, read_header
from sharpi.errors import ClusterError


def test_a_header_says_kind_number_and_length() -> None:
    header = Message(Kind.OUTPUTS, 7, b"abc").header()
    assert len(header) == HEADER_BYTES
    assert read_header(header) == (Kind.OUTPUTS, 7, 3)


@pytest.mark.parametrize("place", [0, 4, 6])
def test_a_foreign_header_is_refused(place: int) -> None:
    header = bytearray(Message(Kind.STEP, 1).header())
    header[place] ^= 0xFF
    with pytest.raises(ClusterError, match="not sharpi's"):
        read_header(header)


def test_a_body_beyond_the_limit_is_refused() -> None:
    header = bytearray(Message(Kind.STEP, 1).header())
    header[-8:] = (MAX_BODY_BYTES + 1).to_bytes(8, "little")
    with pytest.raises(ClusterError, match="at most"):
        read_header(header)
