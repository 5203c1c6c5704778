"""Program: a recorded step that can be replayed, with its native operations and their memory.

Python makes one call per step. The inputs are in `StepArrays`; logits and routes are read in place.
"""

import ctypes
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import Structure, c_int32, c_void_p
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from sharpi.errors import SharpiError
from sharpi.ops.cpu import abi
from sharpi.ops.cpu.abi import PageSpan
from sharpi.ops.cpu.library import Place, ThreadPool, load_library

IntArray = npt.NDArray[np.int32]
Rounding = Literal["int8", "int16", "f32"]


class ProgramLimits(Struct, frozen=True):
    """The limits of one step, and the choice of its kernels."""

    max_tokens: int
    max_outputs: int
    max_positions: int
    precision: Rounding = "int8"
    instruction_set: str | None = None  # None for the machine's best
    shares_rows: bool = False  # each thread computes the same rows of every expert
    drops_keys: bool = False  # a step may drop some keys and values of a sequence

    @property
    def precision_code(self) -> int:
        """The number of `precision` in the native library's enum `Rounding`."""
        return {"int8": 0, "f32": 1, "int16": 2}[self.precision]


class Program:
    """The native operations of a step and the arena of their buffers; the recorder builds it."""

    def __init__(
        self, limits: ProgramLimits, arena: npt.NDArray[np.uint8], alive: list[object]
    ) -> None:
        self.limits = limits
        self._library = load_library()
        self._arena = arena
        self._alive = alive
        name = limits.instruction_set
        self._handle = self._library.sharpi_program_create(
            None if name is None else name.encode(),
            limits.max_tokens,
            limits.max_outputs,
            limits.max_positions,
        )
        if limits.shares_rows:
            self._library.sharpi_program_share_rows(self._handle)
        self._scratch_bytes = 0
        # Views of the arena, which the recorder sets.
        self.logits = self.incoming = self.hidden = np.zeros((0, 0), np.float32)
        self.routes: list[IntArray] = []
        self.router_logits: list[npt.NDArray[np.float32]] = []

    @property
    def handle(self) -> int:
        """The pointer to the native object; raises ValueError after `close`."""
        if self._handle is None:
            raise ValueError("the program is closed")
        return int(self._handle)

    @property
    def num_bytes(self) -> int:
        """The bytes of the arena and of the scratch memory that this program allocated."""
        return int(self._arena.nbytes + self._scratch_bytes)

    def append(self, kind: int, params: Structure) -> None:
        """Appends an operation of kind `kind`.

        Raises SharpiError if the native library is of another version: it does not know the kind,
        or its struct of parameters has another size.
        """
        size = ctypes.sizeof(params)
        if self._library.sharpi_program_add(self._handle, kind, ctypes.byref(params), size):
            raise SharpiError(
                f"the native library is of another version (operation {kind} of {size} bytes);"
                " run `make run` or `pip install .` again"
            )

    def seal_scratch(self, within: Iterable["Program"] = ()) -> None:
        """Allocates the scratch memory, or uses that of another program.

        It uses the scratch memory of the first program in `within` that has enough. The two
        programs must not run at the same time. Raises SharpiError if there is too little memory.
        """
        if any(
            self._library.sharpi_program_seal_within(self._handle, p.handle) == 0 for p in within
        ):
            return
        self._scratch_bytes = self._library.sharpi_program_seal(self._handle)
        if self._scratch_bytes < 0:
            raise SharpiError(
                "not enough memory for the engine's buffers; lower --batch-size or -c"
            )

    def page_spans(self, pool: ThreadPool) -> "list[abi.PageSpan]":
        """Returns the address ranges of the weights, each with the NUMA node that reads it."""
        measure = self._library.sharpi_program_page_spans
        count = measure(self._handle, pool.handle, None, 0)
        spans = (abi.PageSpan * count)()
        measure(self._handle, pool.handle, spans, count)
        return list(spans)

    def keep(self, array: np.ndarray | None) -> int | None:
        """Returns the array's address, None for None; the program keeps the array alive."""
        if array is None:
            return None
        self._alive.append(array)
        return int(array.ctypes.data)

    def run(self, step: abi.Step, pool: ThreadPool, num_threads: int) -> None:
        """Runs one step; afterwards, `logits[i]` are the logits of output i, until the next run.

        Raises KeyboardInterrupt if the pool was interrupted, and SharpiError if there is too little
        memory for the buffers of all threads.
        """
        result = self._library.sharpi_program_run(
            self._handle, pool.address or pool.handle, ctypes.byref(step), num_threads
        )
        if result > 0:
            raise KeyboardInterrupt
        if result:
            raise SharpiError("not enough memory for another thread's buffers; use fewer threads")

    def close(self) -> None:
        """Frees the native object; a second call does nothing."""
        if self._handle is not None:
            self._library.sharpi_program_destroy(self._handle)
            self._handle = None


