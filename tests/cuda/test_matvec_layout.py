import pytest
from hypothesis import given
from hypothesis import strategies as st
from quant_weights import TYPES

from sharpi.gguf.quant_types import QuantType
from sharpi.ops.cuda.matvec_layout import BLOCK, block_threads, lanes_of_row, units_of_row


@given(st.sampled_from(TYPES), st.integers(1, 64))
def test_lanes_have_turns_enough_and_most_are_busy(quant_type: QuantType, blocks: int) -> None:
    columns = blocks * max(8, quant_type.block_values)
    units, lanes = units_of_row(quant_type, columns), lanes_of_row(quant_type, columns)
    assert lanes in (4, 8, 16, 32)
    assert lanes == 4 or units >= 2 * lanes
    turns = -(-units // lanes)
    assert lanes == 4 or 3 * units >= 2 * turns * lanes


@pytest.mark.parametrize(
    ("quant_type", "columns", "lanes"),
    [
        (QuantType.Q4_K, 2048, 16),
        (QuantType.Q4_K, 768, 4),
        (QuantType.Q6_K, 768, 8),
        (QuantType.Q8_0, 2048, 32),
        (QuantType.MXFP4, 2880, 32),
        (QuantType.BF16, 2, 4),
    ],
)
def test_shapes_of_models(quant_type: QuantType, columns: int, lanes: int) -> None:
    assert lanes_of_row(quant_type, columns) == lanes


def test_few_rows_are_split_over_many_blocks() -> None:
    assert block_threads(128, 8) == 64
    assert block_threads(1000, 8) == 64
    assert block_threads(1500, 8) == 128
    assert block_threads(100_000, 8) == BLOCK
