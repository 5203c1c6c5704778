"""The NVIDIA GPU, used through CuPy: memory, copies, streams and CUDA graphs.

CuPy and torch are imported when a GPU is opened, and nowhere else.
"""

import ctypes
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.device.device import AttendShape, Device, Event, HostArray, Work
from sharpi.device.driver import are_supported, await_word, write_word
from sharpi.device.gpu_errors import GpuErrors, check_gpu, is_out_of_memory
from sharpi.device.gpu_kernels import GpuKernels
from sharpi.device.launch import Kernel, Launch, Memory, Span
from sharpi.device.page_lock import PageLock
from sharpi.device.staged_upload import StagedUpload
from sharpi.device.torch_library import TorchLibrary
from sharpi.errors import DeviceError
from sharpi.units import format_bytes


class CurrentGpu(threading.local):
    """The GPU that CUDA's runtime uses for the calls of a thread."""

    _index = -1

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def use(self, index: int) -> None:
        """Selects a GPU for the later CUDA calls of this thread."""
        if index != self._index:
            self._cupy.cuda.Device(index).use()
            self._index = index


def enable_peers(cupy: Any, first: int, second: int) -> None:
    """Lets two GPUs copy from each other if the driver can; otherwise a copy passes through RAM."""
    runtime = cupy.cuda.runtime
    for gpu, peer in ((first, second), (second, first)):
        with suppress(runtime.CUDARuntimeError):  # already enabled by another library
            if runtime.deviceCanAccessPeer(gpu, peer):
                with cupy.cuda.Device(gpu):
                    runtime.deviceEnablePeerAccess(peer)


_TO_DEVICE, _TO_HOST, _EITHER = 1, 2, 4
_PROBE_BYTES = 256


class CudaMemory:
    """Memory that CuPy owns: the GPU's, or page-locked memory of the host."""

    def __init__(self, owner: Any, num_bytes: int) -> None:
        self._owner = owner
        self.address = int(owner.ptr)
        self.num_bytes = num_bytes


