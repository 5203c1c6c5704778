"""The layout of matrix-vector products (kernels/cuda/quant/dot.cuh): lanes per row, threads.

Lanes are the threads of a warp that share a matrix row. Their number affects how results are
rounded, so it depends only on the quant type and the number of columns.
"""

from functools import cache
from typing import Final

from sharpi.device.launch import Kernel
from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cpu.program import Rounding

FLOAT_TYPES: Final = frozenset({QuantType.F32, QuantType.F16, QuantType.BF16})
MAX_TOKENS: Final = 8  # tokens that a block multiplies with weights that it has read once
BLOCK: Final = 256
_FEW_BLOCKS: Final = 256  # if there are fewer blocks, smaller ones are faster
_SMALLEST_BLOCK: Final = 64
_MOSTLY_BUSY: Final = 0.9
_LEAST_UNITS: Final = 2
_UNIT_VALUES: Final = {
    QuantType.Q4_K: 64,
    QuantType.Q5_K: 64,
    QuantType.F32: 8,
    QuantType.F16: 8,
    QuantType.BF16: 8,
}


def unit_values(quant_type: QuantType) -> int:
    """Returns the number of weights in a unit, which a lane unpacks at a time."""
    return _UNIT_VALUES.get(quant_type, 32)


def units_of_row(quant_type: QuantType, columns: int) -> int:
    """Returns the number of units in a row, which its lanes share."""
    return -(-columns // unit_values(quant_type))


@cache  # each step of a prompt makes its launches anew
def lanes_of_row(quant_type: QuantType, columns: int) -> int:
    """Returns the number of lanes per row: the most, from 4 to 32, that are nearly all busy.

    There are more than 4 lanes only if each gets at least two units of the row. With one unit, a
    lane's fixed work per row would cost more than its multiplications.
    """
    units = units_of_row(quant_type, columns)
    choices = [lanes for lanes in (32, 16, 8) if units >= _LEAST_UNITS * lanes] + [4]
    busy = {lanes: units / (-(-units // lanes) * lanes) for lanes in choices}
    enough = min(_MOSTLY_BUSY, max(busy.values()))
    return next(lanes for lanes, share in busy.items() if share >= enough)


def rows_at_once(quant_type: QuantType) -> int:
    """Returns the number of rows that a group of lanes computes at a time (kRowsAtOnce)."""
    return 1 if unit_values(quant_type) == 64 else 2


def rows_of_block(quant_type: QuantType, columns: int) -> int:
    """Returns the number of rows that a block of BLOCK threads computes."""
    return BLOCK // lanes_of_row(quant_type, columns) * rows_at_once(quant_type)


def bits(power: int) -> int:
    """Returns the base-2 logarithm of a power of two, as kernels expect it."""
    return power.bit_length() - 1


def reads_floats(quant_type: QuantType, planes: int) -> bool:
    """Returns True if a matmul reads float activations instead of quantised ones."""
    return planes == 0 or quant_type in FLOAT_TYPES


@cache
def kernel(file: str, quant_type: QuantType, planes: int, operation: str | None = None) -> Kernel:
    """Returns the kernel of an operation for a quant type and activations of `planes` planes.

    The operation has the name of the file by default.
    """
    name, exact = quant_type.name.lower(), "_exact" if reads_floats(quant_type, planes) else ""
    return Kernel(file, f"{operation or file}{exact}_{name}", name)


def block_threads(rows: int, rows_of_block: int) -> int:
    """Returns the threads of a block; there are fewer if there are few rows.

    A block of BLOCK threads computes `rows_of_block` rows.
    """
    threads = BLOCK
    while threads > _SMALLEST_BLOCK and rows * BLOCK < _FEW_BLOCKS * rows_of_block * threads:
        threads //= 2
    return threads


PLANES: Final[dict[Rounding, int]] = {"int8": 1, "int16": 2, "f32": 0}


def activation_bytes(columns: int, planes: int) -> int:
    """Returns the bytes of a quantised row of `columns`, a multiple of 32; 0 if `planes` is 0."""
    return planes * ((columns * 5 // 4 + 15) // 16 * 16)


_WARP: Final = 32


def whole_warps(threads: int, most: int) -> int:
    """Returns the threads of a block: `threads` rounded up to whole warps, but `most` at most."""
    return min(most, -(-threads // _WARP) * _WARP)
