"""ExpertPrograms: computes the outputs of single experts for the input rows in a request.

A rank uses it to reply to other ranks, and to its own requests after a lending rank is lost. The
bits of the results are the same in both cases.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from sharpi.errors import ClusterError
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.program import Program, ProgramLimits
from sharpi.ops.cpu.stacked_matrix_params import piece_params
from sharpi.ops.cpu.thread_pool import ThreadPool
from sharpi.ops.interface import Activation, ExpertWeights
from sharpi.tiers.settings import EngineSettings

MAX_TOKENS = 16  # a larger step reads its experts, since each serves many tokens
WARM_UP = b"\xff" * 16  # sent instead of a request: makes the lender read what it lends
_HEADER = 4  # numbers before the items: layer, tokens, items, columns
_OF_ITEM = 3  # token, expert, and weight


class ExpertPrograms:
    """Computes experts of `layers` from the mapped file; for one thread at a time."""

    def __init__(
        self,
        weights: ModelWeights,
        settings: EngineSettings,
        experts_per_token: int,
        layers: Iterable[int],
    ) -> None:
        self._settings = settings
        self.max_items = MAX_TOKENS * experts_per_token
        found = {layer: _experts_of(weights, layer) for layer in sorted(layers)}
        columns = max((experts.up.columns for experts, _ in found.values()), default=0)
        rows = max((experts.down.rows for experts, _ in found.values()), default=0)
        self._rows = np.zeros(self.max_items * columns, np.float32)
        self._values = np.zeros(self.max_items * rows, np.float32)
        self._experts = np.zeros(self.max_items, np.int32)
        self._weights = np.zeros(self.max_items, np.float32)
        self._found = {layer: experts for layer, (experts, _) in found.items()}
        threads = max(settings.num_threads, 1)
        self._pool = ThreadPool(threads, settings.places)
        self._num_threads = threads
        self._programs: dict[int, Program] = {}
        for layer, (experts, activation) in found.items():
            self._programs[layer] = self._program(experts, activation)

    @property
    def max_request_bytes(self) -> int:
        """The bytes of the largest request."""
        return 4 * (_HEADER + _OF_ITEM * self.max_items) + self._rows.nbytes

    def _program(self, experts: ExpertWeights, activation: Activation) -> Program:
        s, most = self._settings, self.max_items
        limits = ProgramLimits(most, 1, 1, s.rounding, s.instruction_set)
        program = Program(limits, np.zeros(0, np.uint8), [])
        params = abi.ExpertsParams(
            x=self._rows.ctypes.data, ids=self._experts.ctypes.data,
            weights=self._weights.ctypes.data, out=self._values.ctypes.data,
            **piece_params(experts, None, program.keep),
            num_experts=experts.up.num_experts, k=1, activation=activation,
            precision=limits.precision_code, scale=1.0, rows=Rows.TOKENS,
            layer=experts.layer or 0, weighs_input=experts.weighs_input,
        )  # fmt: skip
        program.append(OpKind.EXPERTS, params)
        program.seal_scratch(within=self._programs.values())
        return program

    def compute_reply(self, request: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32] | None:
        """Returns the experts' outputs (items, rows) for a request; None for the empty request.

        An item is a token with one of its experts; the result is a view that the next call
        overwrites. Raises ClusterError if the request is malformed, or asks for experts that are
        not here.
        """
        numbers = request[: len(request) // 4 * 4].view(np.int32)
        if len(numbers) < _HEADER or not numbers[2]:
            return None
        layer, num_tokens, num_items, columns = numbers[:_HEADER].tolist()
        experts = self._found.get(layer)
        if experts is None or columns != experts.up.columns:
            raise ClusterError(
                f"a request came about layer {layer}, of which this rank has no experts"
            )
        ends = np.cumsum([_HEADER, 2 * num_items, num_items, num_tokens * columns]).tolist()
        if not 0 < num_items <= self.max_items or num_tokens < 1 or ends[-1] > len(numbers):
            raise ClusterError("a request came whose lengths contradict each other")
        tokens, ids = numbers[ends[0] : ends[1]].reshape(-1, 2).T
        if _is_outside(tokens, num_tokens) or _is_outside(ids, experts.up.num_experts):
            raise ClusterError("a request came about tokens or experts that do not exist")
        x = numbers[ends[2] : ends[3]].view(np.float32).reshape(num_tokens, columns)
        self._experts[:num_items] = ids
        self._weights[:num_items] = numbers[ends[1] : ends[2]].view(np.float32)
        self._rows[: num_items * columns].reshape(num_items, columns)[:] = x[tokens]
        self._programs[layer].run(abi.Step(num_tokens=num_items), self._pool, self._num_threads)
        rows = experts.down.rows
        return self._values[: num_items * rows].reshape(num_items, rows)

    def sample_request(self, layer: int, expert: int) -> tuple[bytes, int]:
        """Returns a request for one expert, and the size of its reply in bytes."""
        experts = self._found[layer]
        header = np.array([layer, 1, 1, experts.up.columns, 0, expert], np.int32)
        values = np.ones(1 + experts.up.columns, np.float32)
        return header.tobytes() + values.tobytes(), 4 * experts.down.rows

    def touch(self, layer: int, first: int, end: int) -> None:
        """Reads experts [first, end) of a layer, so that they are in memory."""
        experts = self._found[layer]
        for stacked in filter(None, (experts.gate, experts.up, experts.down)):
            data = stacked.data.reshape(-1).view(np.uint8)
            size = len(data) // stacked.num_experts
            data[first * size : end * size : 4096].max(initial=0)

    def close(self) -> None:
        """Frees the programs and ends the threads."""
        for program in self._programs.values():
            program.close()
        self._programs = {}
        self._pool.close()


def _experts_of(weights: ModelWeights, layer: int) -> tuple[ExpertWeights, Activation]:
    feed_forward = weights.layers[layer].feed_forward
    assert feed_forward is not None
    assert feed_forward.experts is not None
    return feed_forward.experts, feed_forward.activation


def _is_outside(numbers: npt.NDArray[np.int32], end: int) -> bool:
    return bool(numbers.min() < 0 or numbers.max() >= end)
