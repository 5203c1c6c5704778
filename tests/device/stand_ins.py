"""Modules that stand in for CuPy and torch: they record their arguments and compute nothing."""

import ctypes
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

# Of torch's attention only the operations are used: this module brings its compiler along.
_NOT_FOR_USE = "torch.nn.attention.bias"
OUT_OF_MEMORY, OTHER_ERROR = 2, 719


class CudaRuntimeError(RuntimeError):
    """Stands in for CuPy's error of the same name; the status is a CUDA error code."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


@dataclass
class Gpu:
    """The machine that the stand-ins show; a status makes the call of that name fail."""

    driver: int = 13000
    runtime: int = 13000
    count: int = 1
    capability: str = "90"
    fused: tuple[str, ...] = ("flash", "efficient")  # torch's attention kernels
    torch_sees_it: bool = True
    peers: bool = True  # GPUs reach each other's memory
    free: int = 5 << 30
    failing: dict[str, int] = field(default_factory=dict)
    log: list[tuple[Any, ...]] = field(default_factory=list)
    stream: Any = None

    def called(self, name: str, *values: Any) -> None:
        """Records a call, or makes it fail."""
        if name in self.failing:
            raise CudaRuntimeError(self.failing[name])
        self.log.append((name, *values))

    def calls(self, name: str) -> list[list[Any]]:
        """The arguments of all calls of a name."""
        return [values for called, *values in self.log if called == name]


class Stream:
    """A stream that is current within a `with`."""

    ptr = 0x57

    def __init__(self, gpu: Gpu, non_blocking: bool) -> None:
        self.gpu, self.current = gpu, False
        gpu.called("Stream", non_blocking)

    def __enter__(self) -> "Stream":
        self.current = True
        return self

    def __exit__(self, *_: object) -> None:
        self.current = False

    def synchronize(self) -> None:
        self.gpu.called("synchronize")

    def wait_event(self, event: Any) -> None:
        self.gpu.called("wait_event", event)

    def begin_capture(self) -> None:
        self.gpu.called("begin_capture")

    def end_capture(self) -> Any:
        self.gpu.called("end_capture")
        return SimpleNamespace(launch=lambda stream: self.gpu.called("replay", stream))


class OutOfMemoryError(RuntimeError):
    """Stands in for torch's error of the same name."""


class CompileException(Exception):
    """Stands in for the error of CuPy's compiler, whose text has the whole log."""


class Function:
    """A kernel; knows whether the stream was current when it was started."""

    def __init__(self, gpu: Gpu, module: "Module", entry: str) -> None:
        self.gpu, self.module, self.entry = gpu, module, entry
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(
        self, grid: Any, block: Any, arguments: Any, *, shared_mem: int, **others: Any
    ) -> None:
        assert not others
        assert self.gpu.stream.current
        self.gpu.called("launch", self, grid, block, arguments, shared_mem)


class Module:
    """Stands in for a RawModule."""

    def __init__(self, gpu: Gpu, code: str, options: tuple[str, ...]) -> None:
        self.gpu, self.code, self.options = gpu, code, options
        gpu.called("compile", self)

    def compile(self) -> None:
        self.gpu.called("compiled", self)

    def get_function(self, entry: str) -> Function:
        return Function(self.gpu, self, entry)


class Device(nullcontext[None]):
    """One GPU, current within a `with`."""

    def __init__(self, gpu: Gpu, index: int) -> None:
        super().__init__()
        self.gpu, self.index, self.compute_capability = gpu, index, gpu.capability

    def use(self) -> None:
        self.gpu.called("use", self.index)


def _allocation(gpu: Gpu, name: str, size: int, *flags: int) -> Any:
    gpu.called(name, size, *flags)
    if name == "PinnedMemory":
        room = ctypes.create_string_buffer(size)
        return SimpleNamespace(ptr=ctypes.addressof(room), room=room)
    return SimpleNamespace(ptr=0x7000)


