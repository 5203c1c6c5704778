"""Marks launches that may begin before the launch before them has ended."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from sharpi.device.kernel_source import waits_for_last_launch
from sharpi.device.launch import Launch
from sharpi.ops.cuda.recorded import Call


def overlapping(calls: Iterable[Call]) -> Iterator[Call]:
    """Yields the calls, with programmatic dependent launches where possible.

    A launch is marked as dependent if its kernel itself waits for the preceding launch, and if the
    preceding call is a launch. After a copy or another call, the launch starts in stream order.
    """
    before: Call | None = None
    for call in calls:
        is_after = isinstance(before, Launch)
        before = call
        if is_after and isinstance(call, Launch) and waits_for_last_launch(call.kernel.file):
            yield replace(call, is_dependent=True)
        else:
            yield call
