"""HostExperts: computes missed experts with the native CPU operations, while the GPU works.

A native thread handles the GPU's requests. It is woken before the step's kernels are launched,
because a launch can block until the GPU, which may wait for this thread, has made progress.
"""

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_void_p
from functools import cache

import numpy as np

from sharpi.errors import DeviceError, SharpiError
from sharpi.native import declare
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.library import load_library
from sharpi.ops.cpu.program import Program, ProgramLimits
from sharpi.ops.cpu.stacked_matrix_params import piece_params
from sharpi.ops.cpu.thread_pool import ThreadPool
from sharpi.ops.cuda.expert_slots.mailbox import HostView
from sharpi.ops.interface import Activation, ExpertSource, ExpertWeights

_TIMEOUT_MS = 20_000  # the GPU counts as lost after so long without a request


class HostExperts:
    """Computes the experts that the GPU requests, with one CPU program per layer.

    Each row of a request has an input and one expert. The results are returned per row, and the GPU
    sums them in its usual order. `source` loads experts that are not in memory; without it, all
    experts are read from the mapped file.
    """

    def __init__(
        self,
        mailbox: HostView,
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
            *(array.ctypes.data for array in mailbox[:5]),
            num_threads,
            _TIMEOUT_MS,
        )
        if not self._handle:
            raise SharpiError("not enough memory for the CPU's part of the experts")

    def add(self, expert_weights: ExpertWeights, activation: Activation) -> None:
        """Adds a layer whose experts the GPU may request.

        Raises SharpiError if there is too little memory for its buffers.
        """
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
        host = self._mailbox
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
        """Waits until the next request of the step has been computed.

        Raises DeviceError if the GPU sends no request within the time limit.
        """
        self._num_replies += 1
        self._check(self._library.sharpi_misses_await(self._handle, self._num_replies))

    def end(self) -> None:
        """Waits until all requests of the step have been computed.

        Raises DeviceError as `await_next` does.
        """
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
