"""Several GPUs: selects one for a thread's CUDA calls, and lets them copy from each other."""

import threading
from contextlib import suppress
from typing import Any

from sharpi.errors import DeviceError

_LEAST_CAPABILITY = (7, 5)


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
    """Lets two GPUs copy directly from each other, if the driver says that they can.

    Otherwise a copy passes through RAM.
    """
    runtime = cupy.cuda.runtime
    for gpu, peer in ((first, second), (second, first)):
        with suppress(runtime.CUDARuntimeError):  # already enabled by another library
            if runtime.deviceCanAccessPeer(gpu, peer):
                with cupy.cuda.Device(gpu):
                    runtime.deviceEnablePeerAccess(peer)


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
