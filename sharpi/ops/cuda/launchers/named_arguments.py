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
    """Returns nested arguments as one flat tuple, as `Launch.arguments` needs them."""
    parts = (flat(each) if isinstance(each, tuple) else (each,) for each in arguments)
    return tuple(argument for part in parts for argument in part)


def named(kind: type[T], arguments: Iterable[Argument]) -> T:
    """Returns the NamedTuple `kind` from which `flat` made these arguments."""
    found: T = _named(kind, iter(arguments))
    return found


@cache  # each step of a prompt makes its launches anew
def argument_indices(kind: type[Any], *names: str) -> frozenset[int]:
    """Returns the indices in `Launch.arguments` of the arguments with these names.

    "norm.out" names the field `out` of the nested field `norm` of `kind`.
    """
    numbers = _named(kind, count())
    return frozenset(attrgetter(name)(numbers) for name in names)


def _named(kind: type[Any], values: Iterator[Any]) -> Any:
    kinds = kind.__annotations__.values()
    return kind(*(_named(each, values) if _is_group(each) else next(values) for each in kinds))


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple)
