"""Marks launches that may begin before the launch before them has ended."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sharpi.device.kernel_source import waits_for_last_launch
from sharpi.device.launch import Launch
from sharpi.ops.cuda.recorded import Call


def overlapping(calls: Iterable[Call]) -> Iterator[Call]:
    """Yields the calls; lets a kernel that waits by itself begin before the previous launch ends.

    After a copy, or any other call that is no launch, the stream keeps the order.
    """
    before: Call | None = None
    for call in calls:
        is_behind = isinstance(before, Launch)
        before = call
        if is_behind and isinstance(call, Launch) and waits_for_last_launch(call.kernel.file):
            yield replace(call, is_dependent=True)
        else:
            yield call
