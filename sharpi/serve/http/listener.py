"""Binds the server's socket before the model is loaded."""

import errno
import ipaddress
import os
import socket

from sharpi.errors import UsageError

_UNREAD_MILLISECONDS = 60_000  # the system drops a peer that acknowledges nothing for this long


def bind(host: str, port: int) -> socket.socket:
    """Returns a bound and listening socket.

    Port 0 chooses a free port. Raises UsageError if binding fails.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror or error}") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MILLISECONDS)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(_refusal(host, port, error)) from None
    return listener


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, 0 takes a free one"
    if error.errno == errno.EACCES:
        return (
            f"port {port} needs privileges that you do not have; choose 1024 or higher with --port"
        )
    return f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}"


def is_loopback(listener: socket.socket) -> bool:
    """Returns whether the socket is bound to a loopback address."""
    return _address(listener).is_loopback


def url_of(listener: socket.socket) -> str:
    """Returns the URL of the socket for clients on this machine, without a trailing slash."""
    address, port = _address(listener), listener.getsockname()[1]
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    name = str(address) if address.version == 4 else f"[{address}]"
    return f"http://{name}:{port}"


def _address(listener: socket.socket) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0])
