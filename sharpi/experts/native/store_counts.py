"""The counts of an expert store: reads, and accesses by prompts and by decoded tokens."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class PhaseAccesses(NamedTuple):
    """One layer's accesses by prompts or by decoded tokens; mirrors `StoreCounts` in C++."""

    accesses: int  # distinct experts of each step
    hits: int  # in memory when needed
    late: int  # in flight when needed
    loads: int  # read only when they were needed
    loaded_bytes: int  # bytes of the loads
    stall_ns: int  # nanoseconds in which at least one thread waited
    prefetched: int  # experts requested before they were needed
    prefetch_used: int  # prefetched experts that were used before they were evicted
    wasted_bytes: int  # bytes read early and never used


class LayerAccesses(NamedTuple):
    """One layer's accesses for prompts and for decoded tokens, and the reads into its buffers."""

    prompt: PhaseAccesses  # in steps that compute part of a prompt
    decode: PhaseAccesses  # in steps that decode one token of each sequence
    fills: int  # experts loaded at the start, or because the most used ones were pinned
    bytes_read: int  # all bytes read from the file, with prefetches and alignment

    @property
    def total(self) -> "StoreCounts":
        """The sum of the counts for prompts and for decoded tokens."""
        both = PhaseAccesses(*map(sum, zip(self.prompt, self.decode, strict=True)))
        return StoreCounts(**both._asdict(), fills=self.fills, bytes_read=self.bytes_read)


class StoreCounts(NamedTuple):
    """One layer's counts for all steps; the fields are those of PhaseAccesses, LayerAccesses."""

    accesses: int
    hits: int
    late: int
    loads: int
    loaded_bytes: int
    stall_ns: int
    prefetched: int
    prefetch_used: int
    wasted_bytes: int
    fills: int
    bytes_read: int


class StoreTotals(NamedTuple):
    """The memory and the reads of all layers together."""

    memory_bytes: int
    dropped_prefetches: int  # experts that were not read because the queue was full
    failed_prefetches: int  # experts that could not be read
    failed_reads: int  # experts that could not be read, prefetches included
    prefetched_bytes: int  # read before a thread waited for them
    is_direct: bool  # reads bypass the page cache


class NativeCounts:
    """The arrays that `sharpi_store_counts` fills, and their contents as tuples."""

    def __init__(self, num_layers: int) -> None:
        self._phases = np.empty((num_layers, 2, len(PhaseAccesses._fields)), np.int64)
        self._reads = np.empty((num_layers, 2), np.int64)
        self._before_pin = np.empty(2, np.int64)
        self._totals = np.empty(len(StoreTotals._fields), np.int64)

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of the arrays, in the order of the native function's parameters."""
        arrays: tuple[NDArray[np.int64], ...] = (
            self._phases, self._reads, self._before_pin, self._totals,
        )  # fmt: skip
        return tuple(array.ctypes.data for array in arrays)

    @property
    def layers(self) -> list[LayerAccesses]:
        """The counts of every layer."""
        rows = zip(self._phases.tolist(), self._reads.tolist(), strict=True)
        return [
            LayerAccesses(PhaseAccesses(*prompt), PhaseAccesses(*decode), *reads)
            for (prompt, decode), reads in rows
        ]

    @property
    def before_pin(self) -> tuple[int, int] | None:
        """The accesses and hits before the most used experts were first pinned; None until then."""
        accesses, hits = self._before_pin.tolist()
        return None if accesses < 0 else (accesses, hits)

    @property
    def totals(self) -> StoreTotals:
        """The counts that are not kept per layer."""
        memory, dropped, failed, unread, early, is_direct = self._totals.tolist()
        return StoreTotals(memory, dropped, failed, unread, early, bool(is_direct))
