"""GroupedProducts: the memory in which large batches multiply experts' weights in bf16."""

from collections.abc import Sequence

from msgspec import Struct

from sharpi.ops.cpu.buffers import Buffer
from sharpi.ops.cuda.recorder.f16_matmul import supports_f16_matmul
from sharpi.ops.cuda.recording import Recording
from sharpi.ops.interface import StackedMatrix

# The least tokens of batches with a grouped GEMM: an estimate that no GPU has confirmed. On an
# H200, dequantising 128 experts of 768 x 2048 should take 0.6 ms (2.7 GB are moved), and the
# matmuls of 1,024 tokens 0.2 ms. Tiles of 8-bit integers should take 0.6 to 0.9 ms.
GROUPED_PRODUCT_TOKENS = 1024
_WEIGHT_BYTES = 256 << 20  # of the experts that are dequantised together
_INT_BYTES, _BF16_BYTES = 4, 2
_MULTIPLE = 8  # rows and columns are multiples of it, so that rows begin at multiples of 16 bytes


class GroupedProducts(Struct, frozen=True):
    """The buffers of a feed-forward, with a row for each item of a batch."""

    at_once: int  # the number of experts in a group, whose weights fit into memory
    offsets: Buffer  # see `pack_routes`, like `items`, `item_rows` and `is_over`
    items: Buffer
    item_rows: Buffer
    is_over: Buffer
    x: Buffer  # the inputs of items, then their results
    pair: tuple[Buffer, ...]  # gate and up, or up; the first then becomes the input of down
    weights: Buffer


def grouped_products(
    recording: Recording, tokens: int, all_matrices: Sequence[StackedMatrix], used: int
) -> GroupedProducts | None:
    """Creates the buffers for batches of at most `tokens`; None if no grouped GEMM is used.

    `all_matrices` are gate and up, or up alone, and then down.
    """
    *gate_and_up, down = all_matrices
    is_off = "grouped-products" in recording.disabled or tokens < GROUPED_PRODUCT_TOKENS
    if is_off or not all(_is_supported(each, recording.planes) for each in all_matrices):
        return None
    if not recording.device.has_grouped_products:
        return None
    items, largest = tokens * used, max(each.rows * each.columns for each in all_matrices)
    at_once = max(1, min(down.num_experts, _WEIGHT_BYTES // (largest * _BF16_BYTES)))
    hidden = items * down.columns * _BF16_BYTES
    return GroupedProducts(
        at_once,
        recording.buffer((at_once + 1) * _INT_BYTES),
        recording.buffer(items * _INT_BYTES),
        recording.buffer(items * _INT_BYTES),
        recording.buffer(_INT_BYTES),
        recording.buffer(items * max(gate_and_up[0].columns, down.rows) * _BF16_BYTES),
        tuple(recording.buffer(hidden) for _ in gate_and_up),
        recording.buffer(at_once * largest * _BF16_BYTES),
    )


def grouped_result_bytes(hidden_size: int, used: int, tokens: int) -> int:
    """Returns the bytes that torch allocates for the largest grouped GEMM result of a batch.

    Returns 0 for batches that do not use the grouped GEMM.
    """
    if tokens < GROUPED_PRODUCT_TOKENS:
        return 0
    return tokens * used * hidden_size * _BF16_BYTES


def _is_supported(stacked: StackedMatrix, planes: int) -> bool:
    """Returns True if the grouped GEMM can multiply a matrix: no bias, no F32, sizes % 8 == 0."""
    is_even = stacked.rows % _MULTIPLE == 0 and stacked.columns % _MULTIPLE == 0
    return is_even and stacked.bias is None and supports_f16_matmul(stacked.quant_type, planes)
