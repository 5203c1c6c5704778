"""GpuKernels: the kernels of one GPU, which NVRTC compiles through CuPy, and their launches."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from sharpi.device.dependent_launch import (
    CAPABILITY,
    DependentLaunchError,
    launch_dependent,
)
from sharpi.device.gpu_errors import GpuErrors
from sharpi.device.kernel_source import kernel_source
from sharpi.device.launch import Argument, Kernel, Launch, Span
from sharpi.device.nvrtc import own_options
from sharpi.errors import DeviceError

# A kernel has to set an attribute for more than 48 KB with its own shared memory, of which none has
# more than 46 KB.
_PLAIN_SHARED_BYTES = 2 << 10
_COMPILERS = 16  # threads; NVRTC compiles without Python's lock


class _Module(NamedTuple):
    """A compilation by NVRTC: a file's entry points for one quant type and size."""

    file: str
    quant_type: str | None
    size: int | None


class GpuKernels:
    """Compiles a kernel's module at its first launch, and launches on the current stream.

    The caller sets `is_capturing` while it captures a graph. `has_early_launches` is true on GPUs
    from sm_90 on, until the driver refuses a programmatic dependent launch.
    """

    def __init__(self, cupy: Any, index: int, errors: GpuErrors, capability: int) -> None:
        self._cupy, self._index, self._errors = cupy, index, errors
        self.is_capturing = False
        self.has_early_launches = capability >= CAPABILITY
        self._shared_bytes: dict[Kernel, int] = {}  # that launches of a kernel may have so far
        self._function = cache(self._compile)
        self._module = cache(self._compile_module)

    def launch(self, launch: Launch, stream: int) -> None:
        """Launches a kernel on the current stream, whose handle is `stream`."""
        arguments = tuple(map(_as_passed, launch.arguments))
        function = self._function(launch.kernel)
        self._allow_shared(function, launch)
        if not (launch.is_dependent and self._launched_early(function, launch, arguments, stream)):
            function(launch.grid, (launch.block,), arguments, shared_mem=launch.shared_bytes)

    def _allow_shared(self, function: Any, launch: Launch) -> None:
        """Raises a kernel's limit of dynamic shared memory if the launch needs more.

        The limit is never lowered, because captured graphs may need it.
        """
        if launch.shared_bytes > self._shared_bytes.get(launch.kernel, _PLAIN_SHARED_BYTES):
            function.max_dynamic_shared_size_bytes = launch.shared_bytes
            self._shared_bytes[launch.kernel] = launch.shared_bytes

    def _launched_early(
        self, function: Any, launch: Launch, arguments: Sequence[np.generic], stream: int
    ) -> bool:
        """Launches a kernel as a programmatic dependent launch; returns False if that fails.

        During a graph capture it raises DependentLaunchError instead, since a failure ends the
        capture.
        """
        if not self.has_early_launches:
            return False
        size = launch.shared_bytes
        try:
            address = function.kernel.ptr
            launch_dependent(address, launch.grid, launch.block, size, stream, arguments)
        except (AttributeError, DeviceError) as error:
            self.has_early_launches = False
            if self.is_capturing:
                raise DependentLaunchError(str(error)) from error
            return False
        return True

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Compiles and loads kernels in parallel."""
        modules = set(map(_module_of, kernels))
        with ThreadPoolExecutor(_COMPILERS, "compile") as threads:
            for done in [threads.submit(self._prepare, each) for each in sorted(modules, key=str)]:
                done.result()

    def _prepare(self, module: _Module) -> None:
        """Compiles and loads one module; CuPy keeps what it compiled on disk."""
        with self._errors, self._cupy.cuda.Device(self._index):
            self._module(module).compile()

    def _compile(self, kernel: Kernel) -> Any:
        return self._module(_module_of(kernel)).get_function(kernel.entry)

    def _compile_module(self, module: _Module) -> Any:
        options = own_options(module.quant_type, module.size)
        return self._cupy.RawModule(code=kernel_source(module.file), options=options)


def _module_of(kernel: Kernel) -> _Module:
    return _Module(kernel.file, kernel.quant_type, kernel.size)


def _as_passed(argument: Argument) -> np.generic:
    """Returns the argument as CuPy's launches expect it: a uint64 address, or the scalar itself."""
    if argument is None:
        return np.uint64(0)
    return np.uint64(argument.address) if isinstance(argument, Span) else argument
