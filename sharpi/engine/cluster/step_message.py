"""Writes a step as the body of a message, and reads it with every length checked.

The body is little-endian int32: the numbers of segments, tokens, outputs, pages and states, then
`max_outputs`, then eight numbers for each segment, then all ids, output rows, pages and states. The
values follow as float32.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.engine.backends.model_part import Segment, StepOfPart, Values
from sharpi.errors import ClusterError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS
from sharpi.ops.cpu.program import IntArray

_INT, _FLOAT = np.dtype("<i4"), np.dtype("<f4")
_COUNTS, _OF_SEGMENT = 6, 8
_LENGTHS = [0, 2, 3, 4]  # the columns of a segment's row that have the lengths of its arrays
_NO_STATE = -1


class SentStep(NamedTuple):
    """A received step; hidden states (tokens, hidden) in its message are `step.incoming`."""

    step: StepOfPart
    max_outputs: int


def step_body(step: StepOfPart, values: Values, max_outputs: int) -> bytes:
    """Returns the message body of a step, with the hidden states `values` (tokens, hidden)."""
    pages = [_used_pages(segment) for segment in step.segments]
    counts = [
        len(step.segments),
        step.num_tokens,
        sum(len(segment.outputs) for segment in step.segments),
        sum(map(len, pages)),
        sum(len(segment.states_after) for segment in step.segments),
        max_outputs,
    ]
    table = [
        _row(segment, len(own)) for segment, own in zip(step.segments, pages, strict=True)
    ]  # fmt: skip
    numbers = [
        np.array(counts, _INT),
        np.array(table, _INT).reshape(-1),
        *(segment.ids for segment in step.segments),
        *(segment.outputs for segment in step.segments),
        *pages,
        *(np.array(segment.states_after, _INT) for segment in step.segments),
    ]
    return np.concatenate(numbers).astype(_INT, copy=False).tobytes() + values.tobytes()


def _row(segment: Segment, num_pages: int) -> list[int]:
    state = _NO_STATE if segment.state is None else segment.state
    return [
        len(segment.ids),
        segment.position,
        len(segment.outputs),
        num_pages,
        len(segment.states_after),
        state,
        segment.sequence,
        segment.num_drafts,
    ]


def _used_pages(segment: Segment) -> IntArray:
    """Returns the pages up to the segment's last token; the receiver reads no later ones."""
    end = segment.position + len(segment.ids)
    return segment.pages[: -(-end // PAGE_POSITIONS)]


def read_step(body: bytes | memoryview, width: int) -> SentStep:
    """Parses a step with hidden states (tokens, `width`); raises ClusterError for bad lengths."""
    if len(body) % 4 or len(body) < 4 * _COUNTS:
        raise _malformed()
    numbers: npt.NDArray[np.int32] = np.frombuffer(body, _INT)
    num_segments, num_tokens, *counts, max_outputs = numbers[:_COUNTS].tolist()
    lengths = [num_tokens, *counts]
    begin = _COUNTS + num_segments * _OF_SEGMENT
    end = begin + sum(lengths)
    if min(num_segments, *lengths) < 0 or end + num_tokens * width != len(numbers):
        raise _malformed()
    rows = numbers[_COUNTS:begin].reshape(num_segments, _OF_SEGMENT).tolist()
    if [sum(row[i] for row in rows) for i in _LENGTHS] != lengths:
        raise _malformed()
    incoming = numbers[end:].view(_FLOAT).reshape(num_tokens, width)
    segments = _segments(rows, numbers[begin:end], lengths)
    return SentStep(StepOfPart(segments, num_tokens, incoming), max_outputs)


def _segments(
    rows: Sequence[list[int]], arrays: IntArray, lengths: Sequence[int]
) -> tuple[Segment, ...]:
    """Splits `arrays`, ids first, into segments by the lengths in `rows`."""
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    segments = []
    for row in rows:
        own = []
        for i, column in enumerate(_LENGTHS):
            first, starts[i] = starts[i], starts[i] + row[column]
            if starts[i] < first:
                raise _malformed()
            own.append(arrays[first : starts[i]])
        segments.append(_segment(row, *own))
    return tuple(segments)


def _segment(
    row: list[int], ids: IntArray, outputs: IntArray, pages: IntArray, states_after: IntArray
) -> Segment:
    state, sequence, num_drafts = row[5:]
    return Segment(
        ids=ids,
        position=row[1],
        outputs=outputs,
        pages=pages,
        state=None if state == _NO_STATE else state,
        sequence=sequence,
        num_drafts=num_drafts,
        states_after=tuple(states_after.tolist()),
    )


def _malformed() -> ClusterError:
    return ClusterError("a step came whose lengths contradict each other")


def pair_body(first: int, second: int) -> bytes:
    """Returns the body of a message with two numbers, as int32."""
    return np.array([first, second], _INT).tobytes()


def read_pair(body: bytes | memoryview) -> tuple[int, int]:
    """Parses a body of two numbers; raises ClusterError for another length."""
    if len(body) != 2 * _INT.itemsize:
        raise _malformed()
    first, second = np.frombuffer(body, _INT).tolist()
    return first, second


def values_body(values: Values) -> bytes:
    """Returns the body of a message with the hidden states (outputs, hidden) of outputs."""
    return values.tobytes()


def read_values(body: bytes | memoryview, width: int) -> Values:
    """Returns the values (outputs, width) of a body; raises ClusterError for a partial row."""
    if len(body) % (_FLOAT.itemsize * width):
        raise _malformed()
    return np.frombuffer(body, _FLOAT).reshape(-1, width)
