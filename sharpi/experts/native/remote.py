"""RemoteExperts of kernels/cpu/experts: experts that other ranks have in memory and compute.

A step writes a request for the outputs of these experts to each rank that has some. For each such
rank another thread reads the request, sends it, and passes the rank's reply to the step.
kernels/cpu/experts/store/remote_experts.h describes the bytes of requests and replies.
"""

import ctypes
from ctypes import POINTER, Structure, byref, c_int, c_int64, c_size_t, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sharpi.experts.native.feed import ExpertFeed
from sharpi.native import NativeObject, declare
from sharpi.ops.cpu.library import load_library


class RemoteCounts(Structure):
    """Mirrors `RemoteCounts` of kernels/cpu/experts/store/remote_experts.h."""

    _fields_ = (
        ("requests", c_int64),
        ("sent_bytes", c_int64),
        ("received_bytes", c_int64),
        ("stall_ns", c_int64),  # nanoseconds that steps waited for replies
        ("round_trip_ns", c_int64),  # nanoseconds from all requests to their replies
    )


class RemoteExperts(NativeObject):
    """The experts that `num_ranks` other ranks compute for this one.

    `shape` is (layers, experts). Steps of more than `max_tokens` tokens do not use these experts.
    """

    def __init__(self, shape: tuple[int, int], num_ranks: int, max_tokens: int) -> None:
        self._shape, self.num_ranks = shape, num_ranks
        self._library = _library()
        address = self._library.sharpi_remote_create(*shape, num_ranks, max_tokens)
        super().__init__(address, self._library.sharpi_remote_destroy, "experts of other ranks")

    def add_experts(self, layer: int, first: int, end: int, rank: int) -> None:
        """Records that rank `rank` of `num_ranks` computes the experts [first, end) of a layer."""
        self._library.sharpi_remote_add_experts(self.handle, layer, first, end, rank)

    def remove_rank(self, rank: int) -> None:
        """Stops sending requests to a rank; any thread may call it."""
        self._library.sharpi_remote_remove_rank(self.handle, rank)

    def attach_feed(self, feed: ExpertFeed) -> None:
        """Lets the steps of a feed send requests; call it before the first step is recorded."""
        self._library.sharpi_feed_attach_remote(feed.handle, self.handle)

    def next_request(self, rank: int) -> bytes | None:
        """Waits for a request to a rank and returns its bytes; returns None after `end`."""
        size = c_size_t()
        address = self._library.sharpi_remote_next_request(self.handle, rank, byref(size))
        return None if not address else ctypes.string_at(address, size.value)

    def reply_bytes(self, rank: int) -> int:
        """Returns the bytes of the reply to the request that `next_request` returned last."""
        return self._reply_buffer(rank)[1]

    def _reply_buffer(self, rank: int) -> tuple[int, int]:
        size = c_size_t()
        address = self._library.sharpi_remote_reply_buffer(self.handle, rank, byref(size))
        return address, size.value

    def complete(self, rank: int, reply: NDArray[np.uint8] | None) -> None:
        """Passes the reply to the last request to the waiting step, which fails for None."""
        if reply is not None:
            address, size = self._reply_buffer(rank)
            ctypes.memmove(address, reply.ctypes.data, size)
        self._library.sharpi_remote_complete(self.handle, rank, reply is not None)

    def end(self) -> None:
        """Makes all calls of `next_request`, waiting and later ones, return None."""
        self._library.sharpi_remote_end(self.handle)

    def counts(self) -> list[RemoteCounts]:
        """Returns the counts of requests since the start, one for each rank."""
        counts = [RemoteCounts() for _ in range(self.num_ranks)]
        for rank, each in enumerate(counts):
            self._library.sharpi_remote_counts(self.handle, rank, byref(each))
        return counts

    def uses(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns lookups (layers, 2), by prompts and decoding, and uses (layers, experts)."""
        accesses = np.zeros((self._shape[0], 2), np.int64)
        uses = np.zeros(self._shape, np.int64)
        self._library.sharpi_remote_uses(self.handle, accesses.ctypes.data, uses.ctypes.data)
        return accesses, uses


@cache
def _library() -> ctypes.CDLL:
    """Returns the native library with argument types set for the functions of remote experts."""
    signatures = {
        "sharpi_remote_create": (c_void_p, [c_int] * 4),
        "sharpi_remote_destroy": (None, [c_void_p]),
        "sharpi_remote_add_experts": (None, [c_void_p, c_int, c_int, c_int, c_int]),
        "sharpi_remote_remove_rank": (None, [c_void_p, c_int]),
        "sharpi_remote_next_request": (c_void_p, [c_void_p, c_int, POINTER(c_size_t)]),
        "sharpi_remote_reply_buffer": (c_void_p, [c_void_p, c_int, POINTER(c_size_t)]),
        "sharpi_remote_complete": (None, [c_void_p, c_int, c_int]),
        "sharpi_remote_end": (None, [c_void_p]),
        "sharpi_remote_counts": (None, [c_void_p, c_int, POINTER(RemoteCounts)]),
        "sharpi_remote_uses": (None, [c_void_p] * 3),
        "sharpi_feed_attach_remote": (None, [c_void_p] * 2),
    }
    return declare(load_library(), signatures)
