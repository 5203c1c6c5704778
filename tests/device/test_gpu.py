"""Tests a GPU through stand-ins for CuPy and torch: the refusals, and the calls that they get."""

import ctypes
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from stand_ins import (
    OTHER_ERROR,
    OUT_OF_MEMORY,
    CompileException,
    CudaRuntimeError,
    Function,
    Gpu,
    Module,
    OutOfMemoryError,
    install,
)

from sharpi.device import driver
from sharpi.device.cuda import CudaDevice
from sharpi.device.device import AttendShape
from sharpi.device.gpu import open_gpu
from sharpi.device.gpu_errors import GpuErrors, KernelError
from sharpi.device.launch import Kernel, Launch, Span
from sharpi.errors import DeviceError
from sharpi.ops.cuda.launchers.elementwise import unary
from sharpi.ops.cuda.replay.step_outputs import GpuValues
from sharpi.ops.interface import Unary


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def device(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> CudaDevice:
    install(monkeypatch, gpu)
    return open_gpu()


def refusal(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, *missing: str) -> str:
    install(monkeypatch, gpu, *missing)
    with pytest.raises(DeviceError) as caught:
        open_gpu()
    return str(caught.value)


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal(monkeypatch, Gpu(), "cupy")
    assert message.startswith("cupy is missing")
    assert "pip install -e '.[cuda13]'" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (Gpu(driver=0), ["no NVIDIA driver", "sharpi doctor"]),
        (Gpu(driver=12080), ["supports CUDA 12.8", "CuPy needs 13.0", ".[cuda12]"]),
        (Gpu(driver=11080, runtime=11080), ["supports CUDA 11.8", "update the driver"]),
        (Gpu(driver=11040, runtime=12090), ["supports CUDA 11.4", ".[cuda12]"]),
        (Gpu(count=0), ["shows no GPU"]),
        (Gpu(failing={"getDeviceCount": OTHER_ERROR}), ["does not answer", "719"]),
        (Gpu(capability="70"), ["compute capability 7.0", "needs 7.5"]),
    ],
)
def test_refusals_say_what_to_do_in_one_line(
    monkeypatch: pytest.MonkeyPatch, gpu: Gpu, words: list[str]
) -> None:
    message = refusal(monkeypatch, gpu)
    assert all(word in message for word in words), message
    assert "\n" not in message


@pytest.mark.parametrize("capability", ["75", "90", "100", "120"])
def test_capabilities_of_two_and_three_digits(
    monkeypatch: pytest.MonkeyPatch, capability: str
) -> None:
    install(monkeypatch, Gpu(capability=capability))
    assert open_gpu().name == "Some GPU"


def test_an_older_runtime_under_a_newer_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Gpu(driver=13000, runtime=12090))
    assert open_gpu().free_bytes == 5 << 30


def test_one_stream_of_its_own(gpu: Gpu, device: CudaDevice) -> None:
    assert gpu.calls("use") == [[0]]
    assert gpu.calls("Stream") == [[True]]
    device.synchronise()
    assert len(gpu.calls("synchronize")) == 1


def test_a_launch_as_cupy_gets_it(gpu: Gpu, device: CudaDevice) -> None:
    memory = device.allocate(100)
    data = Span(memory, 12, 80)
    arguments = (data, None, np.int32(-3), np.int64(1 << 40), np.float32(0.5))
    kernel = Kernel("matvec", "matvec_q4_k", "q4_k")
    device.launch(Launch(kernel, (7, 2, 1), 96, arguments, frozenset({0}), 1000))
    ((function, grid, block, passed, shared),) = gpu.calls("launch")
    assert function.entry == "matvec_q4_k"
    assert (grid, block, shared) == ((7, 2, 1), (96,), 1000)
    assert passed == (0x7000 + 12, 0, -3, 1 << 40, 0.5)
    kinds = [np.uint64, np.uint64, np.int32, np.int64, np.float32]
    assert [type(value) for value in passed] == kinds
    assert function.max_dynamic_shared_size_bytes == 48 << 10


