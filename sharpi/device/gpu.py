"""Opens a GPU, or raises a one-line error that names what is missing."""

import importlib
import importlib.util
import os
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sharpi.device.gpu_errors import check_gpu
from sharpi.errors import DeviceError, MissingPackageError
from sharpi.resources import install_command
from sharpi.system.process import start_native

if TYPE_CHECKING:
    from sharpi.device.cuda import CudaDevice


_CUDA = re.compile(r"^cuda\b.*=\s*['\"](\d+)", re.MULTILINE)  # in torch/version.py
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)


class TorchImport:
    """Starts importing torch on a thread when it is created, if it is there and built with CUDA.

    `extra` is the install extra of sharpi that provides torch on this machine.
    """

    def __init__(self, extra: str) -> None:
        self._extra = extra
        self._module: Any = None
        self._error: Exception | None = _fault(extra)
        self._thread = threading.Thread(target=self._import, name="import torch", daemon=True)
        if self._error is None:
            start_native(self._thread)

    def _import(self) -> None:
        # Else it keeps a segment for each size of the keys that it gathers, which grow with a text.
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
        try:
            self._module = importlib.import_module("torch")
        except Exception as error:  # a broken package may raise anything
            self._error = error

    def module(self) -> Any:
        """Returns torch, once imported; raises DeviceError without a GPU, MissingPackageError."""
        if self._thread.ident is not None:
            self._thread.join()
        if isinstance(self._error, DeviceError):
            raise self._error
        if self._error is not None:
            raise MissingPackageError(
                f"torch is broken ({self._error}); {install_command(self._extra)}"
            ) from self._error
        if not self._module.cuda.is_available():
            raise _no_cuda(self._module.__version__, self._extra)
        return self._module


def _fault(extra: str) -> DeviceError | None:
    """Returns what the files of torch show to be wrong, without importing it; None for nothing."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return MissingPackageError(f"torch is missing; {install_command(extra)}")
    path = None if spec.origin is None else Path(spec.origin).with_name("version.py")
    if path is None or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    if _CUDA.search(text):
        return None
    version = _VERSION.search(text)
    return _no_cuda(version[1] if version else "", extra)


def _no_cuda(version: str, extra: str) -> DeviceError:
    return DeviceError(
        f"torch {version} has no CUDA, or needs a newer driver; {install_command(extra)}"
    )


_LEAST_CUDA = 12


def open_gpu(index: int = 0) -> "CudaDevice":
    """Opens a GPU by CUDA's index.

    Raises DeviceError, which names what is missing or too old: CuPy, the driver, or the GPU itself.
    Without torch, the device has no library.
    """
    cupy = _cupy()
    _check_driver(cupy)
    from sharpi.device.cuda import CudaDevice  # imports much that only a GPU needs

    check_gpu(cupy, index)
    torch = TorchImport(_extra(cupy))  # imported only if there is a GPU
    return CudaDevice(cupy, torch.module, index)


def _cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise MissingPackageError(
            f"cupy is missing or broken ({error}); {install_command('cuda13')}, or"
            " cuda12 where the driver is older than CUDA 13"
        ) from error


def _check_driver(cupy: Any) -> None:
    runtime = cupy.cuda.runtime
    try:
        driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        count = runtime.getDeviceCount() if driver else 0
    except runtime.CUDARuntimeError as error:
        raise DeviceError(f"the NVIDIA driver does not answer ({error})") from error
    if not driver:
        raise DeviceError("there is no NVIDIA driver; see `sharpi doctor`")
    if driver // 1000 < _LEAST_CUDA or driver // 1000 < needed // 1000:
        raise DeviceError(
            f"the NVIDIA driver supports CUDA {_version(driver)}, CuPy needs {_version(needed)};"
            f" update the driver, or {install_command(f'cuda{max(_LEAST_CUDA, driver // 1000)}')}"
        )
    if not count:
        raise DeviceError("the NVIDIA driver shows no GPU; see `sharpi doctor`")


def _extra(cupy: Any) -> str:
    return f"cuda{cupy.cuda.runtime.runtimeGetVersion() // 1000}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
