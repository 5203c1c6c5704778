"""Random weights, activations and KV pages in a GPU's memory, larger than the GPU's cache."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from synthetic_moe import block_pool

from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.gguf.quant_types import QuantType, row_bytes
from sharpi.ops.cpu.kv_cache import KV_FORMATS
from sharpi.ops.cuda.launchers.elementwise import quantise
from sharpi.ops.cuda.launchers.experts.experts import GpuStackedMatrix
from sharpi.ops.cuda.matvec_layout import activation_bytes
from sharpi.settings import KvType

_POOL_BYTES = 8 << 20
_ALIGNMENT = 256
PAGE_POSITIONS = 64


def upload(device: Device, array: npt.NDArray[np.generic]) -> Span:
    """Uploads an array to newly allocated GPU memory."""
    span = allocate(device, array.nbytes)
    device.upload(span, array)
    return span


def allocate(device: Device, num_bytes: int) -> Span:
    """Allocates uninitialised GPU memory."""
    return Span(device.allocate(num_bytes), 0, num_bytes)


@dataclass(frozen=True, slots=True)
class Arena:
    """Matrices (rows, columns) of one quant type, stored `stride` bytes apart as in sharpi."""

    quant_type: QuantType
    rows: int
    columns: int
    memory: Span
    stride: int

    @property
    def count(self) -> int:
        """The number of matrices."""
        return self.memory.num_bytes // self.stride

    @property
    def matrix_bytes(self) -> int:
        """The size of one matrix in bytes, without the gap before the next one."""
        return self.rows * row_bytes(self.quant_type, self.columns)

    def matrix(self, index: int) -> Span:
        """Returns the memory of matrix `index`; indices wrap around."""
        return self.memory.part(index % self.count * self.stride, self.matrix_bytes)

    def stacked(self, device: Device, first: int, step: int) -> GpuStackedMatrix:
        """Returns a stacked matrix, by address, with every `step`-th matrix as an expert."""
        start = self.memory.address + np.arange(first, self.count, step) * self.stride
        addresses = upload(device, start.astype(np.uint64))
        sizes = self.rows, self.columns
        return GpuStackedMatrix(self.quant_type, *sizes, addresses, None, (self.memory,))


def make_arena(
    device: Device, quant_type: QuantType, rows: int, columns: int, num_bytes: int, least: int
) -> Arena:
    """Returns an arena with as many random matrices as fit into `num_bytes`, at least `least`."""
    size = rows * row_bytes(quant_type, columns)
    stride = -(-size // _ALIGNMENT) * _ALIGNMENT
    memory = allocate(device, max(least, num_bytes // stride) * stride)
    pool = block_pool(quant_type, columns, min(_POOL_BYTES, size))
    tile = np.resize(pool, stride)
    for start in range(0, memory.num_bytes, stride):
        device.upload(memory.part(start, stride), tile)
    return Arena(quant_type, rows, columns, memory, stride)


def activations(device: Device, tokens: int, columns: int, planes: int) -> Span:
    """Returns normally distributed activations (tokens, columns) in GPU memory.

    They are float32 if `planes` is 0, or else quantised to int8 planes.
    """
    values = np.random.default_rng(1).standard_normal((tokens, columns), np.float32)
    floats = upload(device, values)
    if not planes:
        return floats
    quantised = allocate(device, tokens * activation_bytes(columns, planes))
    device.launch(quantise(floats, quantised, tokens=tokens, columns=columns, planes=planes))
    device.synchronise()
    return quantised


def kv_pages(device: Device, kv_type: KvType, pages: int, heads: int, dim: int) -> Span:
    """Returns the keys or the values of one layer in GPU memory, with equal random pages.

    kernels/cuda/attention/kv_cache.cuh describes the layout.
    """
    random = np.random.default_rng(2)
    if kv_type == "f16":
        values = random.standard_normal((heads, PAGE_POSITIONS, dim), np.float32)
        page = values.astype(np.float16).view(np.uint8).reshape(-1)
    else:
        kind = KV_FORMATS[kv_type]
        num_codes = PAGE_POSITIONS * dim * kind.bits // 8
        codes = random.integers(0, 256, (heads, num_codes), np.uint8)
        num_scales = (PAGE_POSITIONS * kind.row_bytes(dim) - num_codes) // 2
        scales = np.full((heads, num_scales), 0.01, np.float16)
        page = np.concatenate([codes, scales.view(np.uint8)], axis=1).reshape(-1)
    return upload(device, np.tile(page, pages))