def test_a_module_is_compiled_once_for_a_quant_type(gpu: Gpu, device: CudaDevice) -> None:
    span = Span(device.allocate(4), 0, 4)
    for entry, kind in (
        ("matvec_q4_k", "q4_k"),
        ("matvec_one_q4_k", "q4_k"),
        ("matvec_f16", "f16"),
    ):
        for _ in range(2):
            kernel = Kernel("matvec", entry, kind)
            device.launch(Launch(kernel, (1, 1, 1), 32, (span,), frozenset()))
    modules = [module for (module,) in gpu.calls("compile")]
    assert [module.options for module in modules] == [
        ("-std=c++17", "-DONLY_Q4_K"),
        ("-std=c++17", "-DONLY_F16"),
    ]
    assert '#include "' not in modules[0].code


def test_a_file_without_types_is_compiled_whole(gpu: Gpu, device: CudaDevice) -> None:
    device.launch(unary(Span(device.allocate(12), 0, 12), Unary.SIGMOID, count=3))
    assert [module.options for (module,) in gpu.calls("compile")] == [("-std=c++17",)]


def test_more_shared_memory_has_to_be_asked_for(gpu: Gpu, device: CudaDevice) -> None:
    """The limit never falls again, because a graph may launch the kernel with the larger size."""
    launch = Launch(Kernel("heads", "heads"), (1, 1, 1), 32, (), frozenset())
    limits = []
    for size in (2 << 10, 5 << 10, 90 << 10, 60 << 10, 0):
        device.launch(replace(launch, shared_bytes=size))
        function: Function = gpu.calls("launch")[-1][0]
        limits.append(function.max_dynamic_shared_size_bytes >> 10)
    assert limits == [48, 5, 90, 90, 90]


@pytest.mark.parametrize("is_locked", [True, False])
def test_which_copies_wait_for_the_stream(gpu: Gpu, device: CudaDevice, is_locked: bool) -> None:
    """A small upload waits where no memory can be page-locked."""
    if not is_locked:
        gpu.failing["PinnedMemory"] = OUT_OF_MEMORY
    source, target = np.arange(6, dtype=np.int32), np.zeros(3, np.int32)
    span = Span(device.allocate(64), 16, 24)
    device.upload(span, source)
    device.download(span, target)
    up, down = gpu.calls("memcpyAsync")
    stream = gpu.stream.ptr
    assert [up[0], *up[2:]] == [0x7010, 24, 1, stream]
    assert (up[1] == source.ctypes.data) == (not is_locked)
    assert down == [target.ctypes.data, 0x7010, 12, 2, stream]
    waits = [] if is_locked else ["synchronize"]
    names = [name for name, *_ in gpu.log if name in ("memcpyAsync", "synchronize")]
    assert names == ["memcpyAsync", *waits, "memcpyAsync", "synchronize"]


def test_copies_stay_inside_their_span(device: CudaDevice) -> None:
    span = Span(device.allocate(64), 0, 8)
    with pytest.raises(ValueError, match="12 bytes for a span of 8"):
        device.upload(span, np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="12 bytes for a span of 8"):
        device.download(span, np.zeros(3, np.int32))


def test_memory_that_is_not_there(gpu: Gpu, device: CudaDevice) -> None:
    gpu.failing["Memory"] = OUT_OF_MEMORY
    with pytest.raises(DeviceError, match=r"5.* left, not .*lower -c, -b or --vram"):
        device.allocate(6 << 30)
    gpu.failing["Memory"] = OTHER_ERROR
    with pytest.raises(DeviceError, match="the GPU failed: cudaError 719"):
        device.allocate(1)


def test_memory_that_torch_keeps_is_given_back(gpu: Gpu, device: CudaDevice) -> None:
    assert device.library_fault is None  # torch is in use now
    gpu.failing["Memory"] = OUT_OF_MEMORY
    assert device.allocate(6 << 30).num_bytes == 6 << 30


