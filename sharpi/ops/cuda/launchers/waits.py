"""Launches the kernels that measure how long a stream waits for experts."""

from typing import NamedTuple

from sharpi.device.launch import Kernel, Launch, Span


class Wait(NamedTuple):
    """Two int64 words that measure waits, in nanoseconds of the GPU's clock."""

    since: Span  # when the current wait began
    waited: Span  # the sum of all waits


class CopyWait(NamedTuple):
    """Words in which the kernel that copies experts records how long the copies took."""

    copied: Span  # int32, 0 between launches
    since: Span | None  # None records only the end
    waited: Span


def begin(wait: Wait) -> Launch:
    """Writes the time at which the stream begins to wait to `wait.since`."""
    return Launch(Kernel("slot_wait", "slot_wait_begin"), (1, 1, 1), 1, (wait.since,), _FIRST)


def end(wait: Wait) -> Launch:
    """Adds the time since `begin` to `wait.waited`."""
    return Launch(Kernel("slot_wait", "slot_wait_end"), (1, 1, 1), 1, tuple(wait), _SECOND)


_FIRST, _SECOND = frozenset({0}), frozenset({1})
