"""The plan of the arrays whose items must be unique, and of the scalars that tell items apart."""

from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from sharpi.constraints.uniqueness.number_range import NumberRange
from sharpi.constraints.uniqueness.string_set import StringSet

Path: TypeAlias = tuple[bytes | int, ...]  # names in quotes, and indices in arrays


class ScalarSet(Struct, frozen=True):
    """A set of JSON scalars: strings, numbers, and `listed` values as JSON text."""

    texts: tuple[StringSet, ...] = ()
    numbers: tuple[NumberRange, ...] = ()
    listed: frozenset[bytes] = frozenset()

    def has_other(self, prefix: bytes, used: Iterable[bytes]) -> bool:
        """Returns whether a value that is not in `used` begins with `prefix`."""
        num = sum(each.startswith(prefix) for each in used)
        return self.has_more(prefix, num)

    def has_more(self, prefix: bytes, most: int) -> bool:
        """Returns whether more than `most` values begin with `prefix`, as JSON text."""
        if prefix[:1] == b'"' and any(each.has_more(prefix[1:], most) for each in self.texts):
            return True
        if not prefix and any(each.has_more(b"", most) for each in self.texts):
            return True
        if prefix[:1] != b'"' and any(each.has_more(prefix, most) for each in self.numbers):
            return True
        return sum(each.startswith(prefix) for each in self.listed) > most

    def has_free_digits(self, prefix: bytes) -> bool:
        """Returns whether any digits that the grammar allows after `prefix` lead to unused numbers.

        Exceptions are a first digit 0, and digits that complete a used number.
        """
        return b"." not in prefix or all(each.low is each.high is None for each in self.numbers)


class UniqueKey(Struct, frozen=True):
    """The path to the scalar that tells objects or arrays apart, and the values of this scalar.

    If `scalars` is None, no scalar does so: an object or array is continued until it differs from
    all earlier items.
    """

    path: Path = ()
    scalars: ScalarSet | None = None


class UniquenessRule(Struct, frozen=True):
    """The keys that tell the items of an array apart, by the items' type.

    `objects`, `arrays`: None if no item has this type.
    """

    scalars: ScalarSet
    objects: UniqueKey | None = None
    arrays: UniqueKey | None = None
    num_values: int | None = None  # of different items, if they are few

    def key_of(self, first: int) -> UniqueKey | None:
        """Returns the key of the items whose JSON text begins with byte `first`.

        Returns None if no item begins with this byte.
        """
        if first == b"{"[0]:
            return self.objects
        return self.arrays if first == b"["[0] else UniqueKey((), self.scalars)


class PlanNode(Struct):
    """A node of the plan: one position in a JSON document, and the nodes of the values within it.

    `names` and `other`: the nodes of an object's listed and unlisted properties. `items` and
    `rest`: the nodes of an array's first and further items. Nodes are indices in the plan, or -1
    where no array within the value has to be unique.
    """

    names: dict[bytes, int]
    other: int = -1
    items: tuple[int, ...] = ()
    rest: int = -1
    rule: UniquenessRule | None = None  # of an array here

    def of_item(self, index: int) -> int:
        """Returns the index of the node of an array's item; -1 if no array within is unique."""
        return self.items[index] if index < len(self.items) else self.rest


UniquenessPlan: TypeAlias = list[PlanNode]  # node 0 is the document
