"""A step comes out of its message as it went in; lengths that contradict are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharpi.engine.backends.model_part import Segment, StepOfPart
from sharpi.engine.cluster.step_message import (
    pair_body,
    read_pair,
    read_step,
    read_values,
    step_body,
)
from sharpi.errors import ClusterError

WIDTH = 6


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    count = draw(st.integers(1, 70))
    position = draw(st.integers(0, 1 << 20))
    end = -(-(position + count) // 64)
    return Segment(
        ids=np.arange(count, dtype=np.int32),
        position=position,
        outputs=np.array(draw(st.lists(st.integers(0, count - 1), max_size=3)), np.int32),
        pages=np.arange(end + 3, dtype=np.int32),
        state=draw(st.none() | st.integers(0, 9)),
        sequence=draw(st.integers(0, 1000)),
        num_drafts=draw(st.integers(0, count - 1)),
        states_after=tuple(range(draw(st.sampled_from([0, count])))),
    )


def step_of(own: list[Segment]) -> StepOfPart:
    return StepOfPart(tuple(own), sum(len(segment.ids) for segment in own))


@pytest.mark.slow
@given(st.lists(segments(), min_size=1, max_size=4), st.integers(1, 64))
def test_a_step_comes_as_it_went(own: list[Segment], max_outputs: int) -> None:
    step = step_of(own)
    values = np.random.default_rng(1).standard_normal((step.num_tokens, WIDTH)).astype(np.float32)
    sent, outputs = read_step(step_body(step, values, max_outputs), WIDTH)
    assert outputs == max_outputs
    assert sent.num_tokens == step.num_tokens
    np.testing.assert_array_equal(sent.incoming, values)
    for ours, theirs in zip(own, sent.segments, strict=True):
        np.testing.assert_array_equal(theirs.ids, ours.ids)
        np.testing.assert_array_equal(theirs.outputs, ours.outputs)
        used = -(-(ours.position + len(ours.ids)) // 64)
        np.testing.assert_array_equal(theirs.pages, ours.pages[:used])
        assert theirs[1:2] + theirs[4:] == ours[1:2] + ours[4:]


@given(st.binary(max_size=200))
def test_other_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(ClusterError, match="contradict"):
        read_step(body, 1 << 20)


def test_a_step_of_another_length_is_refused() -> None:
    step = step_of([Segment(np.arange(3, dtype=np.int32), 0, *[np.zeros(1, np.int32)] * 2)])
    body = step_body(step, np.zeros((3, WIDTH), np.float32), 1)
    longer = int.from_bytes(body[:4], "little") + 1
    bodies = [
        longer.to_bytes(4, "little") + body[4:],
        body[:-1],
        body + b"\0",
        step_body(step, np.zeros((4, WIDTH), np.float32), 1),
        step_body(step._replace(segments=step.segments * 2), np.zeros((3, WIDTH), np.float32), 1),
    ]
    for each in bodies:
        with pytest.raises(ClusterError):
            read_step(each, WIDTH)


def test_pairs_and_values() -> None:
    assert read_pair(pair_body(3, 4)) == (3, 4)
    with pytest.raises(ClusterError):
        read_pair(b"12")
    values = np.arange(2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)
    np.testing.assert_array_equal(read_values(values.tobytes(), WIDTH), values)
    with pytest.raises(ClusterError):
        read_values(b"123", WIDTH)
