"""The quant types against those of the gguf package."""

import gguf
import pytest

from sharpi.gguf.quant_types import WITHDRAWN_TYPES, QuantType, row_bytes


@pytest.mark.parametrize("theirs", list(gguf.GGMLQuantizationType), ids=lambda t: t.name)
def test_every_type_of_the_gguf_package_is_known(theirs: gguf.GGMLQuantizationType) -> None:
    ours = QuantType(theirs.value)
    assert ours.name == theirs.name
    assert (ours.block_values, ours.block_bytes) == gguf.GGML_QUANT_SIZES[theirs]


def test_ids_are_whole_numbers_as_stored() -> None:
    assert QuantType.Q4_K == 12
    assert int(QuantType.MXFP4) == 39
    assert QuantType(8) is QuantType.Q8_0


def test_withdrawn_ids_are_no_types() -> None:
    assert not set(WITHDRAWN_TYPES) & {int(quant_type) for quant_type in QuantType}


def test_row_bytes() -> None:
    assert row_bytes(QuantType.Q4_K, 512) == 288
    assert row_bytes(QuantType.F16, 7) == 14
    with pytest.raises(ValueError, match=r"200 columns .* 256, the block size of Q4_K"):
        row_bytes(QuantType.Q4_K, 200)
