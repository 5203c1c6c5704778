"""GpuConnection: sends hidden states from one rank's GPU to the next rank's GPU, over NCCL.

The hosts only exchange a message that announces a transfer; they neither see the hidden states nor
wait for them. Transfers and kernels run in the order in which they were queued.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from sharpi.cluster.wire_count import WireCount
from sharpi.device.device import Device
from sharpi.device.launch import Span
from sharpi.errors import ClusterError
from sharpi.ops.cuda.replay.gpu_values import GpuValues, StepValues
from sharpi.system.closing import Closing
from sharpi.system.native_threads import start_native

_FLOAT_BYTES = 4
_TAG = 0


class GpuConnection(Closing):
    """One end of a connection between two ranks' GPUs, which either sends or receives.

    `pair` is the NCCL communicator. `on_error` turns an error of the communicator into the
    ClusterError to raise. The sending end has `num_buffers` buffers of `num_bytes`, so that as many
    transfers may be in progress while the GPU computes; the receiving end needs one.
    """

    def __init__(
        self,
        device: Device,
        pair: Any,
        num_bytes: int,
        num_buffers: int,
        count: WireCount,
        on_error: Callable[[Exception], ClusterError],
        *,
        sends: bool,
    ) -> None:
        self._on_error = on_error
        self.device, self._pair, self._count = device, pair, count
        self._other = 1 if sends else 0
        memory = device.allocate(num_bytes * num_buffers)
        self._buffers = [Span(memory, i * num_bytes, num_bytes) for i in range(num_buffers)]
        self._works: list[Any] = [None] * num_buffers
        self._turn = 0

    def send(self, values: StepValues) -> None:
        """Queues a transfer of hidden states that the device computes, and returns at once.

        The values are copied first, so the device's next step may overwrite them. Raises
        ClusterError if the other rank is lost.
        """
        turn = self._turn = (self._turn + 1) % len(self._buffers)
        device, work = self.device, self._works[turn]
        num_bytes = values.span.num_bytes if isinstance(values, GpuValues) else values.nbytes
        buffer = self._buffers[turn].part(0, num_bytes)
        with self._translated(), device.torch_stream():
            if work is not None:
                work.wait()  # holds back the device's work, not the host
            if isinstance(values, GpuValues):
                device.copy(buffer, values.span)
            else:
                device.upload(buffer, values)
            tensor = device.tensor(buffer)
            self._works[turn] = self._pair.send([tensor], self._other, _TAG)
        self._count.num_sent += 1
        self._count.sent_bytes += num_bytes

    def receive(self, rows: int, width: int) -> GpuValues:
        """Returns the next hidden states (rows, width); kernels queued later wait for them.

        They stay valid until the next call. Raises ClusterError for more values than a step can
        have, and if the other rank is lost.
        """
        buffer, num_bytes = self._buffers[0], rows * width * _FLOAT_BYTES
        if not 0 <= num_bytes <= buffer.num_bytes:
            raise ClusterError(
                f"{num_bytes} bytes of values were announced, more than a step can have"
            )
        span = buffer.part(0, num_bytes)
        with self._translated(), self.device.torch_stream():
            self._pair.recv([self.device.tensor(span)], self._other, _TAG).wait()
        self._count.num_received += 1
        self._count.received_bytes += span.num_bytes
        return GpuValues(self.device, span, width)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever torch, CUDA or NCCL raises
            raise self._on_error(error) from error

    def abort(self) -> None:
        """Ends all transfers, also those for which the device waits; any thread may call it.

        What the device computes from values that have not arrived is invalid.
        """
        start_native(threading.Thread(target=self._abort, name="abort", daemon=True))

    def _abort(self) -> None:
        with suppress(Exception):  # it has ended, or is being opened
            self._pair.abort()

    def close(self) -> None:
        """Waits for the device's work, and frees the communicator."""
        with suppress(Exception):  # a GPU that has failed
            self.device.synchronise()
        self._abort()
