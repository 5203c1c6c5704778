"""Record: one page of the KV cache on disk, perhaps with a state of the recurrent layers after it.

A record's file has a header of 512 bytes, then the page's bytes, then the state's. The header has
the key of the model and its arithmetic and the page's tokens, and ends with a digest of itself. A
partial record only has the bytes of layers without windows, since the page's sliding-window layers
were dropped.
"""

import re
import struct
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct

from sharpi.engine.prompt_cache.checksum import DIGEST_BYTES
from sharpi.engine.prompt_cache.token_chain import LINK_BYTES, link_after
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

HEADER_BYTES = 512
KEY_BYTES = 16
_MAGIC = b"sharpiKV"
_VERSION = 2
# Magic, version, tokens, if partial, position, page bytes, state bytes, key, parent, checksum, ids.
_LAYOUT = struct.Struct(f"<8sIIIQQQ{KEY_BYTES}s{LINK_BYTES}s{DIGEST_BYTES}s{PAGE_POSITIONS}i")
_SIGNED_BYTES = HEADER_BYTES - DIGEST_BYTES
_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})-([0-9]{1,2})([sp]?)\.kv")


class RecordFault(Exception):
    """An error: a file is not a whole record of this model. The message names the fault."""


class RecordName(NamedTuple):
    """The name of a record's file: links before and after its tokens, their number, its kind.

    A link is a digest of all tokens of a text up to a position.
    """

    parent: str  # in hexadecimal, as `own`
    own: str
    num_tokens: int
    has_state: bool
    is_partial: bool = False

    def __str__(self) -> str:
        kind = "s" if self.has_state else "p" if self.is_partial else ""
        return f"{self.parent}-{self.own}-{self.num_tokens}{kind}.kv"


def parse_name(name: str) -> RecordName | None:
    """Parses the name of a record's file; returns None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None or not 1 <= int(match[3]) <= PAGE_POSITIONS:
        return None
    return RecordName(match[1], match[2], int(match[3]), match[4] == "s", match[4] == "p")


class Record(Struct, frozen=True):
    """The header of a record; `parent` is the digest of the text's tokens before `position`."""

    key: bytes  # of the model and its arithmetic
    parent: bytes
    position: int  # of the first token
    tokens: tuple[int, ...]
    page_bytes: int
    state_bytes: int = 0  # 0 without a state
    is_partial: bool = False  # without sliding-window layers

    @property
    def name(self) -> RecordName:
        """The name of the record's file."""
        own = link_after(self.parent, self.tokens).hex()
        has_state = self.state_bytes > 0
        return RecordName(self.parent.hex(), own, len(self.tokens), has_state, self.is_partial)

    @property
    def num_bytes(self) -> int:
        """The bytes of the page and of the state, if there is one."""
        return self.page_bytes + self.state_bytes

    def header(self, checksum: bytes) -> bytes:
        """Returns the header of a file whose page and state have this checksum."""
        ids = [*self.tokens, *[0] * (PAGE_POSITIONS - len(self.tokens))]
        sizes = (self.position, self.page_bytes, self.state_bytes)
        fields = (len(self.tokens), self.is_partial, *sizes)
        head = _LAYOUT.pack(_MAGIC, _VERSION, *fields, self.key, self.parent, checksum, *ids)
        head = head.ljust(_SIGNED_BYTES, b"\0")
        return head + _digest(head)


def parse_header(header: bytes) -> tuple[Record, bytes]:
    """Returns a record and the checksum of its page and state; raises RecordFault."""
    head, digest = header[:_SIGNED_BYTES], header[_SIGNED_BYTES:]
    if len(header) != HEADER_BYTES:
        raise RecordFault("it is cut short")
    if not header.startswith(_MAGIC):
        raise RecordFault("it is no page of a prompt cache")
    if _digest(head) != digest:
        raise RecordFault("its header is damaged")
    values = _LAYOUT.unpack_from(head)
    _, version, count, is_partial, position, page_bytes, state_bytes, *rest = values
    key, parent, checksum, *ids = rest
    if version != _VERSION or not 1 <= count <= PAGE_POSITIONS:
        raise RecordFault("another version of sharpi wrote it")
    tokens = tuple(ids[:count])
    sizes = page_bytes, state_bytes
    return Record(key, parent, position, tokens, *sizes, bool(is_partial)), checksum


def _digest(head: bytes) -> bytes:
    return blake2b(head, digest_size=DIGEST_BYTES).digest()
