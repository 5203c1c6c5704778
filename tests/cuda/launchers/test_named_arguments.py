"""Arguments of kernels by name keep their order, within groups too."""

from typing import NamedTuple

import numpy as np

from sharpi.device.launch import Argument, argument_indices, flat, named


class Inner(NamedTuple):
    first: Argument = None
    second: Argument = np.int32(0)


class Outer(NamedTuple):
    before: Argument
    inner: Inner
    after: Argument


def test_groups_are_put_in_line_and_found_again() -> None:
    given = Outer(np.int32(1), Inner(np.int32(2), np.float32(3)), None)
    line = flat(given)
    assert line == (1, 2, 3, None)
    assert named(Outer, line) == given


def test_places_are_indices_in_line() -> None:
    assert argument_indices(Outer, "before", "inner.second", "after") == {0, 2, 3}
    assert argument_indices(Outer) == frozenset()