def cupy_module(gpu: Gpu) -> ModuleType:
    """Returns the stand-in for CuPy."""

    def count() -> int:
        gpu.called("getDeviceCount")
        return gpu.count

    def make_stream(non_blocking: bool) -> Stream:
        gpu.stream = Stream(gpu, non_blocking)
        return gpu.stream

    runtime = SimpleNamespace(
        CUDARuntimeError=CudaRuntimeError,
        driverGetVersion=lambda: gpu.driver,
        runtimeGetVersion=lambda: gpu.runtime,
        getDeviceCount=count,
        getDeviceProperties=lambda index: {"name": b"Some GPU"},
        deviceCanAccessPeer=lambda own, other: int(gpu.peers),
        deviceEnablePeerAccess=lambda other: gpu.called("deviceEnablePeerAccess", other),
        memGetInfo=lambda: (gpu.free, 2 * gpu.free),
        memcpyAsync=lambda *values: gpu.called("memcpyAsync", *values),
        hostAllocMapped=2,
        hostAllocPortable=1,
    )
    module = ModuleType("cupy")
    module.RawModule = lambda code, options: Module(gpu, code, options)
    module.cuda = SimpleNamespace(
        compiler=SimpleNamespace(CompileException=CompileException),
        runtime=runtime,
        Device=lambda index: Device(gpu, index),
        Stream=make_stream,
        Event=lambda disable_timing: SimpleNamespace(
            record=lambda stream: None, synchronize=lambda: None
        ),
        Memory=lambda size: _allocation(gpu, "Memory", size),
        PinnedMemory=lambda size, flags: _allocation(gpu, "PinnedMemory", size, flags),
    )
    return module


def torch_module(gpu: Gpu) -> ModuleType:
    """Returns the stand-in for torch."""
    module = ModuleType("torch")
    module.__spec__ = ModuleSpec("torch", None)
    module.__version__ = "9.9"
    module.cuda = SimpleNamespace(
        is_available=lambda: gpu.torch_sees_it,
        stream=lambda stream: nullcontext(),
        ExternalStream=lambda pointer, device: SimpleNamespace(pointer=pointer, device=device),
        current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
        empty_cache=lambda: gpu.failing.pop("Memory", None),
    )
    module.ops = SimpleNamespace(
        aten=SimpleNamespace(
            _scaled_dot_product_flash_attention=lambda *_, **__: _called(gpu, "flash"),
            _efficient_attention_forward=lambda *_, **__: _called(gpu, "efficient"),
        )
    )
    module.zeros = module.ones = lambda shape, **_: Tensor(gpu)
    module.float16 = "f16"
    module.empty = lambda shape, **_: shape
    module.as_tensor = lambda array, **_: Tensor(gpu)
    module.mm = lambda *_, out=None: gpu.called("mm", out) or Tensor(gpu)
    module.bmm = lambda *_, out: gpu.called("bmm", out)
    module.backends = SimpleNamespace(
        cuda=SimpleNamespace(
            matmul=SimpleNamespace(allow_fp16_reduced_precision_reduction=True),
            SDPAParams=lambda *values: values,
            can_use_flash_attention=lambda params: "flash" in gpu.fused,
            can_use_efficient_attention=lambda params: "efficient" in gpu.fused,
        )
    )
    return module


def _called(gpu: Gpu, name: str) -> "list[Tensor]":
    gpu.called(name)
    return [Tensor(gpu)]


class Tensor:
    """A tensor that can only be transposed and summed."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    def t(self) -> "Tensor":
        return self

    def transpose(self, one: int, other: int) -> "Tensor":
        return self

    def sum(self) -> "Tensor":
        return self

    def item(self) -> float:
        return 0.0


def install(monkeypatch: pytest.MonkeyPatch, gpu: Gpu, *missing: str) -> None:
    """Puts the stand-ins where imports look; `missing` packages cannot be imported."""
    modules: dict[str, ModuleType | None] = {
        "cupy": cupy_module(gpu),
        "torch": torch_module(gpu),
        _NOT_FOR_USE: None,
    }
    modules |= dict.fromkeys(missing)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
