"""Leaf: the scalars by which the items of an array differ, and the plan of where these are."""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from sharpi.constraints.different.numbers import Numbers
from sharpi.constraints.different.texts import Texts

Path: TypeAlias = tuple[bytes | int, ...]  # names with their quotes, and places in arrays


class Leaf(Struct, frozen=True):
    """Texts, numbers, and a few values as they are spelled."""

    texts: tuple[Texts, ...] = ()
    numbers: tuple[Numbers, ...] = ()
    listed: frozenset[bytes] = frozenset()

    def has_other(self, begun: bytes, taken: Iterable[bytes]) -> bool:
        """Returns whether a value that is not taken begins as this one."""
        num = sum(each.startswith(begun) for each in taken)
        return self.has_more(begun, num)

    def has_more(self, begun: bytes, most: int) -> bool:
        """Returns whether more than `most` values begin in some way."""
        if begun[:1] == b'"' and any(each.has_more(begun[1:], most) for each in self.texts):
            return True
        if not begun and any(each.has_more(b"", most) for each in self.texts):
            return True
        if begun[:1] != b'"' and any(each.has_more(begun, most) for each in self.numbers):
            return True
        return sum(each.startswith(begun) for each in self.listed) > most

    def has_free_digits(self, begun: bytes) -> bool:
        """Returns whether any digits that the grammar allows lead to numbers, but for a zero first.

        Only such numbers may be lacking then that are taken.
        """
        return b"." not in begun or all(each.low is each.high is None for each in self.numbers)


class Way(Struct, frozen=True):
    """How objects or arrays differ: by the value at a path, which each of them has.

    Without a leaf, an object or array goes on until it differs.
    """

    path: Path = ()
    leaf: Leaf | None = None


class Rule(Struct, frozen=True):
    """How the items of an array differ, by their type; None for what they cannot be."""

    scalars: Leaf
    objects: Way | None = None
    arrays: Way | None = None
    num_values: int | None = None  # of all items that there are, if these are few

    def way_of(self, first: int) -> Way | None:
        """Returns how items whose JSON begins with byte `first` differ; None if there are none."""
        if first == b"{"[0]:
            return self.objects
        return self.arrays if first == b"["[0] else Way((), self.scalars)


class Place(Struct):
    """A place in documents: the places in the object or array that may stand there.

    All are numbers of a plan, -1 for one without rules in it.
    """

    names: dict[bytes, int]
    other: int = -1
    items: tuple[int, ...] = ()
    rest: int = -1
    rule: Rule | None = None  # of an array here

    def of_item(self, index: int) -> int:
        """Returns the place of an array's item."""
        return self.items[index] if index < len(self.items) else self.rest


Plan: TypeAlias = list[Place]  # the document is at place 0
