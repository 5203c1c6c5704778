"""Writes a step as the body of a message, and reads it with every length checked.

The body is the number of values as int32, the values (tokens, width) as float32, then the segments
as MessagePack, with their arrays as int32. All of it is little-endian.
"""

import struct

import msgspec
import numpy as np
from msgspec import Struct

from sharpi.engine.backends.model_part import Segment, StepOfPart, Values
from sharpi.errors import ClusterError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS

_INT, _FLOAT = np.dtype("<i4"), np.dtype("<f4")
_PAIR = struct.Struct("<ii")


class _SentSegment(Struct, array_like=True, forbid_unknown_fields=True):
    ids: bytes
    outputs: bytes
    pages: bytes  # up to the last token; the receiver reads no later ones
    position: int
    state: int | None
    sequence: int
    num_drafts: int
    states_after: tuple[int, ...]


class _SentStep(Struct, array_like=True, forbid_unknown_fields=True):
    segments: tuple[_SentSegment, ...]
    max_outputs: int


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(_SentStep)


def step_body(step: StepOfPart, values: Values, max_outputs: int) -> bytes:
    """Returns the message body of a step, with the hidden states `values` (tokens, hidden)."""
    sent = _SentStep(tuple(map(_sent, step.segments)), max_outputs)
    return values.size.to_bytes(4, "little") + values.tobytes() + _encoder.encode(sent)


def _sent(segment: Segment) -> _SentSegment:
    ids, position, outputs, pages, state, sequence, num_drafts, states_after, *_ = segment
    used = pages[: -(-(position + len(ids)) // PAGE_POSITIONS)]
    ids, outputs, used = (array.astype(_INT, copy=False) for array in (ids, outputs, used))
    return _SentSegment(
        ids.tobytes(), outputs.tobytes(), used.tobytes(), position, state, sequence, num_drafts,
        states_after,
    )  # fmt: skip


def read_step(body: bytes | memoryview, width: int) -> tuple[StepOfPart, int]:
    """Parses a step with hidden states (tokens, `width`), and `max_outputs`.

    Raises ClusterError for a body that is no step, or whose lengths contradict each other.
    """
    end = 4 + 4 * int.from_bytes(body[:4], "little")
    try:
        sent = _decoder.decode(body[end:])
        segments = tuple(map(_segment, sent.segments))
        num_tokens = sum(len(segment.ids) for segment in segments)
        incoming = np.frombuffer(body[4:end], _FLOAT).reshape(num_tokens, width)
    except (msgspec.DecodeError, ValueError):
        raise _malformed() from None
    return StepOfPart(segments, num_tokens, incoming), sent.max_outputs


def _segment(sent: _SentSegment) -> Segment:
    ids, outputs, pages = (
        np.frombuffer(each, _INT) for each in (sent.ids, sent.outputs, sent.pages)
    )
    return Segment(
        ids, sent.position, outputs, pages, sent.state, sent.sequence, sent.num_drafts,
        sent.states_after,
    )  # fmt: skip


def _malformed() -> ClusterError:
    return ClusterError("a step came whose lengths contradict each other")


def pair_body(first: int, second: int) -> bytes:
    """Returns the body of a message with two numbers, as int32."""
    return _PAIR.pack(first, second)


def read_pair(body: bytes | memoryview) -> tuple[int, int]:
    """Parses a body of two numbers; raises ClusterError for another length."""
    if len(body) != _PAIR.size:
        raise _malformed()
    first, second = _PAIR.unpack(body)
    return first, second


def read_values(body: bytes | memoryview, width: int) -> Values:
    """Returns the values (outputs, width) of a body; raises ClusterError for a partial row."""
    if len(body) % (_FLOAT.itemsize * width):
        raise _malformed()
    return np.frombuffer(body, _FLOAT).reshape(-1, width)
