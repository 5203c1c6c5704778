"""Launch: the launch of a kernel as data, which a launcher returns and a device runs."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from sharpi.errors import DeviceError

MAX_GRID = (2**31 - 1, 65_535, 65_535)  # the most blocks in x, y and z on every CUDA GPU
MAX_BLOCK = 1024  # threads

Scalar: TypeAlias = np.int32 | np.int64 | np.float32
_CONVERTED = (np.int32, np.float32)  # what plain numbers become


class Memory(Protocol):
    """A piece of a device's memory, which is freed with the object."""

    @property
    def address(self) -> int:
        """The memory's address on the device, a multiple of 256."""

    @property
    def num_bytes(self) -> int:
        """The size in bytes."""


class Span(Struct, frozen=True):
    """A byte range of an allocation; a kernel may only access the spans among its arguments."""

    memory: Memory
    offset: int
    num_bytes: int

    @property
    def address(self) -> int:
        """The span's address on the device."""
        return self.memory.address + self.offset

    def part(self, offset: int, num_bytes: int) -> "Span":
        """Returns the span of `num_bytes` at `offset`; raises ValueError beyond this one."""
        if offset < 0 or num_bytes < 0 or offset + num_bytes > self.num_bytes:
            raise ValueError(f"bytes {offset}..{offset + num_bytes} of a span of {self.num_bytes}")
        return Span(self.memory, self.offset + offset, num_bytes)


Argument: TypeAlias = Span | Scalar | None


def is_same_address(one: Span | None, other: Span | None) -> bool:
    """Returns True if there are two spans, and they begin at the same address."""
    if one is None or other is None:
        return False
    return one.memory is other.memory and one.offset == other.offset


def overlap(one: Span, other: Span) -> bool:
    """Returns True if two spans have a byte in common."""
    is_before = one.offset + one.num_bytes <= other.offset
    is_after = other.offset + other.num_bytes <= one.offset
    return one.memory is other.memory and not (is_before or is_after)


class Kernel(Struct, frozen=True):
    """A `__global__` function: `entry` in `<file>.cu` of `kernels/cuda`."""

    file: str
    entry: str
    # Compiles only the entry points for "q4_k"; None compiles all; see nvrtc.defines.
    quant_type: str | None = None
    size: int | None = None  # compiles only the entry points for this size, as HAS_SIZE names it


class Launch(Struct, frozen=True):
    """A kernel with its grid and arguments; raises DeviceError for a grid that no GPU launches."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: int  # threads
    # A span is passed as its address, None as a null pointer, a scalar by value in its own size.
    arguments: tuple[Argument, ...]
    writes: frozenset[int]  # indices of the arguments that the kernel writes
    shared_bytes: int = 0
    referenced: tuple[Span, ...] = ()  # memory that the kernel accesses through address tables
    # A programmatic dependent launch: the kernel itself waits for the end of the preceding launch.
    is_dependent: bool = False

    def __post_init__(self) -> None:
        x, y, z = self.grid
        if x > MAX_GRID[0] or y > MAX_GRID[1] or z > MAX_GRID[2] or self.block > MAX_BLOCK:
            raise DeviceError(
                f"{self.kernel.entry}: a GPU cannot launch {x} x {y} x {z} blocks of {self.block}"
                " threads; lower -b"
            )

    @classmethod
    def of(
        cls,
        kernel: Kernel | str,
        grid: tuple[int, ...],
        block: int,
        arguments: tuple[Any, ...],
        writes: Sequence[Span | None],
        *,
        shared_bytes: int = 0,
        referenced: tuple[Span, ...] = (),
    ) -> "Launch":
        """Returns a launch of a kernel, or of the only kernel in the file `<kernel>.cu`.

        Arguments may be nested (see `flat`). The kernel writes those that are in `writes`. The grid
        has one to three sizes.
        """
        kernel = Kernel(kernel, kernel) if isinstance(kernel, str) else kernel
        x, y, z = (*grid, 1, 1)[:3]
        line = flat(arguments)
        written = _indices(line, writes)
        return cls(kernel, (x, y, z), block, line, written, shared_bytes, referenced)

    def extended(self, arguments: tuple[Any, ...], *writes: Span | None) -> "Launch":
        """Returns this launch with other arguments in the same places, which also writes `writes`.

        Arguments may be nested, as in `of`.
        """
        line = flat(arguments)
        return replace(self, arguments=line, writes=self.writes | _indices(line, writes))


def _indices(arguments: tuple[Argument, ...], spans: Sequence[Span | None]) -> frozenset[int]:
    found = [i for i, each in enumerate(arguments) if type(each) is Span and each in spans]
    return frozenset(found)


T = TypeVar("T")


def flat(arguments: Iterable[Any]) -> tuple[Argument, ...]:
    """Returns nested arguments as one flat tuple, as `Launch.arguments` needs them.

    A plain int, bool or IntEnum becomes an int32, a float a float32.
    """
    line: list[Argument] = []
    for each in arguments:
        if each is None or type(each) is Span:
            line.append(each)
        elif isinstance(each, int):
            line.append(np.int32(each))
        elif isinstance(each, tuple):
            line += flat(each)
        else:
            line.append(np.float32(each) if isinstance(each, float) else each)
    return tuple(line)


def named(kind: type[T], arguments: Iterable[Argument]) -> T:
    """Returns the NamedTuple `kind` from which `flat` made these arguments."""
    found: T = _named(kind, iter(arguments))
    return found


def _named(kind: Any, values: Iterator[Any]) -> Any:
    fields = (_named(k, values) if k else _plain(next(values)) for k in _groups_of(kind))
    return kind(*fields)


@cache
def _groups_of(kind: Any) -> list[Any]:
    """Returns the kind of each field that is a group itself, None for other fields."""
    kinds = kind.__annotations__.values()
    return [k if isinstance(k, type) and issubclass(k, tuple) else None for k in kinds]


def _plain(argument: Argument) -> Span | np.int64 | float | None:
    return argument.item() if isinstance(argument, _CONVERTED) else argument
