"""The server's socket: its address, and the errors of binding it."""

import socket

import pytest

from sharpi.errors import UsageError
from sharpi.serve.web_server import bind, is_loopback, url_of


def test_a_free_port() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert url_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert is_loopback(listener)


def test_all_addresses_are_reached_by_loopback() -> None:
    with bind("0.0.0.0", 0) as listener:
        assert url_of(listener).startswith("http://127.0.0.1:")
        assert not is_loopback(listener)


def test_ipv6_has_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        listener = bind("::1", 0)
    except UsageError:
        pytest.skip("no IPv6 loopback")
    with listener:
        assert url_of(listener).startswith("http://[::1]:")
        assert is_loopback(listener)


def test_a_port_in_use() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} .* in use; .*--port"):
            bind("127.0.0.1", port)


def test_an_address_of_another_machine() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1"):
        bind("192.0.2.1", 0)


def test_no_address() -> None:
    with pytest.raises(UsageError, match="--host no such host"):
        bind("no such host", 0)
