"""GpuConnections: connects the GPUs of adjacent ranks over NCCL, where a trial transfer works."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from sharpi.cluster.group import Group
from sharpi.cluster.nccl import open_pair
from sharpi.config import GpuLink
from sharpi.device.device import Device
from sharpi.engine.cluster.gpu_connection import GpuConnection
from sharpi.errors import ClusterError
from sharpi.ops.cuda.replay.gpu_values import on_host
from sharpi.system.native_threads import start_native

_TRY_SECONDS = 20.0
Edge = tuple[int, int]  # the rank that sends, and the one that receives
Open = Callable[[Group, Edge], Any]


class GpuEnds(Struct, frozen=True):
    """The facts that a rank publishes about the GPUs of its first and last layers."""

    receives_on_gpu: bool  # the first layer that gets values from another rank is on a GPU
    sends_from_gpu: bool  # the last layer is on a GPU
    has_nccl: bool
    link_mode: GpuLink


def gpu_edges(ring: Sequence[int], ends: Sequence[GpuEnds]) -> list[Edge]:
    """Returns the (sender, receiver) pairs of ranks whose GPUs may exchange hidden states.

    The pairs are adjacent in the ring, and listed in its order; all ranks derive the same ones.
    Raises ClusterError if a rank requires NCCL and a rank lacks it.
    """
    if any(ends[rank].link_mode == "host" for rank in ring):
        return []
    edges = [
        (rank, ring[(place + 1) % len(ring)])
        for place, rank in enumerate(ring)
        if ends[rank].sends_from_gpu and ends[ring[(place + 1) % len(ring)]].receives_on_gpu
    ]
    missing = sorted({rank for edge in edges for rank in edge if not ends[rank].has_nccl})
    if missing and any(ends[rank].link_mode == "nccl" for rank in ring):
        raise ClusterError(f"--gpu-link nccl: torch has no NCCL on rank {missing[0]}")
    return [edge for edge in edges if ends[edge[0]].has_nccl and ends[edge[1]].has_nccl]


def open_nccl(group: Group, edge: Edge) -> Any:
    """Returns this rank's end of an NCCL communicator for a (sender, receiver) pair of ranks."""
    store = group.store_for(f"gpus {edge[0]} {edge[1]}")
    return open_pair(group.torch, store, group.interface.name, sends=edge[0] == group.rank)


class GpuConnections:
    """One rank's NCCL connections to other ranks' GPUs: `into` receives and `out` sends.

    Each is None where hidden states go from host to host. `open_end` opens one end of an edge;
    tests replace it.
    """

    def __init__(
        self,
        group: Group,
        ring: Sequence[int],
        ends: GpuEnds,
        open_end: Open = open_nccl,
    ) -> None:
        self.into: GpuConnection | None = None
        self.out: GpuConnection | None = None
        self.notes: tuple[str, ...] = ()
        self._group, self._open_end = group, open_end
        self._is_open = False
        self._num_buffers = len(ring) + 1  # more than there are steps in progress
        self._all_ends = group.exchange("gpus", ends)
        self._edges = gpu_edges(ring, self._all_ends)

    def open(self, into: Device | None, out: Device | None, num_bytes: int) -> None:
        """Opens and tries this rank's connections, for transfers of at most `num_bytes`.

        `into` is the GPU that receives hidden states, and `out` the one that sends them. If a trial
        fails on any rank, all ranks send them over the hosts, and `notes` has the reason; if a rank
        requires NCCL, ClusterError is raised instead.
        """
        for edge in self._edges:
            device = {edge[0]: out, edge[1]: into}.get(self._group.rank)
            fault = "" if device is None else self._fault_of(device, edge, num_bytes)
            self._group.raise_if_failed()
            said = self._group.exchange(f"gpu connection {edge}", fault)
            if any(said):
                return self._give_up(said)
        self._is_open = bool(self._edges)
        if self._edges:
            names = ", ".join(f"{a} to {b}" for a, b in self._edges)
            self.notes = (f"hidden values go from GPU to GPU over NCCL, from rank {names}",)

    def _fault_of(self, device: Device, edge: Edge, num_bytes: int) -> str:
        """Tries an edge by a transfer; returns the error's text, empty if the transfer works.

        The trial runs on another thread, since NCCL may hang.
        """
        faults: list[str] = []

        def attempt() -> None:
            try:
                self._try(device, edge, num_bytes)
            except Exception as error:  # whatever torch, CUDA or NCCL raises
                faults.append(_first_line(error))

        worker = threading.Thread(target=attempt, name="gpu connection", daemon=True)
        start_native(worker)
        worker.join(_TRY_SECONDS)
        if worker.is_alive():
            return f"no answer within {_TRY_SECONDS:.0f} seconds"
        return faults[0] if faults else ""

    def _try(self, device: Device, edge: Edge, num_bytes: int) -> None:
        """Opens an edge, sends known values over it, and compares them at the receiving end."""
        group, sends = self._group, edge[0] == self._group.rank
        pair = self._open_end(group, edge)
        connection = GpuConnection(
            device, pair, num_bytes, self._num_buffers if sends else 1, group.channel.count,
            partial(self._failed, edge[1] if sends else edge[0]), sends=sends,
        )  # fmt: skip
        known = np.arange(num_bytes // 4, dtype=np.float32).reshape(1, -1)
        if sends:
            self.out = connection
            connection.send(known)
            device.synchronise()
        else:
            self.into = connection
            if not np.array_equal(on_host(connection.receive(*known.shape)), known):
                raise ClusterError("NCCL delivered other values than were sent")

    def _failed(self, rank: int, error: Exception) -> ClusterError:
        """Returns the error for a broken connection to `rank`; tells all ranks if it was in use."""
        fault = f"rank {rank} on {self._group.hosts[rank]} cannot be reached: {_first_line(error)}"
        if self._is_open:
            self._group.fail(fault)
        return ClusterError(fault)

    def _give_up(self, said: Sequence[str]) -> None:
        """Closes all connections of GPUs, so that hidden states go from host to host.

        `said` has each rank's error. Raises ClusterError if a rank requires NCCL.
        """
        self.abort()
        self.into = self.out = None
        rank, why = next((rank, each) for rank, each in enumerate(said) if each)
        text = f"NCCL does not work on rank {rank} on {self._group.hosts[rank]}: {why}"
        if any(ends.link_mode == "nccl" for ends in self._all_ends):
            raise ClusterError(text)
        self.notes = (f"hidden values go over the hosts: {text}",)

    def abort(self) -> None:
        """Ends all transfers of this rank; any thread may call it."""
        for connection in (self.into, self.out):
            if connection is not None:
                connection.abort()

    def close(self) -> None:
        """Frees the communicators."""
        for connection in (self.into, self.out):
            if connection is not None:
                connection.close()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
