"""Finds the network interface that ranks connect over, and checks that it may be used.

torch.distributed does not authenticate. So it listens on one interface only. An interface with a
public address is refused unless the user allows it.
"""

import fcntl
import ipaddress
import socket
import struct

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
    """Returns the interface `name`, or, if that is None, the interface that routes to `peer`.

    Raises LinkError if there is none, and for a public address unless `allows_public` is set.
    """
    interface = _named(name) if name else _towards(peer)
    if not interface.is_private and not allows_public:
        raise LinkError(
            f"{interface.name} has the public address {interface.address}, where anybody could"
            " join; name a private one with --link, or use --insecure-link"
        )
    return interface


def refuse_unknown_name(host: str) -> None:
    """Raises LinkError if the name servers answer that there is no machine named `host`.

    A name server that does not answer proves nothing, so that is no error here.
    """
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