class CudaDevice:
    """One GPU with its main stream and its side stream.

    `sharpi.device.gpu.open_gpu` creates it. `torch` is a function that returns the torch module.
    `first` is the GPU that the process opened first, None for that GPU itself; both can read each
    other's page-locked memory.
    """

    def __init__(
        self,
        cupy: Any,
        torch: Callable[[], Any],
        index: int = 0,
        first: "CudaDevice | None" = None,
    ) -> None:
        self._cupy, self._import_torch, self._index = cupy, torch, index
        self._gpu = GpuErrors(cupy, lambda: self.free_bytes, self._select)
        self._current: CurrentGpu = CurrentGpu(cupy) if first is None else first._current
        self._select()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        lock = PageLock(cupy.cuda.runtime, index) if first is None else first._page_lock
        self._page_lock: PageLock = lock
        capability = int(cupy.cuda.Device(index).compute_capability)
        self._kernels = GpuKernels(cupy, index, self._gpu, capability)

    @property
    def name(self) -> str:
        properties = self._cupy.cuda.runtime.getDeviceProperties(self._index)
        return str(properties["name"].decode())

    @property
    def num_gpus(self) -> int:
        return int(self._cupy.cuda.runtime.getDeviceCount())

    def open_peer(self, index: int) -> Device:
        check_gpu(self._cupy, index)
        enable_peers(self._cupy, self._index, index)
        return CudaDevice(self._cupy, self._import_torch, index, self)

    def _select(self) -> None:
        """Selects this GPU for the later CUDA calls of this thread."""
        self._current.use(self._index)

    @property
    def free_bytes(self) -> int:
        """The free memory that the driver reports."""
        self._select()
        return int(self._cupy.cuda.runtime.memGetInfo()[0])

    def allocate(self, num_bytes: int) -> Memory:
        self._select()
        try:
            return self._allocated(num_bytes)
        except (RuntimeError, MemoryError) as error:
            if not ("_library" in self.__dict__ and is_out_of_memory(error)):
                raise self._gpu.translated(error, num_bytes) from error
        self._library.free_unused()
        with self._gpu:
            return self._allocated(num_bytes)

    def _allocated(self, num_bytes: int) -> Memory:
        return CudaMemory(self._cupy.cuda.Memory(max(1, num_bytes)), num_bytes)

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        runtime = self._cupy.cuda.runtime
        flags = runtime.hostAllocMapped | runtime.hostAllocPortable
        self._select()
        try:
            owner = self._cupy.cuda.PinnedMemory(max(1, num_bytes), flags)
        except runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"the driver cannot page-lock {format_bytes(num_bytes)} of RAM; raise --vram or"
                " lower --ram"
            ) from error
        host = np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(owner.ptr))
        return CudaMemory(owner, num_bytes), host

    def page_lock(self, arrays: Sequence[HostArray]) -> object:
        return self._page_lock.lock(arrays)

    def register_array(self, array: HostArray) -> Memory | None:
        return self._page_lock.register_array(array)

    @cached_property
    def has_stream_words(self) -> bool:
        """True if streams can write a uint32 and wait for one; tried once, on the main stream."""
        try:
            memory, host = self.mapped(_PROBE_BYTES)
            return are_supported(self._stream, memory.address, host)
        except (RuntimeError, OSError, DeviceError):
            return False

    def upload(self, target: Span, source: HostArray) -> None:
        data = np.ascontiguousarray(source)
        num_bytes, flat = _fitting(target, data), data.reshape(-1).view(np.uint8)
        if self._staged is not None:
            self._staged.upload(target.address, flat)
        else:
            self._to_device(target.address, data.ctypes.data, num_bytes)
            self.synchronise()

    def _to_device(self, target: int, source: int, num_bytes: int) -> None:
        self._copy(target, source, num_bytes, _TO_DEVICE)

    @cached_property
    def _staged(self) -> StagedUpload | None:
        """The page-locked buffers for uploads; None if the driver refuses them."""
        try:
            return StagedUpload(self.mapped, self._to_device, self.record_event)
        except DeviceError:
            return None

    def copy(self, target: Span, source: Span) -> None:
        if source.num_bytes != target.num_bytes:
            raise ValueError(f"{source.num_bytes} bytes for a span of {target.num_bytes}")
        self._copy(target.address, source.address, source.num_bytes, _EITHER)

    def download(self, source: Span, target: HostArray) -> None:
        self._copy(target.ctypes.data, source.address, _fitting(source, target), _TO_HOST)
        self.synchronise()

    def _copy(self, target: int, source: int, num_bytes: int, kind: int) -> None:
        if not num_bytes:
            return
        with self._gpu:
            runtime = self._cupy.cuda.runtime
            runtime.memcpyAsync(target, source, num_bytes, kind, self._stream.ptr)

    def launch(self, launch: Launch) -> None:
        with self._gpu, self._stream:
            self._kernels.launch(launch, self._stream.ptr)

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        self._kernels.prepare(kernels)

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        with self._gpu:
            self._library.matmul(x, weights, out, shape)

    def batched_matmul(
        self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int, int]
    ) -> None:
        with self._gpu:
            self._library.batched_matmul(x, weights, out, shape)

    def attends(self, shape: AttendShape) -> bool:
        self._select()
        return self._library.attends(shape)

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        with self._gpu:
            self._library.attend(q, keys, values, page_table, out, shape)

    @cached_property
    def library_fault(self) -> str | None:
        try:
            with self._gpu:
                self._library.multiply_some()
        except DeviceError as error:
            return str(error)
        return None

    @cached_property
    def _library(self) -> TorchLibrary:
        """Torch's matmuls and attention on the main stream; first waits for torch's import."""
        return TorchLibrary(self._import_torch(), self._stream.ptr, self._index)

    def write_word(self, word: Span, value: int) -> None:
        write_word(self._stream.ptr, word.address, value)

    def await_word(self, word: Span, value: int, host_work: Work) -> None:
        await_word(self._stream.ptr, word.address, value)

    def on_side_stream(self, work: Sequence[Work]) -> Event:
        self._other.wait_event(self.record_event())
        self._stream, main = self._other, self._stream
        try:
            for each in work:
                each()
            return self.record_event()
        finally:
            self._stream = main

    def after(self, event: Event) -> None:
        self._stream.wait_event(event)

    def record_event(self) -> Event:
        self._select()
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(self._stream)
        return event

    def wait(self, event: Event) -> None:
        with self._gpu:
            event.synchronize()

    @cached_property
    def _other(self) -> Any:
        self._select()
        return self._cupy.cuda.Stream(non_blocking=True)

    def record(self, work: Sequence[Work]) -> Work:
        with self._gpu:
            self._stream.begin_capture()
        try:
            for each in work:
                each()
        except BaseException:
            with suppress(RuntimeError):
                self._stream.end_capture()  # the capture is no longer valid
            raise
        with self._gpu:
            graph = self._stream.end_capture()
        return partial(self._replay, graph)

    def _replay(self, graph: Any) -> None:
        with self._gpu:
            graph.launch(self._stream)

    def synchronise(self) -> None:
        with self._gpu:
            self._stream.synchronize()


def _fitting(span: Span, array: HostArray) -> int:
    if array.nbytes > span.num_bytes:
        raise ValueError(f"{array.nbytes} bytes for a span of {span.num_bytes}")
    return int(array.nbytes)