def test_page_locked_memory_is_the_hosts_too(gpu: Gpu, device: CudaDevice) -> None:
    memory, host = device.mapped(50)
    assert gpu.calls("PinnedMemory") == [[50, 3]]  # mapped and portable
    host[:] = np.arange(50)
    assert memory.address == host.ctypes.data
    assert (memory.num_bytes, host[49]) == (50, 49)
    gpu.failing["PinnedMemory"] = OUT_OF_MEMORY
    with pytest.raises(DeviceError, match=r"cannot page-lock .*raise --vram or lower --ram"):
        device.mapped(50)


def test_no_bytes_still_have_an_address(gpu: Gpu, device: CudaDevice) -> None:
    assert device.allocate(0).num_bytes == 0
    assert gpu.calls("Memory") == [[1]]


def test_a_graph_is_captured_once_and_replayed(gpu: Gpu, device: CudaDevice) -> None:
    span = Span(device.allocate(12), 0, 12)
    replay = device.record([partial(device.launch, unary(span, Unary.SIGMOID, count=3))] * 2)
    names = [name for name, *_ in gpu.log]
    assert names[names.index("begin_capture") :] == [
        "begin_capture", "compile", "launch", "launch", "end_capture",
    ]  # fmt: skip
    for _ in range(3):
        replay()
    assert gpu.calls("replay") == [[gpu.stream]] * 3
    assert len(gpu.calls("launch")) == 2


def test_a_capture_ends_where_something_fails(gpu: Gpu, device: CudaDevice) -> None:
    def fail() -> None:
        raise RuntimeError("no kernel")

    with pytest.raises(RuntimeError, match="no kernel"):
        device.record([fail])
    assert len(gpu.calls("end_capture")) == 1


def failing(device: CudaDevice) -> list[Callable[[], object]]:
    """Calls that reach CuPy, the driver or torch."""
    span = Span(device.allocate(12), 0, 12)
    graph = device.record([])
    return [
        lambda: device.upload(span, np.zeros(3, np.int32)),
        lambda: device.launch(unary(span, Unary.SIGMOID, count=3)),
        lambda: device.matmul(span, span, span, (1, 1, 1)),
        lambda: device.batched_matmul(span, span, span, (1, 1, 1, 1)),
        lambda: device.record([]),
        lambda: graph(),
        device.synchronise,
    ]


