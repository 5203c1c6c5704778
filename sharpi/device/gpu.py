"""Opens a GPU, or raises a one-line error that names what is missing."""

import importlib
from typing import TYPE_CHECKING, Any

from sharpi.device.peers import check_gpu
from sharpi.device.torch_import import TorchImport
from sharpi.errors import DeviceError, MissingPackageError
from sharpi.resources import install_command

if TYPE_CHECKING:
    from sharpi.device.cuda import CudaDevice

_LEAST_CUDA = 12


def open_gpu(index: int = 0) -> "CudaDevice":
    """Opens a GPU by CUDA's index.

    Raises DeviceError, which names what is missing or too old: a Python package, the driver, or the
    GPU itself.
    """
    cupy = _package("cupy")
    _check_driver(cupy)
    check_gpu(cupy, index)
    torch = TorchImport(_extra(cupy))  # imported only if there is a GPU
    from sharpi.device.cuda import CudaDevice  # imports much that only a GPU needs

    return CudaDevice(cupy, torch.module, index)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{name} is missing or broken ({error}); {install_command('cuda13')}, or"
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
