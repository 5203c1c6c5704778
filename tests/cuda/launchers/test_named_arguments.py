"""Arguments of kernels keep their order and their kinds, by name and within groups too."""

from typing import NamedTuple

import numpy as np
from device_arrays import empty

from sharpi.device.counting import CountingDevice
from sharpi.device.launch import Launch, Span, flat, named


class Inner(NamedTuple):
    first: Span | None = None
    second: int = 0


class Outer(NamedTuple):
    before: int
    inner: Inner
    after: float
    size: np.int64


def test_groups_are_put_in_line_and_found_again() -> None:
    span = empty(CountingDevice(), 8)
    given = Outer(True, Inner(span, 3), 0.1, np.int64(4))
    line = flat(given)
    assert line == (np.int32(1), span, np.int32(3), np.float32(0.1), np.int64(4))
    assert [type(each) for each in line] == [np.int32, Span, np.int32, np.float32, np.int64]
    found = named(Outer, line)
    assert (found.before, found.inner, flat(found)) == (1, given.inner, line)


def test_what_is_written_is_found_wherever_it_is() -> None:
    """A result that is also an input is written in both places; a missing one in none."""
    device = CountingDevice()
    x, out, other = (empty(device, 64).part(8 * i, 8) for i in range(3))
    launch = Launch.of("file", (2,), 32, (x, (out, None), 5, out), [out, None])
    assert (launch.kernel.entry, launch.grid, launch.writes) == ("file", (2, 1, 1), {1, 4})
    folded = launch.extended((x, (out, other), 5, out), other)
    assert folded.writes == {1, 2, 4}
