"""Reads machine code from a cubin: how many instructions an entry point has, and in which loops."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_BYTES = 16  # of an instruction, from sm_70 on
_BRANCH = 0x947
# IDP (products of four bytes), and tensor cores: IMMA (of bytes), HMMA (of halves).
_PRODUCTS = {0x226, 0x237, 0x23C}
_WAIT = 0x82E  # griddepcontrol.wait
_MEMORY = {0x980, 0x981, 0x385, 0x386, 0x38E, 0x98E, 0x9A8, 0x3A9, 0xFAE}  # loads, stores, atomics
_LOADS = {0x381, 0x981}  # from global memory
_NEW_BRANCHES = 90  # from this architecture on, the low bits of a distance lie apart


@dataclass(frozen=True)
class Code:
    """The instructions of an entry point, and of its loops with products."""

    instructions: int
    around: tuple[int, ...]  # loops that hold all the products
    innermost: tuple[int, ...]  # loops with products that hold no other such loop
    waits: bool = False  # for earlier launches
    accesses_before: int = 0  # to memory, before it waits
    products: tuple[int, ...] = ()  # of each innermost loop
    loads_ahead: tuple[int, ...] = ()  # of each innermost loop, before its first product


def codes(cubin: bytes, architecture: int) -> dict[str, Code]:
    """Returns the code of every entry point."""
    return {name: _code(text, architecture) for name, text in _texts(cubin)}


def _texts(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the name and the instructions of every entry point, from the ELF sections."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    size, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + i * size) for i in range(count)]
    for name_at, _, _, _, offset, length in headers:
        begin = headers[names][4] + name_at
        name = cubin[begin : cubin.index(b"\0", begin)].decode()
        if name.startswith(".text."):
            yield name.removeprefix(".text."), cubin[offset : offset + length]


def _code(text: bytes, architecture: int) -> Code:
    words = [int.from_bytes(text[at : at + _BYTES], "little") for at in range(0, len(text), _BYTES)]
    products = [place for place, word in enumerate(words) if word & 0xFFF in _PRODUCTS]
    loops = [
        loop for loop in _loops(words, architecture) if any(place in loop for place in products)
    ]
    around = [len(loop) for loop in loops if all(place in loop for place in products)]
    innermost = [a for a in loops if not any(_is_within(b, a) for b in loops)]
    operations = [word & 0xFFF for word in words]
    wait = operations.index(_WAIT) if _WAIT in operations else 0
    early = sum(operation in _MEMORY for operation in operations[:wait])
    return Code(
        len(words),
        tuple(around),
        tuple(map(len, innermost)),
        wait > 0,
        early,
        tuple(sum(place in loop for place in products) for loop in innermost),
        tuple(_loads_ahead([operations[place] for place in loop]) for loop in innermost),
    )


def _loads_ahead(loop: list[int]) -> int:
    """Returns the loads from global memory in a loop before its first product."""
    first = next(place for place, operation in enumerate(loop) if operation in _PRODUCTS)
    return sum(operation in _LOADS for operation in loop[:first])


def _is_within(inner: range, outer: range) -> bool:
    return inner != outer and outer.start <= inner.start and inner.stop <= outer.stop


def _loops(words: list[int], architecture: int) -> Iterator[range]:
    """Yields the instructions between each backward branch and its target."""
    for place, word in enumerate(words):
        if word & 0xFFF != _BRANCH:
            continue
        distance = word >> 34 & (1 << 48) - 1
        distance -= distance >> 47 << 48
        if architecture >= _NEW_BRANCHES:
            distance = distance << 8 | word >> 16 & 0xFF
        target = place + 1 + distance * 4 // _BYTES
        if target < place:
            yield range(target, place + 1)
