"""GraphCapture: records the calls of a step as a CUDA graph, which one call then launches."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from sharpi.device.dependent_launch import DependentLaunchError
from sharpi.device.device import Work
from sharpi.device.gpu_errors import GpuErrors
from sharpi.device.gpu_kernels import GpuKernels
from sharpi.device.stream_words import StreamWordError
from sharpi.errors import DeviceError


class GraphCapture:
    """Captures calls on a stream; `stream` selects the GPU, and returns the stream."""

    def __init__(self, errors: GpuErrors, kernels: GpuKernels, stream: Callable[[], Any]) -> None:
        self._errors, self._kernels, self._stream = errors, kernels, stream

    def record(self, work: Sequence[Work]) -> Work:
        """Captures the calls, and returns a function that launches the graph.

        The kernels must have run before, because none may be loaded during a capture. If the driver
        cannot capture stream memory operations, the returned function repeats the calls one by one.
        """
        try:
            return self._captured(work)
        except DependentLaunchError:
            return self.record(work)  # again, without early launches
        except StreamWordError:
            return partial(_do_all, tuple(work))
        except DeviceError:
            if not self._kernels.has_early_launches:
                raise
            self._kernels.has_early_launches = False  # the driver may refuse a graph with them
            return self.record(work)

    def _captured(self, work: Sequence[Work]) -> Work:
        stream = self._stream()
        with self._errors:
            stream.begin_capture()
        self._kernels.is_capturing = True
        try:
            _do_all(work)
        except BaseException:
            with suppress(RuntimeError):
                stream.end_capture()  # the capture is no longer valid
            raise
        finally:
            self._kernels.is_capturing = False
        with self._errors:
            graph = stream.end_capture()
        return partial(self._replay, graph)

    def _replay(self, graph: Any) -> None:
        stream = self._stream()
        with self._errors:
            graph.launch(stream)


def _do_all(work: Sequence[Work]) -> None:
    for each in work:
        each()
