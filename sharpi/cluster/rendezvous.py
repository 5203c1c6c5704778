"""Rendezvous: where one model's ranks meet, the network interface there, and torch's store.

torch.distributed does not authenticate. So it listens on one interface only. An interface with a
public address is refused unless the user allows it.
"""

import fcntl
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from sharpi.errors import ClusterError, LinkError

_GET_ADDRESS, _GET_MTU = 0x8915, 0x8921  # SIOCGIFADDR and SIOCGIFMTU of Linux
_NO_SUCH_NAME = (socket.EAI_NONAME, socket.EAI_NODATA)


class Interface(Struct, frozen=True):
    """One network interface: its name, its IPv4 address, and its MTU in bytes."""

    name: str
    address: str
    mtu: int

    @property
    def is_private(self) -> bool:
        """True if the address is private, so that the internet cannot reach it."""
        return ipaddress.ip_address(self.address).is_private


def find_interface(name: str | None, peer: str, *, allows_public: bool = False) -> Interface:
    """Returns the interface `name`, or the one to `peer`; raises LinkError, also if public."""
    interface = _named(name) if name else _towards(peer)
    if not interface.is_private and not allows_public:
        raise LinkError(
            f"{interface.name} has the public address {interface.address}, where anybody could"
            " join; name a private one with --link, or use --insecure-link"
        )
    return interface


def refuse_unknown_name(host: str) -> None:
    """Raises LinkError if name servers answer that no machine has this name."""
    try:
        socket.getaddrinfo(host, None, family=socket.AF_INET)
    except socket.gaierror as error:
        if error.errno in _NO_SUCH_NAME:
            raise LinkError(
                f"{host}: no machine has this name; check it, or give an address"
            ) from None


def _named(name: str) -> Interface:
    known = [each for _, each in socket.if_nameindex()]
    if name not in known:
        raise LinkError(f"--link {name}: there is no such interface, but {', '.join(known)}")
    try:
        address = socket.inet_ntoa(_ask(name, _GET_ADDRESS)[20:24])
    except OSError:
        raise LinkError(f"--link {name}: this interface has no IPv4 address") from None
    (mtu,) = struct.unpack("i", _ask(name, _GET_MTU)[16:20])
    return Interface(name, address, mtu)


def _towards(peer: str) -> Interface:
    """Returns the interface that the routing table gives for `peer`, without sending anything."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((peer, 9))
            address = probe.getsockname()[0]
    except OSError as error:
        raise ClusterError(f"{peer} cannot be reached: {error.strerror or error}") from None
    for _, name in socket.if_nameindex():
        try:
            if _named(name).address == address:
                return _named(name)
        except ClusterError:  # the interface has no address
            continue
    raise LinkError(f"no interface has the address {address}; name one with --link")


def _ask(name: str, request: int) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return fcntl.ioctl(probe.fileno(), request, struct.pack("256s", name.encode()[:15]))


DEFAULT_PORT = 29400
EXCHANGE_SECONDS = 300
POLL_SECONDS = 0.02
_JOIN_SECONDS = 300
_ASK_SECONDS = 0.5
_CONNECT_SECONDS = 10
# The stores that this process has opened, which later groups use again.
_STORES: dict[tuple[str, int], Any] = {}


class Rendezvous(Struct, frozen=True):
    """The rendezvous of a model's ranks: the first rank's address, and this process's rank.

    `rank` and `size` are None if this process has to ask the first rank for them.
    """

    address: str
    port: int = DEFAULT_PORT
    rank: int | None = None
    size: int | None = None
    link: str | None = None  # the network interface; None uses the one that routes to `address`
    allows_public: bool = False
    is_own: bool = False  # sharpi's first rank listens at the address; False if torchrun does
    restarts: int = 0  # how often torchrun has restarted the processes


def own_gpu(variables: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Returns the index of this process's GPU if torchrun started several here, else ()."""
    local = variables.get("LOCAL_RANK", "")
    is_alone = variables.get("LOCAL_WORLD_SIZE", "1") == "1"
    return () if is_alone or not local.isdecimal() else (int(local),)


def torchrun_rendezvous(variables: Mapping[str, str] = os.environ) -> Rendezvous | None:
    """Returns what torchrun's variables name, None without; raises ClusterError for bad ones."""
    if "RANK" not in variables or "WORLD_SIZE" not in variables:
        return None
    try:
        rank, size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        port = int(variables.get("MASTER_PORT", DEFAULT_PORT))
        restarts = int(variables.get("TORCHELASTIC_RESTART_COUNT", 0))
    except ValueError as error:
        raise ClusterError(f"RANK, WORLD_SIZE and MASTER_PORT are numbers: {error}") from None
    if not 0 <= rank < size:
        raise ClusterError(f"RANK {rank} is not one of WORLD_SIZE {size}")
    address = variables.get("MASTER_ADDR", "127.0.0.1")
    return Rendezvous(address, port, rank, size, restarts=restarts)


def wait_for_all(store: Any, size: int) -> None:
    """Polls until all ranks have joined, as torch cannot be interrupted; raises ClusterError."""
    deadline, here = time.monotonic() + EXCHANGE_SECONDS, store.add("here", 1)
    while here < size:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{here} of {size} ranks are here, and no more came in {EXCHANGE_SECONDS} seconds"
            )
        time.sleep(POLL_SECONDS)
        try:
            here = store.add("here", 0)
        except Exception:
            raise ClusterError("rank 0 has ended or cannot be reached") from None


def membership(store: Any, rendezvous: Rendezvous) -> tuple[int, int, int]:
    """Returns the number of the group at this rendezvous, this process's rank, and the size."""
    if rendezvous.rank is None or rendezvous.size is None:
        return _free_rank(store)
    if not rendezvous.is_own:
        return rendezvous.restarts, rendezvous.rank, rendezvous.size
    number = store.add("groups", 1)
    store.set(f"size {number}", str(rendezvous.size))
    return number, rendezvous.rank, rendezvous.size


def _free_rank(store: Any) -> tuple[int, int, int]:
    """Claims a rank of the newest group; returns the group's number, the rank and the size."""
    deadline, asked = time.monotonic() + _JOIN_SECONDS, 0
    while time.monotonic() < deadline:
        number = store.add("groups", 0)
        if number > asked and store.check([f"size {number}"]):
            asked, size = number, int(store.get(f"size {number}"))
            if (rank := store.add(f"ranks {number}", 1)) < size:
                return number, rank, size
        time.sleep(_ASK_SECONDS)
    raise ClusterError("the group has all its ranks, and none of them has left")


def open_store(distributed: Any, rendezvous: Rendezvous, interface: Interface) -> Any:
    """Connects to torch's store, which rank 0 creates once per process, or torchrun has created."""
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
    """Polls until the first rank listens, since torch's blocking wait cannot be interrupted."""
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
