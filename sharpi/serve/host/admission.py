"""Admission: how many requests are prepared and answered, altogether and for each client."""

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from starlette.types import Scope

from sharpi.serve.http.errors import busy

_NUM_FULL = 4  # clients that may hold all the places of one
_HOST_BITS = 64  # of an IPv6 address; a machine may use any of its network's

# The client whose request the current task answers.
current_client: ContextVar[str] = ContextVar("current_client", default="")


class Admission:
    """Allows `places` requests at once to each client, and a few times as many to all together."""

    def __init__(self, places: int) -> None:
        self._places, self._held = places, Counter[str]()

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Holds a place for a request during the block; raises ApiError 429 if there is none."""
        num_held = self._held[client]
        if num_held >= self._places or self._held.total() >= _NUM_FULL * self._places:
            raise busy(num_held or self._held.total())
        self._held[client] += 1
        before = current_client.set(client)
        try:
            yield
        finally:
            current_client.reset(before)
            self._held[client] -= 1
            self._held += Counter()  # forgets clients without requests


def client_of(scope: Scope) -> str:
    """Returns the client's IPv4 address, or the network of its IPv6 address."""
    address = (scope.get("client") or ("",))[0]
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return str(address)
    if known.version == 4 or known.ipv4_mapped is not None:
        return str(known if known.version == 4 else known.ipv4_mapped)
    return str(ipaddress.ip_network((known, _HOST_BITS), strict=False))
