"""HostExperts: computes missed experts with the native CPU operations, while the GPU works.

A native thread handles the GPU's requests. It is woken before the step's kernels are launched,
because a launch can block until the GPU, which may wait for this thread, has made progress.
"""

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_int, c_void_p
from functools import cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sharpi.device.device import Device
from sharpi.device.launch import Launch, Span
from sharpi.errors import DeviceError, SharpiError
from sharpi.native import declare
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.library import ThreadPool, load_library
from sharpi.ops.cpu.program import Program, ProgramLimits
from sharpi.ops.cpu.recorder_experts import piece_params
from sharpi.ops.cuda.launchers.experts.experts import Items, RoutedSum
from sharpi.ops.cuda.launchers.experts.host_items import (
    PREDICTED_WORDS,
    HostItems,
    Wait,
    begin_wait,
    host_items,
    host_predictions,
    merge,
)
from sharpi.ops.cuda.recorded import AwaitWord, Call, WriteWord
from sharpi.ops.interface import Activation, ExpertSource, ExpertWeights

_LINE = 64  # bytes of a cache line; no two arrays share one
_WORD = 4

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class HostView(NamedTuple):
    """The arrays of a mailbox in the host's memory; an item is a token's input with an expert."""

    request: Ints  # (1,)
    reply: Ints  # (1,)
    num_items: Ints  # (1,)
    predicted: Ints  # (2 + 32,): the number of predicted experts, their layer, then their ids
    experts: Ints  # (items,)
    rows: Floats  # (items, columns), the inputs
    weights: Floats  # (items,)
    values: Floats  # (items, rows), the results


