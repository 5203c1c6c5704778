"""What a rank lends: the loans that all ranks derive, and a Lender that replies to requests.

ExpertPrograms computes the outputs of single experts for the rows in a request. A rank also uses it
for its own requests after a lending rank is lost; the bits are the same.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.cluster.group import RequestChannel
from sharpi.errors import ClusterError
from sharpi.model.weights import ModelWeights
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import OpKind, Rows
from sharpi.ops.cpu.library import ThreadPool
from sharpi.ops.cpu.program import Program, ProgramLimits
from sharpi.ops.cpu.recorder_experts import piece_params
from sharpi.ops.interface import Activation, ExpertWeights
from sharpi.system.process import Closing, start_native
from sharpi.tiers.settings import EngineSettings

LendingMode = Literal["auto", "on", "off"]


class LendingOffer(Struct, frozen=True):
    """A rank's spare RAM and missing experts, published after it has planned its layers."""

    spare: int  # bytes of RAM that its own layers leave free
    layers_with_misses: tuple[int, ...]  # its layers with experts that have no slot
    instruction_set: str  # of its kernels: other kernels round differently
    mode: LendingMode = "auto"
    missing_layers: frozenset[int] = frozenset()  # layers with tensors in a missing file


class Loan(Struct, frozen=True):
    """Experts [first, end) of a layer that rank `owner` runs, in the memory of rank `lender`."""

    lender: int
    owner: int
    layer: int
    first: int
    end: int


def lend(
    offers: Sequence[LendingOffer], experts: Mapping[int, tuple[int, int]]
) -> tuple[Loan, ...]:
    """Returns all loans; `experts`: by layer, the number of experts and the bytes of one.

    A rank lends the same fraction of each layer's experts, beginning with the highest ids, as far
    as its spare RAM goes. Experts without a lender stay on disk.
    """
    loans: list[Loan] = []
    spare = [offer.spare if offer.mode != "off" else 0 for offer in offers]
    for owner, offer in enumerate(offers):
        if offer.mode == "off" or not offer.layers_with_misses:
            continue
        all_ends = {layer: experts[layer][0] for layer in offer.layers_with_misses}
        for lender, other in enumerate(offers):
            is_alike = other.instruction_set == offer.instruction_set
            if lender == owner or other.layers_with_misses or not is_alike:
                continue
            missing = other.missing_layers
            ends = {layer: end for layer, end in all_ends.items() if layer not in missing}
            wanted = sum(end * experts[layer][1] for layer, end in ends.items())
            share = min(1.0, max(0, spare[lender]) / wanted) if wanted else 0.0
            for layer, end in ends.items():
                if count := int(end * share):
                    loans.append(Loan(lender, owner, layer, end - count, end))
                    spare[lender] -= count * experts[layer][1]
                    all_ends[layer] = end - count
    return tuple(loans)


def share_text(loans: Sequence[Loan], experts: Mapping[int, tuple[int, int]]) -> str:
    """Returns how many experts are lent, out of all experts in the same layers, as text."""
    num_lent = sum(loan.end - loan.first for loan in loans)
    num_all = sum(experts[layer][0] for layer in {loan.layer for loan in loans})
    return f"{num_lent} of {num_all} experts in layers without a slot for each"


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
        """Returns outputs (items, rows), a view; None for no request. Raises ClusterError."""
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


_LEAVE_SECONDS = 5.0


class Lender(Closing):
    """Replies to another rank's requests, on its own thread."""

    def __init__(
        self, channel: RequestChannel, programs: ExpertPrograms, loans: Sequence[Loan]
    ) -> None:
        self._channel, self._programs, self._loans = channel, programs, loans
        self._thread = threading.Thread(target=self._reply_to_all, name="lender", daemon=True)
        start_native(self._thread)

    @property
    def is_at_work(self) -> bool:
        """True until the other rank has sent the empty request, or is lost."""
        return self._thread.is_alive()

    def warm(self) -> None:
        """Begins to read the lent experts into memory, on another thread."""
        threading.Thread(target=self._touch, name="reads", daemon=True).start()

    def _touch(self) -> None:
        for loan in self._loans:
            if self.is_at_work:
                self._programs.touch(loan.layer, loan.first, loan.end)

    def _reply_to_all(self) -> None:
        request = np.zeros(self._programs.max_request_bytes, np.uint8)
        try:
            while True:
                self._channel.receive_request(request)
                if request[: len(WARM_UP)].tobytes() == WARM_UP:
                    self.warm()
                    self._channel.send_reply(request[: len(WARM_UP)].copy())
                    continue
                values = self._programs.compute_reply(request)
                if values is None:
                    return
                self._channel.send_reply(values.reshape(-1).view(np.uint8))
        except Exception:  # the other rank is lost, which the monitor reports, or sends nonsense
            return

    def close(self) -> None:
        """Frees the programs, unless a reply is still being computed."""
        self._thread.join(_LEAVE_SECONDS)
        if not self._thread.is_alive():
            self._programs.close()
