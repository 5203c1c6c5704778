"""Launches the kernels that measure how long a stream waits for experts."""

from typing import NamedTuple

from sharpi.device.launch import Kernel, Launch, Span


class Wait(NamedTuple):
    """Words of a layer's state, int64 nanoseconds of the GPU's clock."""

    since: Span  # the beginning of the present wait
    waited: Span  # all waits together


class CopyWait(NamedTuple):
    """Words by which the kernel that copies experts notes how long that took."""

    copied: Span  # int32, 0 between launches
    since: Span | None  # None to note the end alone
    waited: Span


def begin(wait: Wait) -> Launch:
    """Notes that the stream begins to wait."""
    return Launch(Kernel("slot_wait", "slot_wait_begin"), (1, 1, 1), 1, (wait.since,), _FIRST)


def end(wait: Wait) -> Launch:
    """Adds the time since `begin`."""
    return Launch(Kernel("slot_wait", "slot_wait_end"), (1, 1, 1), 1, tuple(wait), _SECOND)


_FIRST, _SECOND = frozenset({0}), frozenset({1})
