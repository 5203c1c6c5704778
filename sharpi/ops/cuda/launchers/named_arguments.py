"""Kernel arguments by name: NamedTuples, possibly nested, in the order of the kernel's parameters.

With them code can read or change a launch without counting its arguments.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from operator import attrgetter
from typing import Any, TypeVar

from sharpi.device.launch import Argument

T = TypeVar("T")


def flat(arguments: tuple[Any, ...]) -> tuple[Argument, ...]:
    """Returns the arguments of all groups as one tuple, as a launch has them."""
    parts = (flat(each) if isinstance(each, tuple) else (each,) for each in arguments)
    return tuple(argument for part in parts for argument in part)


def named(kind: type[T], arguments: Iterable[Argument]) -> T:
    """Returns the NamedTuple `kind` from which `flat` made these arguments."""
    found: T = _named(kind, iter(arguments))
    return found


@cache  # each step of a prompt makes its launches anew
def places(kind: type[Any], *names: str) -> frozenset[int]:
    """Returns the index of each argument in a launch; "norm.out" is `out` of the group `norm`."""
    numbers = _named(kind, count())
    return frozenset(attrgetter(name)(numbers) for name in names)


def _named(kind: type[Any], values: Iterator[Any]) -> Any:
    kinds = kind.__annotations__.values()
    return kind(*(_named(each, values) if _is_group(each) else next(values) for each in kinds))


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)
