"""RemoteExperts of kernels/cpu/experts: experts that other ranks have in memory and compute.

A step makes questions about the outputs of such experts. Another thread takes each question, gets
the answer from the other rank, and gives it to the step.
The bytes of questions and answers are described in kernels/cpu/experts/store/remote_experts.h.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_int, c_int64, c_size_t, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.native.feed import ExpertFeed
from sharpi.native import declare
from sharpi.ops.cpu.library import load_library


class RemoteCounts(Structure):
    """Mirrors `RemoteCounts` of kernels/cpu/experts/store/remote_experts.h."""

    _fields_ = (
        ("questions", c_int64),
        ("sent_bytes", c_int64),
        ("received_bytes", c_int64),
        ("stall_ns", c_int64),  # nanoseconds that steps waited for answers
        ("round_trip_ns", c_int64),  # nanoseconds of all questions
    )


class RemoteExperts:
    """The experts of `num_ranks` other ranks; steps above `max_tokens` tokens ask for none."""

    def __init__(self, shape: tuple[int, int], num_ranks: int, max_tokens: int) -> None:
        self._shape, self.num_ranks = shape, num_ranks
        self._library = _library()
        self._handle = self._library.sharpi_remote_create(*shape, num_ranks, max_tokens)
        if not self._handle:
            raise MemoryError("no memory for the experts of other ranks")

    def lend(self, layer: int, first: int, end: int, rank: int) -> None:
        """Records that a rank, given by its index, lends the experts [first, end) of a layer."""
        self._library.sharpi_remote_lend(self._handle, layer, first, end, rank)

    def forget(self, rank: int) -> None:
        """Stops asking a rank; any thread may call it."""
        self._library.sharpi_remote_forget(self._handle, rank)

    def let_ask(self, feed: ExpertFeed) -> None:
        """Lets the steps of a feed ask; call it before the first of them is recorded."""
        self._library.sharpi_feed_ask(feed.handle, self._handle)

    def take(self, rank: int) -> bytes | None:
        """Waits for a question to a rank; returns None at the end."""
        size = c_size_t()
        address = self._library.sharpi_remote_take(self._handle, rank, byref(size))
        return None if not address else ctypes.string_at(address, size.value)

    def answer_bytes(self, rank: int) -> int:
        """Returns the size of the answer to the question that was taken."""
        return self._answer(rank)[1]

    def _answer(self, rank: int) -> tuple[int, int]:
        size = c_size_t()
        address = self._library.sharpi_remote_answer(self._handle, rank, byref(size))
        return address, size.value

    def give(self, rank: int, answer: NDArray[np.uint8] | None) -> None:
        """Gives the step the answer to the question that was taken; with None the step fails."""
        if answer is not None:
            address, size = self._answer(rank)
            ctypes.memmove(address, answer.ctypes.data, size)
        self._library.sharpi_remote_give(self._handle, rank, answer is not None)

    def end(self) -> None:
        """Makes every `take` that waits return."""
        self._library.sharpi_remote_end(self._handle)

    def counts(self) -> list[RemoteCounts]:
        """Returns the counts so far, by rank."""
        counts = [RemoteCounts() for _ in range(self.num_ranks)]
        for rank, each in enumerate(counts):
            self._library.sharpi_remote_counts(self._handle, rank, byref(each))
        return counts

    def uses(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the accesses (layers, 2) and uses (layers, experts) of other ranks' experts.

        The two columns of accesses are prompts and decoded tokens. Uses count the tokens that used
        each expert.
        """
        accesses = np.zeros((self._shape[0], 2), np.int64)
        uses = np.zeros(self._shape, np.int64)
        self._library.sharpi_remote_uses(self._handle, accesses.ctypes.data, uses.ctypes.data)
        return accesses, uses

    def close(self) -> None:
        """Frees the native object, which no step may use any more; a second call does nothing."""
        if self._handle is not None:
            self._library.sharpi_remote_destroy(self._handle)
            self._handle = None


@cache
def _library() -> ctypes.CDLL:
    """Returns the native library with types for the functions of remote experts."""
    signatures = {
        "sharpi_remote_create": (c_void_p, [c_int] * 4),
        "sharpi_remote_destroy": (None, [c_void_p]),
        "sharpi_remote_lend": (None, [c_void_p, c_int, c_int, c_int, c_int]),
        "sharpi_remote_forget": (None, [c_void_p, c_int]),
        "sharpi_remote_take": (c_void_p, [c_void_p, c_int, POINTER(c_size_t)]),
        "sharpi_remote_answer": (c_void_p, [c_void_p, c_int, POINTER(c_size_t)]),
        "sharpi_remote_give": (None, [c_void_p, c_int, c_int]),
        "sharpi_remote_end": (None, [c_void_p]),
        "sharpi_remote_counts": (None, [c_void_p, c_int, POINTER(RemoteCounts)]),
        "sharpi_remote_uses": (None, [c_void_p] * 3),
        "sharpi_feed_ask": (None, [c_void_p] * 2),
    }
    return declare(load_library(), signatures)
