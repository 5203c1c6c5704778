"""Writes `iq_grids.h` from the gguf package's tables; run it when the format gains a grid."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import quants

_HEADER = """\
// The grids of the IQ types, packed: written by write_iq_grids.py from the gguf package's tables.
//
// An entry is one point of a grid, column c = 0 in the lowest bits: 2 bits for each of 8 columns,
// or for the IQ3 types 4 bits for each of 4. The bits number a value:
//   IQ2_XXS, IQ2_XS, IQ2_S: 8, 25, 43        IQ3_XXS: 4, 12, 20, 28, 36, 44, 52, 62
//   IQ1_S, IQ1_M (one grid): -1, 0, 1        IQ3_S: 1, 3, 5, ... 15
// Shared by C++ and CUDA.
#pragma once
#ifndef __CUDACC_RTC__
#include <stdint.h>
#endif
#ifdef __CUDACC__
#define SHARPI_GRID __device__ const uint16_t
#else
#define SHARPI_GRID constexpr uint16_t
#endif

namespace sharpi {
"""
_GRIDS = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")
_ENTRIES_PER_LINE = 12


def header() -> str:
    """The whole file."""
    return "\n".join([_HEADER, *(table(name) for name in _GRIDS), "}  // namespace sharpi\n"])


def table(name: str) -> str:
    """One grid as an array; the package writes a byte as two hexadecimal digits, low byte first."""
    entries = np.frombuffer(bytes.fromhex(getattr(quants, name).grid_hex.decode()), "<u2")
    body = "".join(f"    {line},\n" for line in lines([f"0x{entry:04x}" for entry in entries]))
    return f"SHARPI_GRID k{name.replace('_', '')}Grid[{len(entries)}] = {{\n{body}}};\n"


def lines(words: list[str]) -> Iterator[str]:
    """The words, a few on each line."""
    for start in range(0, len(words), _ENTRIES_PER_LINE):
        yield ", ".join(words[start : start + _ENTRIES_PER_LINE])


if __name__ == "__main__":
    Path(__file__).with_name("iq_grids.h").write_text(header())