def test_every_failure_is_one_line(gpu: Gpu, device: CudaDevice) -> None:
    calls = failing(device)
    names = ("memcpyAsync", "compile", "mm", "bmm", "end_capture", "replay", "synchronize")
    gpu.failing |= dict.fromkeys(names, OTHER_ERROR)
    for call in calls:
        with pytest.raises(DeviceError, match=r"^the GPU failed: cudaError 719$"):
            call()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OutOfMemoryError("CUDA out of memory.\n Tried 2 GiB"), "5.0 GiB left, not what a step"),
        (CudaRuntimeError(OUT_OF_MEMORY), "the GPU has 5.0 GiB left"),
        (CompileException("error: line 3\nerror: line 4"), "cannot be compiled: error: line 3 err"),
        (ImportError("libnvrtc.so.13: no such file"), "the GPU failed: libnvrtc"),
        (RuntimeError("x" * 1000), "the GPU failed: xxx"),
    ],
)
def test_errors_of_each_kind(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    install(monkeypatch, gpu)
    import cupy

    with pytest.raises(DeviceError) as caught, GpuErrors(cupy, lambda: 5 << 30, lambda: None):
        raise error
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_fault_of_the_program_stays_what_it_is(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, gpu)
    import cupy

    with pytest.raises(ValueError, match="bytes"), GpuErrors(cupy, lambda: 0, lambda: None):
        raise ValueError("3 bytes for a span of 2")


def test_products_are_summed_in_full_precision(device: CudaDevice) -> None:
    import torch

    span = Span(device.allocate(2), 0, 2)
    device.matmul(span, span, span, (1, 1, 1))
    assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction


@pytest.mark.parametrize(
    ("fused", "attends"), [(("flash", "efficient"), True), (("flash",), True), ((), False)]
)
def test_what_the_library_attends_to(
    gpu: Gpu, device: CudaDevice, fused: tuple[str, ...], attends: bool
) -> None:
    gpu.fused = fused
    assert device.attends(AttendShape(40, 200, 32, 4, 128, 128, 0.1, 64)) == attends


def test_attention_that_torch_has_no_code_for(
    gpu: Gpu, device: CudaDevice, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu.failing["flash"] = OTHER_ERROR
    for dim in (64, 128):
        assert not device.attends(AttendShape(40, 200, 32, 4, dim, dim, 0.1, 64))
    assert capsys.readouterr().err.count("note: sharpi's own kernels compute attention") == 1


def test_stream_words_without_a_driver(device: CudaDevice) -> None:
    """The probe returns False here, because the driver's library is missing."""
    assert not device.has_stream_words


@pytest.mark.parametrize("is_written", [True, False])
def test_stream_words_are_tried_once(
    gpu: Gpu, device: CudaDevice, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word that is waited for is there before the wait, so nothing can hang."""
    made: list[str] = []

    def await_one(stream: int, address: int, value: int) -> None:
        assert ctypes.c_uint32.from_address(address).value == value
        made.append("await")

    def write_one(stream: int, address: int, value: int) -> None:
        ctypes.c_uint32.from_address(address).value = value * is_written
        made.append("write")

    monkeypatch.setattr(driver, "await_word", await_one)
    monkeypatch.setattr(driver, "write_word", write_one)
    assert device.has_stream_words == is_written
    assert device.has_stream_words == is_written
    assert made == ["await", "write"]


def test_kernels_are_compiled_once_before_their_launch(gpu: Gpu, device: CudaDevice) -> None:
    kernels = [
        Kernel("matvec", "matvec_q4_k", "q4_k"),
        Kernel("matvec", "matvec_one_q4_k", "q4_k"),
        Kernel("rms_norm", "rms_norm"),
        Kernel("mamba2", "mamba2_16", size=16),
        Kernel("mamba2", "mamba2_32", size=32),
    ]
    device.prepare(kernels)
    assert len(gpu.calls("compiled")) == 4
    span = Span(device.allocate(4), 0, 4)
    device.launch(Launch(kernels[0], (1, 1, 1), 32, (span,), frozenset()))
    assert len(gpu.calls("compile")) == 4
    gpu.failing["compiled"] = OTHER_ERROR
    with pytest.raises(DeviceError, match="the GPU failed: cudaError 719"):
        device.prepare([Kernel("embed", "embed")])


def test_the_kernel_that_cannot_be_compiled_is_named(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(module: Module) -> None:
        raise CompileException("error: no such PTX")

    monkeypatch.setattr(Module, "compile", fail)
    with pytest.raises(KernelError, match="cannot be compiled: error: no such PTX") as caught:
        device.prepare([Kernel("embed", "embed")])
    assert caught.value.file == "embed"


def test_a_large_upload_goes_through_page_locked_buffers(gpu: Gpu, device: CudaDevice) -> None:
    data = np.arange(9 << 20, dtype=np.uint8)
    device.upload(Span(device.allocate(data.nbytes), 0, data.nbytes), data)
    copies = gpu.calls("memcpyAsync")
    assert [size for _, _, size, _, _ in copies] == [4 << 20, 4 << 20, 1 << 20]
    assert [target - 0x7000 for target, *_ in copies] == [0, 4 << 20, 8 << 20]
    assert data.ctypes.data not in {source for _, source, *_ in copies}
    with pytest.raises(ValueError, match="bytes for a span of 8"):
        device.upload(Span(device.allocate(8), 0, 8), data)


@pytest.mark.parametrize(
    ("gpu", "version", "words"),
    [
        (Gpu(), None, ["torch is missing", ".[cuda13]"]),
        (Gpu(driver=12080, runtime=12040), None, ["torch is missing", ".[cuda12]"]),
        (Gpu(), "__version__ = '2.11.0+cpu'\ncuda = None", ["2.11.0+cpu has no CUDA"]),
        (Gpu(torch_sees_it=False), "cuda: Optional[str] = '13.0'", ["torch 9.9 has no CUDA"]),
        (Gpu(failing={"mm": OTHER_ERROR}), "cuda: Optional[str] = '13.0'", ["cudaError 719"]),
        (Gpu(), "cuda: Optional[str] = '13.0'", []),
    ],
)  # fmt: skip
def test_a_library_that_cannot_be_used(
    gpu: Gpu, version: str | None, words: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The GPU is opened in any case; the library multiplies 16 rows to find out."""
    install(monkeypatch, gpu, *([] if version else ["torch"]))
    if version:
        (tmp_path / "version.py").write_text(version)
        origin = str(tmp_path / "__init__.py")
        monkeypatch.setattr(sys.modules["torch"].__spec__, "origin", origin)
    fault = open_gpu().library_fault
    assert (fault is None) == (not words)
    assert all(word in (fault or "") for word in words), fault


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu(count=2)
    install(monkeypatch, gpu)
    return gpu


def test_each_of_two_gpus_is_current_for_its_own_calls(two: Gpu) -> None:
    first = open_gpu()
    assert first.num_gpus == 2
    second = first.open_peer(1)
    two.log.clear()
    for device in (second, second, first, second):
        device.allocate(8)
    assert [(name, *values) for name, *values in two.log] == [
        ("Memory", 8), ("Memory", 8), ("use", 0), ("Memory", 8), ("use", 1), ("Memory", 8),
    ]  # fmt: skip


@pytest.mark.parametrize("peers", [True, False])
def test_gpus_copy_directly_where_the_driver_says_so(two: Gpu, peers: bool) -> None:
    two.peers = peers
    first = open_gpu()
    first.open_peer(1)
    assert two.calls("deviceEnablePeerAccess") == ([[1], [0]] if peers else [])
    two.failing["deviceEnablePeerAccess"] = OTHER_ERROR  # as where another library was first
    first.open_peer(1)


def test_values_go_from_one_gpu_to_the_other_without_the_host(two: Gpu) -> None:
    sender = open_gpu()
    receiver = sender.open_peer(1)
    source, target = (Span(device.allocate(64), 0, 64) for device in (sender, receiver))
    two.log.clear()
    GpuValues(sender, source.part(0, 32), 4).send(receiver, target)
    (copied,) = two.calls("memcpyAsync")
    assert copied[:3] == [target.address, source.address, 32]
    names = [name for name, *_ in two.log]
    before, after = names[: names.index("memcpyAsync")], names[names.index("memcpyAsync") :]
    assert "wait_event" in before  # the sender's values are computed
    assert "wait_event" in after  # the sender may not write over them before
    assert "synchronize" not in names


def test_a_gpu_that_is_not_there(two: Gpu) -> None:
    with pytest.raises(DeviceError, match="cuda:2 is not there: the driver shows cuda:0 to cuda:1"):
        open_gpu(2)
    with pytest.raises(DeviceError, match="cuda:7 is not there"):
        open_gpu(1).open_peer(7)
    two.count = 1
    with pytest.raises(DeviceError, match="shows cuda:0 alone"):
        open_gpu(1)


def test_what_one_gpu_page_locks_the_other_reads(two: Gpu) -> None:
    first = open_gpu()
    assert first.open_peer(1)._page_lock is first._page_lock


KERNEL = Kernel("embed", "embed")


@pytest.mark.parametrize("grid", [(2**31 - 1, 1, 1), (1, 65_535, 65_535)])
def test_the_largest_grids(grid: tuple[int, int, int]) -> None:
    assert Launch(KERNEL, grid, 1024, (), frozenset()).grid == grid


@pytest.mark.parametrize(
    ("grid", "block"),
    [((2**31, 1, 1), 32), ((1, 65_536, 1), 32), ((1, 1, 65_536), 32), ((1, 1, 1), 1025)],
)
def test_beyond_a_gpu(grid: tuple[int, int, int], block: int) -> None:
    with pytest.raises(DeviceError, match=r"^embed: a GPU cannot launch .*; lower -b$"):
        Launch(KERNEL, grid, block, (), frozenset())
