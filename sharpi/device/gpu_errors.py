"""One-line faults of a GPU: exceptions of CuPy, the driver and torch, or a GPU that is too old."""

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from sharpi.errors import DeviceError, SharpiError
from sharpi.units import format_bytes

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation and CUDA_ERROR_OUT_OF_MEMORY
_MOST_CHARACTERS = 300
_LEAST_CAPABILITY = (7, 5)


class KernelError(DeviceError):
    """NVRTC cannot compile a kernel; `file` is the name of its .cu file, if known."""

    file = ""


class GpuErrors:
    """A context manager for calls of CuPy, the driver and torch, whose errors become DeviceErrors.

    It first calls `select`, which selects the GPU for this thread. It translates RuntimeError,
    MemoryError, ImportError, OSError and the compiler errors of CuPy. Other errors, such as
    ValueError, pass unchanged.
    """

    def __init__(
        self, cupy: Any, free_bytes: Callable[[], int], select: Callable[[], None]
    ) -> None:
        self._free_bytes, self._select = free_bytes, select
        compiler = getattr(cupy.cuda, "compiler", None)
        refused = getattr(compiler, "CompileException", None)
        self._of_compiler: tuple[type[BaseException], ...] = () if refused is None else (refused,)
        self._kinds = (RuntimeError, MemoryError, ImportError, OSError, *self._of_compiler)

    def __enter__(self) -> "GpuErrors":
        self._select()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, self._kinds) and not isinstance(error, SharpiError):
            raise self.translated(error) from error

    def translated(self, error: BaseException, num_bytes: int | None = None) -> DeviceError:
        """Returns `error` as a DeviceError of one line; `num_bytes`: of a failed allocation."""
        if isinstance(error, self._of_compiler):
            return KernelError(f"a GPU kernel cannot be compiled: {_one_line(error)}")
        if is_out_of_memory(error):
            wanted = "what a step needs" if num_bytes is None else format_bytes(num_bytes)
            return DeviceError(
                f"the GPU has {self._free} left, not {wanted}; lower -c, -b or --vram"
            )
        return DeviceError(f"the GPU failed: {_one_line(error)}")

    @property
    def _free(self) -> str:
        with suppress(Exception):  # a GPU that has failed does not answer this either
            return format_bytes(self._free_bytes())
        return "too little memory"


def is_out_of_memory(error: BaseException) -> bool:
    """Returns True for an error of CuPy, the driver or torch that tells of too little memory."""
    is_named = type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError)
    return is_named or getattr(error, "status", None) == _OUT_OF_MEMORY


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def check_gpu(cupy: Any, index: int) -> None:
    """Raises DeviceError if there is no GPU of this index, or if it is too old for the kernels."""
    count = int(cupy.cuda.runtime.getDeviceCount())
    if index >= count:
        last = "cuda:0 alone" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise DeviceError(f"cuda:{index} is not there: the driver shows {last}")
    text = str(cupy.cuda.Device(index).compute_capability)
    if (int(text[:-1]), int(text[-1])) < _LEAST_CAPABILITY:
        least = ".".join(map(str, _LEAST_CAPABILITY))
        raise DeviceError(
            f"the GPU has compute capability {text[:-1]}.{text[-1]}; sharpi needs {least}"
        )
