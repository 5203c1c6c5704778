"""The NVIDIA GPU, used through CuPy: memory, kernels compiled by NVRTC, streams, CUDA graphs.

CuPy and torch are imported when a GPU is opened, and nowhere else.
"""

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from sharpi.device.dependent_launch import (
    CAPABILITY,
    DependentLaunchError,
    launch_dependent,
)
from sharpi.device.device import AttendShape, Device, HostArray, Mark, Work
from sharpi.device.fused_attention import (
    FusedKernel,
    efficient,
    flash,
    fused_attention,
    fused_kernel,
)
from sharpi.device.gpu_errors import GpuErrors
from sharpi.device.grouped_product import grouped_product, has_grouped_products
from sharpi.device.kernel_source import kernel_source
from sharpi.device.launch import Argument, Kernel, Launch, Memory, Span
from sharpi.device.nvrtc import own_options
from sharpi.device.page_lock import PageLock
from sharpi.device.peers import CurrentGpu, check_gpu, enable_peers
from sharpi.device.small_upload import SMALL_BYTES, SmallUpload
from sharpi.device.staged_upload import StagedUpload
from sharpi.device.stream_words import StreamWordError, are_served, await_word, write_word
from sharpi.errors import DeviceError
from sharpi.units import format_bytes

_TO_DEVICE, _TO_HOST, _EITHER = 1, 2, 4
# A kernel has to set an attribute for more than 48 KB with its own shared memory, of which none has
# more than 46 KB.
_PLAIN_SHARED_BYTES = 2 << 10
_PROBE_BYTES = 256
_STAGED_BYTES = 8 << 20  # of an upload that goes through page-locked buffers
_COMPILERS = 16  # threads; NVRTC compiles without Python's lock


class CudaMemory:
    """Memory that CuPy owns: the GPU's, or page-locked memory of the host."""

    def __init__(self, owner: Any, num_bytes: int) -> None:
        self._owner = owner
        self.address = int(owner.ptr)
        self.num_bytes = num_bytes