def int_pointer(array: IntArray) -> "ctypes._Pointer[c_int32]":
    """Returns the array as an int32*; the caller must keep the array alive."""
    return array.ctypes.data_as(ctypes.POINTER(c_int32))


class StepArrays:
    """The input arrays of a step, to which the struct `step` points.

    `states` (sequences,) are the addresses of the sequences' recurrent states. `states_after`
    (tokens,) are the addresses for a copy of the state after each token. Null stands for no state.
    """

    def __init__(self, max_tokens: int, num_sequences: int, pages_per_sequence: int) -> None:
        self._ids, self.positions, self._sequences, self._outputs = (
            np.zeros(max_tokens, np.int32) for _ in range(4)
        )
        self._pages = np.zeros((num_sequences, pages_per_sequence), np.int32)
        self.states = (c_void_p * num_sequences)()
        self.states_after = (c_void_p * max_tokens)()
        self.step = abi.Step(
            ids=int_pointer(self._ids),
            positions=int_pointer(self.positions),
            sequences=int_pointer(self._sequences),
            output_rows=int_pointer(self._outputs),
            page_table=int_pointer(self._pages),
            pages_per_sequence=pages_per_sequence,
            states=self.states,
            states_after=self.states_after,
        )

    def write(self, row: int, first: int, ids: IntArray, position: int, pages: IntArray) -> slice:
        """Writes the tokens `ids` of a sequence, and returns the range of their rows in the step.

        `row` is the sequence's row in the page table, `pages` its pages in order. The first token
        has row `first` in the step and position `position` in the sequence.
        """
        count, num_pages = len(ids), min(len(pages), self._pages.shape[1])
        rows = slice(first, first + count)
        self._ids[rows] = ids
        self.positions[rows] = position if count == 1 else np.arange(position, position + count)
        self._sequences[rows] = row
        self._pages[row, :num_pages] = pages[:num_pages]
        return rows

    def request_outputs(self, first: int, rows: IntArray | int, count: int = 1) -> None:
        """Requests the logits of `rows` of the step, which become the outputs from `first` on."""
        self._outputs[first : first + count] = rows


def place_pages(spans: Sequence[PageSpan], places: Sequence[Place]) -> str | None:
    """Moves the pages of each span to the memory of the span's NUMA node.

    Returns None, or a message that says why pages could not be moved. A thread on the node first
    reads the span, so that pages still on the disk are loaded into that node's memory.
    """
    nodes = sorted({place.node for place in places})
    with ThreadPoolExecutor(len(nodes)) as pool:
        works = [
            pool.submit(_place, [s for s in spans if s.node == node], _cores(places, node))
            for node in nodes
        ]
    errors = {work.result() for work in works} - {0}
    if not errors:
        return None
    return f"weights were not moved between NUMA nodes: {os.strerror(min(errors))}"


def _cores(places: Sequence[Place], node: int) -> set[int]:
    return {core for place in places if place.node == node for core in place.cores}


def _place(spans: Sequence[PageSpan], cores: set[int]) -> int:
    """Moves a node's spans to its memory, on a thread bound to `cores`; returns an errno, or 0."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    place = load_library().sharpi_place_pages
    results = (place(span.at, span.bytes, span.node) for span in spans)
    return next(filter(None, results), 0)
