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

from sharpi.cluster.channel import Channel
from sharpi.cluster.interface import Interface, find_interface
from sharpi.cluster.rendezvous import Rendezvous
from sharpi.cluster.request_channel import RequestChannel
from sharpi.cluster.watch import Watch
from sharpi.errors import ClusterError, MissingPackageError
from sharpi.system.process import Closing

_FOREVER = timedelta(days=365)  # a rank without work waits; the watch notices faults
_JOIN_SECONDS = _EXCHANGE_SECONDS = 300
_MAX_VALUE_BYTES = 64 << 20
_ASK_SECONDS = 0.5
_EXCHANGE_PAUSE = 0.02
_CONNECT_SECONDS = 10
# The stores that this process has opened, which later groups use again.
_STORES: dict[tuple[str, int], Any] = {}

T = TypeVar("T")


class Group(Closing):
    """The group of all ranks: they share values by `exchange`, then send messages by `channel`."""

    def __init__(self, rank: int, size: int, torch: Any, store: Any, interface: Interface) -> None:
        self.rank, self.size, self.torch, self.interface = rank, size, torch, interface
        self._store = store
        self._watch: Watch | None = None
        self._has_left = False
        self.hosts: tuple[str, ...] = tuple(self.exchange("host", socket.gethostname()))
        self.channel = Channel(torch)
        self._on_lost: Callable[[int], None] = lambda rank: None
        self._watch = Watch(store, rank, self.hosts, self.channel.fail)
        self._watch.start()

    def start(self, ring: Sequence[int]) -> None:
        """Starts the channel: each rank of `ring` sends to the next one, the last to the first.

        If a rank outside the ring is lost, the group continues without it.
        """
        assert self._watch is not None
        self._watch.set_optional_ranks(set(range(self.size)) - set(ring), self._lose)
        if self.rank in ring and len(ring) > 1:
            place = ring.index(self.rank)
            self.channel.start(self._watch, ring[place - 1], ring[(place + 1) % len(ring)])

    def when_lost(self, on_lost: Callable[[int], None]) -> None:
        """Registers a function to call, on another thread, when a rank outside the ring is lost.

        The argument is the lost rank.
        """
        self._on_lost = on_lost

    def _lose(self, rank: int) -> None:
        self._on_lost(rank)

    def request_channel(self, rank: int) -> RequestChannel:
        """Returns the connection for requests and replies between this rank and `rank`."""
        return RequestChannel(self.torch, rank)

    def exchange(self, name: str, own: T) -> list[T]:
        """Publishes this rank's value under `name`; returns the values of all ranks, in order.

        Raises ClusterError if a rank publishes nothing in time, or a value of another type.
        """
        self.publish(name, own)
        return [self.read_value(name, rank, type(own)) for rank in range(self.size)]

    def publish(self, name: str, value: object) -> None:
        """Publishes this rank's value under `name`; other ranks read it with `read_value`."""
        self._store.set(f"{name}/{self.rank}", msgspec.msgpack.encode(value))

    def read_value(self, name: str, rank: int, kind: type[T]) -> T:
        """Waits for the value that `rank` publishes under `name`, and returns it.

        Raises ClusterError if the value does not come in time or is not of type `kind`.
        """
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
        """Returns the values that ranks have already published under `name`, by rank.

        Does not wait. Returns an empty dict if the store cannot be reached.
        """
        try:
            come = [r for r in range(self.size) if self._store.check([f"{name}/{r}"])]
            return {rank: self.read_value(name, rank, kind) for rank in come}
        except Exception:  # the store ended with the first rank
            return {}

    def _wait_for(self, key: str, rank: int) -> bytes:
        """Polls the store for a key that `rank` sets, and returns the value.

        Between two polls the watch can use the store. Raises ClusterError on timeout.
        """
        end = time.monotonic() + _EXCHANGE_SECONDS
        while time.monotonic() < end:
            self.raise_if_failed()
            try:
                if self._store.check([key]):
                    return bytes(self._store.get(key))
            except Exception:
                self.raise_if_failed()
                raise ClusterError("rank 0 has ended or cannot be reached") from None
            time.sleep(_EXCHANGE_PAUSE)
        raise ClusterError(
            f"rank {rank} of {self.size} did not come within {_EXCHANGE_SECONDS} seconds"
        )

    def raise_if_failed(self) -> None:
        """Raises ClusterError if the group has failed, for example because a rank was lost."""
        if self._watch is not None and self._watch.fault is not None:
            raise ClusterError(self._watch.fault)

    def fail(self, fault: str) -> None:
        """Makes all ranks end with this error message."""
        if self._watch is not None:
            self._watch.fail(fault)

    def close(self) -> None:
        """Leaves the group; the other ranks do not report this as a fault.

        Rank 0 waits a few seconds for the others to leave. Its process has the store, which they
        may still read, unless torchrun has started the ranks.
        """
        if self._has_left:
            return
        self._has_left = True
        if self._watch is not None:
            self._watch.close()
        self.channel.close()
        if self.rank == 0 and self._watch is not None:
            self._watch.wait_for_others()


