"""How products are laid out (kernels/cuda/quant/dot.cuh): lanes of a row, threads of a block.

A product's bits depend on the lanes that share a row, so these depend on type and columns alone.
"""

from typing import Final

from sharpi.gguf.quant_types import QuantType

FLOAT_TYPES: Final = frozenset({QuantType.F32, QuantType.F16, QuantType.BF16})
MAX_TOKENS: Final = 8  # that a block multiplies with the weights it has read
BLOCK: Final = 256
_FEW_BLOCKS: Final = 256  # under this many, a block is better split
_SMALLEST_BLOCK: Final = 64
_MOSTLY_BUSY: Final = 0.9
_TURNS: Final = 2
_UNIT_VALUES: Final = {
    QuantType.Q4_K: 64,
    QuantType.Q5_K: 64,
    QuantType.F32: 8,
    QuantType.F16: 8,
    QuantType.BF16: 8,
}


def unit_values(quant_type: QuantType) -> int:
    """Weights that a lane unpacks at a time."""
    return _UNIT_VALUES.get(quant_type, 32)


def units_of_row(quant_type: QuantType, columns: int) -> int:
    """Units that the lanes of a row share."""
    return -(-columns // unit_values(quant_type))


def lanes_of_row(quant_type: QuantType, columns: int) -> int:
    """Most lanes, of 4 to 32, that have two turns or more, of which nearly all are busy.

    With a single turn, what a lane does once for its row outweighs the row.
    """
    units = units_of_row(quant_type, columns)
    choices = [lanes for lanes in (32, 16, 8) if units >= _TURNS * lanes] + [4]
    busy = {lanes: units / (-(-units // lanes) * lanes) for lanes in choices}
    enough = min(_MOSTLY_BUSY, max(busy.values()))
    return next(lanes for lanes, share in busy.items() if share >= enough)


def rows_at_once(quant_type: QuantType) -> int:
    """Rows that a group of lanes has (kRowsAtOnce)."""
    return 1 if unit_values(quant_type) == 64 else 2


def bits(power: int) -> int:
    """The exponent of a power of two, as the kernels take it."""
    return power.bit_length() - 1


def takes_floats(quant_type: QuantType, planes: int) -> bool:
    """Whether a product takes activations as they are."""
    return planes == 0 or quant_type in FLOAT_TYPES


def entry(operation: str, quant_type: QuantType, planes: int) -> str:
    """The entry point of an operation for a type of weights and of activations."""
    exact = "_exact" if takes_floats(quant_type, planes) else ""
    return f"{operation}{exact}_{quant_type.name.lower()}"


def block_threads(rows: int, rows_of_block: int) -> int:
    """Threads of a block that has `rows_of_block` of the rows when it is whole: fewer for few."""
    threads = BLOCK
    while threads > _SMALLEST_BLOCK and rows * BLOCK < _FEW_BLOCKS * rows_of_block * threads:
        threads //= 2
    return threads
