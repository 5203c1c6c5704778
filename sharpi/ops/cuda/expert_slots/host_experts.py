"""HostExperts: the experts that the GPU has not, computed by the native engine meanwhile."""

import ctypes
from collections import deque
from collections.abc import Iterable
from ctypes import c_int, c_void_p
from functools import cache

import numpy as np

from sharpi.errors import DeviceError, SharpiError
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.library import ThreadPool, load_library
from sharpi.ops.cpu.program import Program, ProgramLimits
from sharpi.ops.cpu.stacked_matrix_params import piece_params
from sharpi.ops.cuda.expert_slots.mailbox import HostView
from sharpi.ops.interface import Activation, ExpertSource, ExpertWeights

_PATIENCE_MS = 20_000  # a GPU that has not asked by then will not ask any more


class HostExperts:
    """One program a layer; requests of the GPU are answered in the order that was announced.

    Every item is a row of its own with one expert and the weight 1, so that its values come back
    unsummed: the GPU adds them in the order that it always has. `source` brings experts that are
    not in memory, None stands for the mapped file.
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
        self._places: dict[int, int] = {}  # of layers, among those that were added
        self._asking: deque[int] = deque()
        self._library = _library()
        self._handle = self._library.sharpi_misses_create(
            self._pool.handle,
            *(array.ctypes.data for array in mailbox[:4]),
            num_threads,
            _PATIENCE_MS,
        )
        if not self._handle:
            raise SharpiError("not enough memory for the CPU's part of the experts")

    def add(self, expert_weights: ExpertWeights, activation: Activation) -> None:
        """A layer that the GPU may ask for."""
        program = Program(self._limits, np.zeros(0, np.uint8), [])
        program.append(OpKind.EXPERTS, self._params(expert_weights, activation, program))
        program.seal_scratch(within=self._programs)
        self._places[expert_weights.layer or 0] = len(self._programs)
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
            host.rows.ctypes.data, host.experts.ctypes.data, host.weights.ctypes.data, None,
            host.values.ctypes.data,
            *(piece_params(expert_weights, i, self._source, program.keep) for i in range(3)),
            expert_weights.up.num_experts, 1, activation,
            self._limits.precision_code, 1.0, Rows.TOKENS,
            None if self._source is None else self._source.handle, expert_weights.layer or 0,
            expert_weights.weighs_input,
        )  # fmt: skip

    def begin(self, layers: Iterable[int]) -> None:
        """The GPU is going to ask for these layers, in this order."""
        self._asking = deque(self._places[layer] for layer in layers)

    def serve_next(self) -> None:
        """Answers the next request; raises DeviceError where there is none."""
        self._serve(self._asking.popleft(), 1)

    def serve_rest(self) -> None:
        """Answers the requests that have not been answered since `begin`."""
        while self._asking:
            first, count = self._asking.popleft(), 1
            while self._asking and self._asking[0] == first + count:
                self._asking.popleft()
                count += 1
            self._serve(first, count)

    def _serve(self, first: int, count: int) -> None:
        """Neighbours among the layers that were added."""
        result = self._library.sharpi_misses_serve(self._handle, first, count)
        if result == -1:
            raise DeviceError("the GPU does not answer any more; see `sharpi doctor`")
        if result:
            raise SharpiError("not enough memory for the CPU's part of the experts")

    def close(self) -> None:
        """Ends the threads; a second call does nothing."""
        if self._handle is not None:
            self._library.sharpi_misses_destroy(self._handle)
            self._handle = None
            self._pool.close()
        for program in self._programs:
            program.close()


@cache
def _library() -> ctypes.CDLL:
    """The native library with the functions of kernels/cpu/runtime/miss_server.cpp typed."""
    library = load_library()
    words = [c_void_p] * 4
    signatures = {
        "sharpi_misses_create": (c_void_p, [c_void_p, *words, c_int, c_int]),
        "sharpi_misses_destroy": (None, [c_void_p]),
        "sharpi_misses_add": (c_int, [c_void_p, c_void_p, c_void_p, c_int]),
        "sharpi_misses_serve": (c_int, [c_void_p, c_int, c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