def join_group(rendezvous: Rendezvous) -> Group:
    """Joins the group at a rendezvous; raises ClusterError if other ranks do not join in time.

    A process may join again after its group has failed. Raises MissingPackageError without torch.
    """
    torch = _import_torch()
    distributed = torch.distributed
    interface = find_interface(
        rendezvous.link, rendezvous.address, allows_public=rendezvous.allows_public
    )
    os.environ["GLOO_SOCKET_IFNAME"] = interface.name
    if distributed.is_initialized():
        distributed.destroy_process_group()
    store = _store(distributed, rendezvous, interface)
    number, rank, size = _membership(store, rendezvous)
    own = distributed.PrefixStore(f"group {number}", store)
    own.set_timeout(timedelta(seconds=_EXCHANGE_SECONDS))
    _wait_for_all(own, size)
    try:
        distributed.init_process_group(
            "gloo", store=own, rank=rank, world_size=size, timeout=_FOREVER
        )
    except Exception as error:
        raise ClusterError(f"the ranks cannot connect on {interface.name}: {error}") from None
    return Group(rank, size, torch, own, interface)


def _wait_for_all(store: Any, size: int) -> None:
    """Polls until all ranks have joined, because torch's blocking wait cannot be interrupted.

    Raises ClusterError after a timeout.
    """
    deadline, here = time.monotonic() + _EXCHANGE_SECONDS, store.add("here", 1)
    while here < size:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{here} of {size} ranks are here, and no more came in {_EXCHANGE_SECONDS} seconds"
            )
        time.sleep(_EXCHANGE_PAUSE)
        try:
            here = store.add("here", 0)
        except Exception:
            raise ClusterError("rank 0 has ended or cannot be reached") from None


def _membership(store: Any, rendezvous: Rendezvous) -> tuple[int, int, int]:
    """Returns the group's number at this rendezvous, this process's rank, and the group's size.

    The number tells apart the groups that meet there one after the other.
    """
    if rendezvous.rank is None or rendezvous.size is None:
        return _free_rank(store)
    if not rendezvous.is_own:
        return rendezvous.restarts, rendezvous.rank, rendezvous.size
    number = store.add("groups", 1)
    store.set(f"size {number}", str(rendezvous.size))
    return number, rendezvous.rank, rendezvous.size


def _free_rank(store: Any) -> tuple[int, int, int]:
    """Claims a free rank of the newest group; returns the group's number, the rank and the size.

    Raises ClusterError if no rank becomes free within five minutes.
    """
    deadline, asked = time.monotonic() + _JOIN_SECONDS, 0
    while time.monotonic() < deadline:
        number = store.add("groups", 0)
        if number > asked and store.check([f"size {number}"]):
            asked, size = number, int(store.get(f"size {number}"))
            if (rank := store.add(f"ranks {number}", 1)) < size:
                return number, rank, size
        time.sleep(_ASK_SECONDS)
    raise ClusterError("the group has all its ranks, and none of them has left")


def _import_torch() -> Any:
    # Sharpi reports a lost rank in one line itself.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        return import_module("torch")
    except ImportError:
        raise MissingPackageError(
            "several machines need torch; pip install 'sharpi[cluster]'"
        ) from None


def _store(distributed: Any, rendezvous: Rendezvous, interface: Interface) -> Any:
    """Connects to torch's store at the rendezvous; rank 0 creates it, once per process.

    Under torchrun, torchrun has created it.
    """
    known = _STORES.get((rendezvous.address, rendezvous.port))
    if known is not None:
        return known
    opens = rendezvous.is_own and rendezvous.rank == 0
    if not opens:
        _wait_for_rendezvous(rendezvous)
    listener = _listener(interface.address, rendezvous.port) if opens else None
    try:
        store = distributed.TCPStore(
            rendezvous.address,
            rendezvous.port,
            None if opens else rendezvous.size,
            opens,
            timeout=timedelta(seconds=_CONNECT_SECONDS),
            wait_for_workers=False,
            master_listen_fd=None if listener is None else listener.detach(),
        )
    except Exception:
        raise ClusterError(
            f"{rendezvous.address}:{rendezvous.port} does not answer as the first rank"
        ) from None
    if opens:
        _STORES[rendezvous.address, rendezvous.port] = store
    return store


def _wait_for_rendezvous(rendezvous: Rendezvous) -> None:
    """Polls until the first rank listens, because torch's blocking wait cannot be interrupted.

    Raises ClusterError after a timeout.
    """
    deadline = time.monotonic() + _JOIN_SECONDS
    while True:
        try:
            return socket.create_connection(
                (rendezvous.address, rendezvous.port), _CONNECT_SECONDS
            ).close()
        except OSError as error:
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{rendezvous.address}:{rendezvous.port} does not answer as the first rank:"
                    f" {error.strerror or error}"
                ) from None
        time.sleep(_ASK_SECONDS)


def _listener(address: str, port: int) -> socket.socket:
    """Returns a socket that listens on this address only; raises ClusterError if that fails."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise ClusterError(f"cannot listen on {address}:{port}: {error.strerror}") from None
    listener.listen()
    return listener