class Mailbox:
    """Page-locked memory for the GPU's requests of missed experts, and for the host's results.

    A request has at most `max_items` items, each with `columns` inputs and `rows` results. The GPU
    sets `request` to 1 after it has written the items. The host sets `reply` to 1 after it has
    written the results. The reader of either word sets it back to 0.
    """

    def __init__(self, device: Device, max_items: int, columns: int, rows: int) -> None:
        inputs, results = max_items * columns, max_items * rows
        counts = (1, 1, 1, PREDICTED_WORDS, max_items, inputs, max_items, results)
        *starts, size = accumulate(
            (-(-count * _WORD // _LINE) * _LINE for count in counts), initial=0
        )
        memory, host = device.mapped(size)
        places = [(at, count * _WORD) for at, count in zip(starts, counts, strict=True)]
        self.request, self.reply, num_items, self.predicted, *items, self.values = (
            Span(memory, *place) for place in places
        )
        self.host_items = HostItems(num_items, *items)
        parts = [host[at : at + num_bytes] for at, num_bytes in places]
        floats, weights, values = (part.view(np.float32) for part in parts[5:])
        words = [part.view(np.int32) for part in parts[:5]]
        self.host = HostView(
            words[0], words[1], words[2], words[3], words[4],
            floats.reshape(max_items, columns), weights, values.reshape(max_items, rows),
        )  # fmt: skip
        for word in words[:4]:
            word[:] = 0


_TIMEOUT_MS = 20_000  # the GPU counts as lost after so long without a request


class HostExperts:
    """Computes the experts that the GPU requests, with one CPU program per layer.

    Each row of a request has an input and one expert. The results are returned per row, and the GPU
    sums them in its usual order. `source` loads experts that are not in memory; without it, all
    experts are read from the mapped file.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        limits: ProgramLimits,
        num_threads: int,
        source: ExpertSource | None = None,
    ) -> None:
        self._mailbox, self._limits, self._source = mailbox, limits, source
        self._pool = ThreadPool(num_threads)
        self._programs: list[Program] = []
        self._program_indices: dict[int, int] = {}  # layer -> index of its program
        self._num_requests = self._num_replies = 0  # of the current step
        self._library = _library()
        self._handle = self._library.sharpi_misses_create(
            self._pool.handle,
            *(array.ctypes.data for array in mailbox.host[:5]),
            num_threads,
            _TIMEOUT_MS,
        )
        if not self._handle:
            raise SharpiError("not enough memory for the CPU's part of the experts")

    def add(self, expert_weights: ExpertWeights, activation: Activation) -> None:
        """Adds a layer whose experts the GPU may request; raises SharpiError without memory."""
        program = Program(self._limits, np.zeros(0, np.uint8), [])
        program.append(OpKind.EXPERTS, self._params(expert_weights, activation, program))
        program.seal_scratch(within=self._programs)
        self._program_indices[expert_weights.layer or 0] = len(self._programs)
        self._programs.append(program)
        feed = None if self._source is None else self._source.handle
        if self._library.sharpi_misses_add(
            self._handle, program.handle, feed, expert_weights.layer or 0
        ):
            raise SharpiError("not enough memory for the CPU's part of the experts")

    def _params(
        self, expert_weights: ExpertWeights, activation: Activation, program: Program
    ) -> abi.ExpertsParams:
        host = self._mailbox.host
        return abi.ExpertsParams(
            x=host.rows.ctypes.data, ids=host.experts.ctypes.data,
            weights=host.weights.ctypes.data, out=host.values.ctypes.data,
            **piece_params(expert_weights, self._source, program.keep),
            num_experts=expert_weights.up.num_experts, k=1, activation=activation,
            precision=self._limits.precision_code, scale=1.0, rows=Rows.TOKENS,
            feed=None if self._source is None else self._source.handle,
            layer=expert_weights.layer or 0, weighs_input=expert_weights.weighs_input,
        )  # fmt: skip

    def begin(self, layers: Sequence[int]) -> None:
        """Starts to wait for a step's requests: one for each of these layers, in this order."""
        indices = np.array([self._program_indices[layer] for layer in layers], np.int32)
        self._num_requests, self._num_replies = len(indices), 0
        self._check(
            self._library.sharpi_misses_begin(self._handle, indices.ctypes.data, len(indices))
        )

    def await_next(self) -> None:
        """Waits until the next request is computed; raises DeviceError if none comes in time."""
        self._num_replies += 1
        self._check(self._library.sharpi_misses_await(self._handle, self._num_replies))

    def end(self) -> None:
        """Waits until all requests of the step are computed; raises DeviceError as `await_next`."""
        self._check(self._library.sharpi_misses_await(self._handle, self._num_requests))

    def cancel(self) -> None:
        """Stops waiting for the step's remaining requests, because the step was aborted."""
        self._library.sharpi_misses_cancel(self._handle)

    def _check(self, result: int) -> None:
        if result == -1:
            raise DeviceError("the GPU does not respond; see `sharpi doctor`")
        if result:
            raise SharpiError("not enough memory for the CPU's part of the experts")

    def close(self) -> None:
        """Stops the threads; a second call does nothing."""
        if self._handle is not None:
            self._library.sharpi_misses_destroy(self._handle)
            self._handle = None
            self._pool.close()
        for program in self._programs:
            program.close()

    def request(
        self,
        items: Items,
        addresses: Span,
        x: Span,
        input_weights: Span | None,
        host_rows: Span,
        *,
        columns: int,
    ) -> Iterator[Call]:
        """Yields the calls that send a layer's missed experts and their inputs to the host.

        They are the launch of `host_items`, and the write of the mailbox's word `request`.
        """
        for_host = self._mailbox.host_items
        given = (items, addresses, x, input_weights, host_rows, for_host)
        yield host_items(*given, columns=columns)
        yield WriteWord(self._mailbox.request, 1)

    def predict(self, items: Items, addresses: Span, *, layer: int) -> Launch:
        """Returns the launch that writes the experts predicted for a layer to the mailbox."""
        return host_predictions(items, addresses, self._mailbox.predicted, layer=layer)

    def merge(
        self, values: Span, host_rows: Span, total: RoutedSum, *, layer: int, wait: Wait
    ) -> Iterator[Call]:
        """Yields the calls that wait for the host's results, and sum them with the GPU's.

        The waiting time is added to `wait`.
        """
        yield begin_wait(wait)
        yield AwaitWord(self._mailbox.reply, 1, self.await_next, layer)
        yield WriteWord(self._mailbox.reply, 0)
        yield merge(values, self._mailbox.values, host_rows, total, wait)


@cache
def _library() -> ctypes.CDLL:
    """Loads the native library and types the functions of kernels/cpu/runtime/miss_server.cpp."""
    library = load_library()
    words = [c_void_p] * 5
    signatures = {
        "sharpi_misses_create": (c_void_p, [c_void_p, *words, c_int, c_int]),
        "sharpi_misses_destroy": (None, [c_void_p]),
        "sharpi_misses_add": (c_int, [c_void_p, c_void_p, c_void_p, c_int]),
        "sharpi_misses_begin": (c_int, [c_void_p, c_void_p, c_int]),
        "sharpi_misses_await": (c_int, [c_void_p, c_int]),
        "sharpi_misses_cancel": (None, [c_void_p]),
    }
    return declare(library, signatures)
