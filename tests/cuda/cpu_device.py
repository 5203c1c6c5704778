"""A device whose memory is the host's and whose kernels run on the CPU, thread by thread."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from cpu_kernel import REACHED, CpuKernel, LaunchError, Region, Shape
from kernel_build import build_kernels

from sharpi.device.device import AttendShape, HostArray, Work
from sharpi.device.kernel_source import kernel_source
from sharpi.device.launch import Kernel, Launch, Memory, Span

__all__ = ["BACKWARD", "FORWARD", "CpuDevice", "CpuMemory", "LaunchError", "host_bytes"]

ALIGNMENT = 256
FORWARD, BACKWARD = (
    0,
    1,
)  # orders of a block's threads; any other number is the seed of a random one
_CELL_BYTES = 12  # of shim/engine/cells.h


class CpuMemory:
    """Bytes of 0xff: floats that were never set read as NaN, ids as -1."""

    def __init__(self, num_bytes: int) -> None:
        room = np.full(num_bytes + ALIGNMENT, 0xFF, np.uint8)
        start = -room.ctypes.data % ALIGNMENT
        self.array: npt.NDArray[np.uint8] = room[start : start + num_bytes]
        self._address = room.ctypes.data + start
        self._cells: npt.NDArray[np.uint8] | None = None

    @property
    def address(self) -> int:
        return self._address

    @property
    def num_bytes(self) -> int:
        return len(self.array)

    def cells(self, offset: int) -> int:
        """Address of what the engine knows of the bytes from `offset` on."""
        if self._cells is None:
            self._cells = np.zeros(self.num_bytes * _CELL_BYTES, np.uint8)
        return self._cells.ctypes.data + offset * _CELL_BYTES


class CpuDevice:
    """`sharpi.device.device.Device` on the host's memory.

    With `check`, a launch fails with kernel, line, block and thread where threads race, an access
    is misaligned or outside the arguments' bounds, or shared memory is read before it is written.
    `order` is that of the threads. `texts` are kernels' sources that stand in for files of a name.
    """

    name = "kernels on the CPU"
    free_bytes = 16 << 30

    def __init__(
        self, check: bool = True, order: int = FORWARD, texts: Mapping[str, str] | None = None
    ) -> None:
        self._check = check
        self._order = order
        self._texts = dict(texts or {})

    def allocate(self, num_bytes: int) -> CpuMemory:
        return CpuMemory(num_bytes)

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        memory = CpuMemory(num_bytes)
        return memory, memory.array

    def upload(self, target: Span, source: HostArray) -> None:
        data = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
        host_bytes(target)[: len(data)] = data

    def download(self, source: Span, target: HostArray) -> None:
        data = host_bytes(source)[: target.nbytes]
        target[...] = data.view(target.dtype).reshape(target.shape)

    def launch(self, launch: Launch) -> None:
        name = launch.kernel.file
        text = self._texts[name] if name in self._texts else kernel_source(name)
        kernel = _kernel(launch.kernel, text, self._check)
        shape = Shape(launch.grid, launch.block, launch.shared_bytes, self._order)
        regions = list(_regions(launch)) if self._check else []
        kernel.run(shape, launch.arguments, regions)

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        tokens, rows, columns = shape
        left = _halves(x, tokens, columns).astype(np.float32)
        right = _halves(weights, rows, columns).astype(np.float32)
        with np.errstate(over="ignore"):
            _halves(out, tokens, rows)[:] = left @ right.T

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        s = shape
        table = host_bytes(page_table).view(np.int32)[: -(-s.positions // 64)]
        k, v = (
            _in_order(host_bytes(pages), table, s.num_kv_heads, dim)[:, : s.positions]
            for pages, dim in ((keys, s.key_dim), (values, s.value_dim))
        )
        heads = host_bytes(q).view(np.float32)[: s.tokens * s.num_heads * s.key_dim]
        heads = heads.reshape(s.tokens, s.num_kv_heads, -1, s.key_dim).astype(np.float16)
        scores = np.einsum("tkgd,kpd->kgtp", heads.astype(np.float32), k) * s.scale
        late = np.arange(s.positions) > np.arange(s.positions - s.tokens, s.positions)[:, None]
        scores[..., late] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("kgtp,kpd->tkgd", weights, v)
        self.upload(out, np.ascontiguousarray(mixed, np.float32))

    def record(self, work: Sequence[Work]) -> Work:
        calls = tuple(work)

        def replay() -> None:
            for call in calls:
                call()

        return replay

    def synchronise(self) -> None:
        """Everything is done when its call returns."""


def _in_order(
    pages: npt.NDArray[np.uint8], table: npt.NDArray[np.int32], num_heads: int, dim: int
) -> npt.NDArray[np.float32]:
    """A sequence's keys or values, (KV heads, positions, dim)."""
    halves = pages.view(np.float16).reshape(-1, num_heads, 64, dim)[table]
    return halves.transpose(1, 0, 2, 3).reshape(num_heads, -1, dim).astype(np.float32)


def host_bytes(span: Span) -> npt.NDArray[np.uint8]:
    """The host's view of a span."""
    return _memory(span).array[span.offset : span.offset + span.num_bytes]


def _halves(span: Span, rows: int, columns: int) -> npt.NDArray[np.float16]:
    values = host_bytes(span)[: 2 * rows * columns].view(np.float16)
    return values.reshape(rows, columns)


def _memory(span: Span) -> CpuMemory:
    assert isinstance(span.memory, CpuMemory), "memory of another device"
    return span.memory


def _regions(launch: Launch) -> Iterator[Region]:
    """What the launch may touch; only memory of which some is written can see a race."""
    spans = [(i, a) for i, a in enumerate(launch.arguments) if isinstance(a, Span)]
    written = {id(span.memory) for i, span in spans if i in launch.writes}
    for index, span in spans + [(REACHED, span) for span in launch.reaches]:
        cells = _memory(span).cells(span.offset) if id(span.memory) in written else None
        begin, end = span.address, span.address + span.num_bytes
        yield Region(begin, end, cells, index, index in launch.writes)


@cache
def _kernel(kernel: Kernel, text: str, checked: bool) -> CpuKernel:
    defines = () if kernel.quant_type is None else (f"ONLY_{kernel.quant_type.upper()}",)
    return CpuKernel(kernel.entry, build_kernels(text, defines, checked), checked)
