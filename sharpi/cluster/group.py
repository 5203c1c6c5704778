"""Group: the processes that run one model together, connected by torch.distributed with gloo.

The ranks meet at an address, the rendezvous. Under torchrun, or srun with the same environment
variables, these variables name the address and the ranks. With `--hosts` the first machine listens
at the address itself, and `sharpi join` on the other machines connects to it.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from sharpi.cluster.channel import Channel
from sharpi.cluster.heartbeat import HeartbeatMonitor
from sharpi.cluster.rendezvous import (
    EXCHANGE_SECONDS,
    POLL_SECONDS,
    Interface,
    Rendezvous,
    find_interface,
    membership,
    open_store,
    wait_for_all,
)
from sharpi.errors import ClusterError, MissingPackageError
from sharpi.system.process import Closing

_REQUEST, _REPLY = 1, 2  # tags; the pipeline has 0
_EMPTY_BYTES = 16  # bytes of the empty request, the last one
Bytes = npt.NDArray[np.uint8]


class RequestChannel:
    """The connection to rank `other` for requests and replies, beside the pipeline's messages.

    Requests and replies have tags of their own, so that they and the pipeline's messages do not
    wait for each other. Only one of the two ranks sends requests, and it waits for each reply
    before the next request. Its methods raise if `other` is lost.
    """

    def __init__(self, torch: Any, other: int) -> None:
        self._torch, self.other = torch, other
        self._group = torch.distributed.group.WORLD

    def call(self, request: bytes, reply_bytes: int) -> Bytes:
        """Sends a request, waits for the reply of `reply_bytes` bytes, and returns it."""
        self.send_request(np.frombuffer(bytearray(request), np.uint8))
        reply = np.empty(reply_bytes, np.uint8)
        self._group.recv([self._torch.from_numpy(reply)], self.other, _REPLY).wait()
        return reply

    def send_request(self, data: Bytes) -> None:
        """Sends a request, or a part of one, without a reply to wait for."""
        self._send(data, _REQUEST)

    def end(self) -> None:
        """Sends the empty request, which tells the other rank that no more will follow."""
        self.send_request(np.zeros(_EMPTY_BYTES, np.uint8))

    def receive_request(self, buffer: Bytes) -> None:
        """Waits for a request, and writes it to the beginning of `buffer`."""
        self._group.recv([self._torch.from_numpy(buffer)], self.other, _REQUEST).wait()

    def send_reply(self, values: Bytes) -> None:
        """Sends the reply to the latest request."""
        self._send(values, _REPLY)

    def _send(self, data: Bytes, tag: int) -> None:
        self._group.send([self._torch.from_numpy(data)], self.other, tag).wait()


_FOREVER = timedelta(days=365)  # a rank without work waits; the monitor notices faults
_MAX_VALUE_BYTES = 64 << 20
T = TypeVar("T")


class Group(Closing):
    """The group of all ranks: they share values by `exchange`, then send messages by `channel`."""

    def __init__(self, rank: int, size: int, torch: Any, store: Any, interface: Interface) -> None:
        self.rank, self.size, self.torch, self.interface = rank, size, torch, interface
        self._store = store
        self._monitor: HeartbeatMonitor | None = None
        self._has_left = False
        self.hosts: tuple[str, ...] = tuple(self.exchange("host", socket.gethostname()))
        self.channel = Channel(torch)
        self._on_lost: Callable[[int], None] = lambda rank: None
        self._monitor = HeartbeatMonitor(store, rank, self.hosts, self.channel.fail)
        self._monitor.start()

    def start(self, ring: Sequence[int]) -> None:
        """Starts the channel: each rank of `ring` sends to the next, the last to the first."""
        assert self._monitor is not None
        others = set(range(self.size)) - set(ring)
        self._monitor.set_optional_ranks(others, lambda rank: self._on_lost(rank))
        if self.rank in ring and len(ring) > 1:
            place = ring.index(self.rank)
            self.channel.start(self._monitor, ring[place - 1], ring[(place + 1) % len(ring)])

    def when_lost(self, on_lost: Callable[[int], None]) -> None:
        """Registers what another thread calls with the number of a lost rank outside the ring."""
        self._on_lost = on_lost

    def request_channel(self, rank: int) -> RequestChannel:
        return RequestChannel(self.torch, rank)

    def exchange(self, name: str, own: T) -> list[T]:
        """Publishes a value under `name`; returns those of all ranks, or raises ClusterError."""
        self.publish(name, own)
        return [self.read_value(name, rank, type(own)) for rank in range(self.size)]

    def publish(self, name: str, value: object) -> None:
        """Publishes this rank's value under `name`; other ranks read it with `read_value`."""
        self._store.set(f"{name}/{self.rank}", msgspec.msgpack.encode(value))

    def read_value(self, name: str, rank: int, kind: type[T]) -> T:
        """Waits for a rank's value under `name`; raises ClusterError if none of `kind` comes."""
        data = self._wait_for(f"{name}/{rank}", rank)
        if len(data) > _MAX_VALUE_BYTES:
            raise ClusterError(f"rank {rank} says {len(data)} bytes about its {name}")
        try:
            return msgspec.msgpack.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise ClusterError(
                f"rank {rank} has another version of sharpi: its {name} is not understood: {error}"
            ) from None

    def published_values(self, name: str, kind: type[T]) -> dict[int, T]:
        """Returns the values published under `name` so far, by rank; none if the store is lost."""
        try:
            come = [r for r in range(self.size) if self._store.check([f"{name}/{r}"])]
            return {rank: self.read_value(name, rank, kind) for rank in come}
        except Exception:  # the store ended with the first rank
            return {}

    def _wait_for(self, key: str, rank: int) -> bytes:
        """Polls for a key that `rank` sets: between two polls the monitor can use the store."""
        end = time.monotonic() + EXCHANGE_SECONDS
        while time.monotonic() < end:
            self.raise_if_failed()
            try:
                if self._store.check([key]):
                    return bytes(self._store.get(key))
            except Exception:
                self.raise_if_failed()
                raise ClusterError("rank 0 has ended or cannot be reached") from None
            time.sleep(POLL_SECONDS)
        raise ClusterError(
            f"rank {rank} of {self.size} did not come within {EXCHANGE_SECONDS} seconds"
        )

    def raise_if_failed(self) -> None:
        if self._monitor is not None and self._monitor.fault is not None:
            raise ClusterError(self._monitor.fault)

    def fail(self, fault: str) -> None:
        if self._monitor is not None:
            self._monitor.fail(fault)

    def close(self) -> None:
        """Leaves the group; the other ranks do not report this as a fault.

        Rank 0 waits a few seconds for the others to leave. Its process has the store, which they
        may still read, unless torchrun has started the ranks.
        """
        if self._has_left:
            return
        self._has_left = True
        if self._monitor is not None:
            self._monitor.close()
        self.channel.close()
        if self.rank == 0 and self._monitor is not None:
            self._monitor.wait_for_others()


def join_group(rendezvous: Rendezvous) -> Group:
    """Joins a group, also after one has failed; raises ClusterError or MissingPackageError."""
    torch = _import_torch()
    distributed = torch.distributed
    interface = find_interface(
        rendezvous.link, rendezvous.address, allows_public=rendezvous.allows_public
    )
    os.environ["GLOO_SOCKET_IFNAME"] = interface.name
    if distributed.is_initialized():
        distributed.destroy_process_group()
    store = open_store(distributed, rendezvous, interface)
    number, rank, size = membership(store, rendezvous)
    own = distributed.PrefixStore(f"group {number}", store)
    own.set_timeout(timedelta(seconds=EXCHANGE_SECONDS))
    wait_for_all(own, size)
    try:
        distributed.init_process_group(
            "gloo", store=own, rank=rank, world_size=size, timeout=_FOREVER
        )
    except Exception as error:
        raise ClusterError(f"the ranks cannot connect on {interface.name}: {error}") from None
    return Group(rank, size, torch, own, interface)


def _import_torch() -> Any:
    # Sharpi reports a lost rank in one line itself.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        return import_module("torch")
    except ImportError:
        raise MissingPackageError(
            "several machines need torch; pip install 'sharpi[cluster]'"
        ) from None
