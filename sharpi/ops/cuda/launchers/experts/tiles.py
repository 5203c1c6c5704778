"""Tiles of experts, which a block multiplies on tensor cores: 64 rows of weights, 32 items."""

from typing import Final

from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.matvec_layout import reads_floats

ROWS_OF_TILE: Final = 64  # kTileRows
TILED_ITEMS: Final = 6  # mean tokens per expert; an estimate that no GPU has confirmed
_LEAST_BLOCKS_OF_ROWS: Final = 16
_F16_TYPES: Final = frozenset({QuantType.F16, QuantType.BF16})
_COLUMNS_OF_PIECE: Final = 8  # of 16 bytes, at multiples of which rows must begin


def fills_tiles(tokens: int, used: int, experts: int) -> bool:
    """Returns True if tokens with `used` experts each give an expert enough items on average."""
    return tokens * used >= TILED_ITEMS * experts


def supports_tiles(quant_type: QuantType, planes: int) -> bool:
    """Returns True if tensor cores can multiply this type with activations of so many planes."""
    return planes == 1 and not reads_floats(quant_type, planes)


def supports_f16_tiles(quant_type: QuantType, planes: int, columns: int) -> bool:
    """Returns True if tensor cores can multiply matrices of this type with activations in f16.

    `planes` are those of quantised activations, 0 for floats (`--precision f32`). Rows of another
    number of columns than a multiple of 8 do not begin at multiples of 16 bytes.
    """
    return planes > 0 and quant_type in _F16_TYPES and columns % _COLUMNS_OF_PIECE == 0


def shares(experts: int) -> int:
    """Returns how many blocks share an expert's tiles: more blocks if there are few experts."""
    return max(1, _LEAST_BLOCKS_OF_ROWS // experts)