class CudaDevice:
    """One GPU with its main stream and its side stream.

    `sharpi.device.gpu.open_gpu` opens it. `torch` is a function that returns the module. `first` is
    the GPU that the process opened first, if it is another one; they share page-locked memory.
    """

    def __init__(
        self,
        cupy: Any,
        torch: Callable[[], Any],
        index: int = 0,
        first: "CudaDevice | None" = None,
    ) -> None:
        self._cupy, self._import_torch, self._index = cupy, torch, index
        self._errors = GpuErrors(cupy, lambda: self.free_bytes)
        self._current: CurrentGpu = CurrentGpu(cupy) if first is None else first._current
        self._here()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._page_lock: PageLock = (
            PageLock(cupy.cuda.runtime, index) if first is None else first._page_lock
        )
        self._is_capturing = False
        self._shared_bytes: dict[Kernel, int] = {}  # that launches of a kernel may have so far
        capability = int(cupy.cuda.Device(index).compute_capability)
        self._capability = capability
        self._has_early_launches = capability >= CAPABILITY
        self._function = cache(self._compile)
        self._module = cache(self._compile_module)
        self._fused_kernel = cache(self._find_fused_kernel)

    @cached_property
    def _torch(self) -> Any:
        """The module torch; the first use may have to wait for its import."""
        torch = self._import_torch()
        # torch would add up parts of a product in f16.
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        return torch

    @cached_property
    def _torch_stream(self) -> Any:
        return self._torch.cuda.ExternalStream(self._stream.ptr, device=self._index)

    @property
    def name(self) -> str:
        properties = self._cupy.cuda.runtime.getDeviceProperties(self._index)
        return str(properties["name"].decode())

    @property
    def num_gpus(self) -> int:
        return int(self._cupy.cuda.runtime.getDeviceCount())

    def sibling(self, index: int) -> Device:
        check_gpu(self._cupy, index)
        enable_peers(self._cupy, self._index, index)
        return CudaDevice(self._cupy, self._import_torch, index, self)

    def _here(self) -> None:
        """Selects this GPU for the next CUDA calls of the thread."""
        self._current.use(self._index)

    @property
    def free_bytes(self) -> int:
        """The free memory that the driver reports."""
        self._here()
        return int(self._cupy.cuda.runtime.memGetInfo()[0])

    def allocate(self, num_bytes: int) -> Memory:
        self._here()
        try:
            return CudaMemory(self._cupy.cuda.Memory(max(1, num_bytes)), num_bytes)
        except (RuntimeError, MemoryError) as error:
            raise self._errors.translated(error, num_bytes) from error

    def mapped(self, num_bytes: int) -> tuple[Memory, npt.NDArray[np.uint8]]:
        runtime = self._cupy.cuda.runtime
        flags = runtime.hostAllocMapped | runtime.hostAllocPortable
        self._here()
        try:
            owner = self._cupy.cuda.PinnedMemory(max(1, num_bytes), flags)
        except runtime.CUDARuntimeError as error:
            raise DeviceError(
                f"the driver cannot page-lock {format_bytes(num_bytes)} of RAM; raise --vram or"
                " lower --ram"
            ) from error
        host = np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(owner.ptr))
        return CudaMemory(owner, num_bytes), host

    def page_lock(self, arrays: Sequence[HostArray]) -> bool:
        return self._page_lock.lock(arrays)

    def adopt(self, array: HostArray) -> Memory | None:
        return self._page_lock.adopt(array)

    @cached_property
    def has_stream_words(self) -> bool:
        """True if streams can write words and wait for them; tried once, on the main stream."""
        try:
            memory, host = self.mapped(_PROBE_BYTES)
            return are_served(self._stream, memory.address, host)
        except (RuntimeError, OSError, DeviceError):
            return False

    def upload(self, target: Span, source: HostArray) -> None:
        data = np.ascontiguousarray(source)
        num_bytes, flat = _fitting(target, data), data.reshape(-1).view(np.uint8)
        if num_bytes >= _STAGED_BYTES:
            self._staged.upload(target.address, flat)
        elif 0 < num_bytes <= SMALL_BYTES and self._small is not None:
            self._small.upload(target.address, flat)
        else:
            self._to_device(target.address, data.ctypes.data, num_bytes)
            self.synchronise()

    def _to_device(self, target: int, source: int, num_bytes: int) -> None:
        self._copy(target, source, num_bytes, _TO_DEVICE)

    @cached_property
    def _staged(self) -> StagedUpload:
        return StagedUpload(self.mapped, self._to_device, self.mark)

    @cached_property
    def _small(self) -> SmallUpload | None:
        """None where the driver page-locks nothing."""
        try:
            return SmallUpload(self.mapped, self._to_device, self.mark)
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
        self._here()
        with self._errors:
            runtime = self._cupy.cuda.runtime
            runtime.memcpyAsync(target, source, num_bytes, kind, self._stream.ptr)

    def launch(self, launch: Launch) -> None:
        arguments = tuple(map(_as_passed, launch.arguments))
        self._here()
        with self._errors, self._stream:
            function = self._function(launch.kernel)
            self._allow_shared(function, launch)
            if not (launch.is_dependent and self._launched_early(function, launch, arguments)):
                function(launch.grid, (launch.block,), arguments, shared_mem=launch.shared_bytes)

    def _allow_shared(self, function: Any, launch: Launch) -> None:
        """Raises the limit of a kernel's shared memory; graphs may count on what it was before."""
        if launch.shared_bytes > self._shared_bytes.get(launch.kernel, _PLAIN_SHARED_BYTES):
            function.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._shared_bytes[launch.kernel] = launch.shared_bytes

    def _launched_early(
        self, function: Any, launch: Launch, arguments: Sequence[np.generic]
    ) -> bool:
        """Launches a kernel that may begin early; returns False where the driver has no such thing.

        Within a capture a refusal is an error instead, since it ends the capture.
        """
        if not self._has_early_launches:
            return False
        size, stream = launch.shared_bytes, self._stream.ptr
        try:
            address = function.kernel.ptr
            launch_dependent(address, launch.grid, launch.block, size, stream, arguments)
        except (AttributeError, DeviceError) as error:
            self._has_early_launches = False
            if self._is_capturing:
                raise DependentLaunchError(str(error)) from error
            return False
        return True

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        modules = {(kernel.file, kernel.quant_type) for kernel in kernels}
        with ThreadPoolExecutor(_COMPILERS, "compile") as threads:
            for done in [threads.submit(self._prepare, *each) for each in sorted(modules, key=str)]:
                done.result()

    def _prepare(self, file: str, quant_type: str | None) -> None:
        """Compiles and loads one module; CuPy keeps what it compiled on disk."""
        with self._errors, self._cupy.cuda.Device(self._index):
            self._module(file, quant_type).compile()

    def _compile(self, kernel: Kernel) -> Any:
        return self._module(kernel.file, kernel.quant_type).get_function(kernel.entry)

    def _compile_module(self, file: str, quant_type: str | None) -> Any:
        options = tuple(own_options(quant_type))
        return self._cupy.RawModule(code=kernel_source(file), options=options)

    def matmul(self, x: Span, weights: Span, out: Span, shape: tuple[int, int, int]) -> None:
        tokens, rows, columns = shape
        torch = self._torch
        with self._errors, torch.cuda.stream(self._torch_stream):
            a = self._halves(x, tokens, columns)
            b = self._halves(weights, rows, columns)
            torch.mm(a, b.t(), out=self._halves(out, tokens, rows))

    @cached_property
    def has_grouped_products(self) -> bool:
        """True if torch multiplies in groups; tried once, on the main stream."""
        self._here()
        torch = self._torch
        with torch.cuda.stream(self._torch_stream):
            return has_grouped_products(torch, self._capability)

    def grouped_matmul(
        self, x: Span, weights: Span, out: Span, offsets: Span, shape: tuple[int, int, int, int]
    ) -> None:
        tokens, matrices, rows, columns = shape
        torch = self._torch
        self._here()
        with self._errors, torch.cuda.stream(self._torch_stream):
            grouped_product(
                torch,
                self._brain_floats(x, (tokens, columns)),
                self._brain_floats(weights, (matrices, rows, columns)),
                self._tensor(offsets, "<i4", (matrices + 1,))[1:],
                self._brain_floats(out, (tokens, rows)),
            )

    def _brain_floats(self, span: Span, shape: tuple[int, ...]) -> Any:
        """Returns a span as bf16, for which the array interface has no name."""
        return self._tensor(span, "<i2", shape).view(self._torch.bfloat16)

    def attends(self, shape: AttendShape) -> bool:
        return self._fused_kernel(shape._replace(tokens=0, positions=0)) is not None

    def _find_fused_kernel(self, shape: AttendShape) -> FusedKernel | None:
        try:
            return fused_kernel(self._torch, shape)
        except (AttributeError, TypeError, RuntimeError):  # another version of torch
            return None

    def attend(
        self, q: Span, keys: Span, values: Span, page_table: Span, out: Span, shape: AttendShape
    ) -> None:
        s, torch = shape, self._torch
        pages = -(-s.positions // s.page_positions)
        kernel = (
            flash
            if self._fused_kernel(shape._replace(tokens=0, positions=0)) == "flash"
            else efficient
        )
        with self._errors, torch.cuda.stream(self._torch_stream):
            fused_attention(
                partial(kernel, torch),
                self._tensor(q, "<f4", (s.tokens, s.num_heads, s.key_dim)),
                self._tensor(keys, "<f2", (-1, s.num_kv_heads, s.page_positions, s.key_dim)),
                self._tensor(values, "<f2", (-1, s.num_kv_heads, s.page_positions, s.value_dim)),
                self._tensor(page_table, "<i4", (-1,))[:pages],
                self._tensor(out, "<f4", (s.tokens, s.num_heads, s.value_dim)),
                s.positions,
                s.scale,
            )

    def _halves(self, span: Span, rows: int, columns: int) -> Any:
        return self._tensor(span, "<f2", (rows, columns))

    def _tensor(self, span: Span, kind: str, shape: tuple[int, ...]) -> Any:
        return self._torch.as_tensor(_ForeignArray(span, kind, shape), device="cuda")

    def write_word(self, word: Span, value: int) -> None:
        write_word(self._stream.ptr, word.address, value)

    def await_word(self, word: Span, value: int, meanwhile: Work) -> None:
        await_word(self._stream.ptr, word.address, value)

    def on_side_stream(self, work: Sequence[Work]) -> Mark:
        self._other.wait_event(self.mark())
        self._stream, main = self._other, self._stream
        try:
            for each in work:
                each()
            return self.mark()
        finally:
            self._stream = main

    def after(self, mark: Mark) -> None:
        self._stream.wait_event(mark)

    def mark(self) -> Mark:
        self._here()
        event = self._cupy.cuda.Event(disable_timing=True)
        event.record(self._stream)
        return event

    def wait(self, mark: Mark) -> None:
        with self._errors:
            mark.synchronize()

    @cached_property
    def _other(self) -> Any:
        self._here()
        return self._cupy.cuda.Stream(non_blocking=True)

    def record(self, work: Sequence[Work]) -> Work:
        """Captures the calls as a CUDA graph, and returns the call that launches it.

        The kernels must have run before, because none may be loaded during a capture. Where the
        driver cannot capture stream words, the replay makes the calls one by one.
        """
        try:
            return self._captured(work)
        except DependentLaunchError:
            return self.record(work)  # without them
        except StreamWordError:
            calls = tuple(work)
            return lambda: _do_all(calls)
        except DeviceError:
            if not self._has_early_launches:
                raise
            self._has_early_launches = False  # the driver may refuse a graph with them
            return self.record(work)

    def _captured(self, work: Sequence[Work]) -> Work:
        self._here()
        with self._errors:
            self._stream.begin_capture()
        self._is_capturing = True
        try:
            _do_all(work)
        except BaseException:
            with suppress(RuntimeError):
                self._stream.end_capture()  # the capture is no longer valid
            raise
        finally:
            self._is_capturing = False
        with self._errors:
            graph = self._stream.end_capture()
        return partial(self._replay, graph)

    def _replay(self, graph: Any) -> None:
        self._here()
        with self._errors:
            graph.launch(self._stream)

    def synchronise(self) -> None:
        self._here()
        with self._errors:
            self._stream.synchronize()


def _do_all(work: Sequence[Work]) -> None:
    for each in work:
        each()


class _ForeignArray:
    """A span that torch can read: it has the CUDA array interface, without a stream.

    If the first size in `shape` is -1, it follows from the size of the span.
    """

    def __init__(self, span: Span, kind: str, shape: tuple[int, ...]) -> None:
        self.owner = span.memory
        if shape[0] < 0:
            shape = (span.num_bytes // (int(kind[2]) * math.prod(shape[1:])), *shape[1:])
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": kind,
            "data": (span.address, False),
            "strides": None,
            "version": 2,
        }


def _fitting(span: Span, array: HostArray) -> int:
    if array.nbytes > span.num_bytes:
        raise ValueError(f"{array.nbytes} bytes for a span of {span.num_bytes}")
    return int(array.nbytes)


def _as_passed(argument: Argument) -> np.generic:
    """Returns the argument as CuPy takes it: addresses as 8 bytes, scalars in their own size."""
    if argument is None:
        return np.uint64(0)
    return np.uint64(argument.address) if isinstance(argument, Span) else argument
