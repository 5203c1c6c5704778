"""Access control: API keys, origins, host names, and the number of requests per client.

Any web page can make its visitors' browsers send requests to this machine, but it does not know an
API key. So if no key is required, foreign origins and foreign host names are refused.
"""

import hashlib
import hmac
import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import urlsplit

from starlette.types import Scope

from sharpi.serve.http.errors import ApiError, busy

PAGE_FOLDER = "/page/"

_PUBLIC_PATHS = ("/", "/health", "/favicon.ico")
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_LOCAL_ENDINGS = (".local", ".localhost", ".internal", ".lan", ".home.arpa")


class Access:
    """Checks the API key, the origin and the host name of each request.

    If `keys` is not empty, a request needs one of them. `origins` lists the web pages that may send
    requests. `host_names` lists allowed names in the Host header, besides those of local networks;
    None allows all. `status_key` is a key that is valid for /props only.
    """

    def __init__(
        self,
        keys: Iterable[str] = (),
        origins: Sequence[str] = (),
        host_names: Sequence[str] | None = None,
        status_key: str | None = None,
    ) -> None:
        self._keys = [_digest(key.encode()) for key in keys]
        self._origins, self._host_names = tuple(origins), host_names
        self._status_key = None if status_key is None else _digest(status_key.encode())

    def require(self, path: str, headers: Mapping[str, str]) -> None:
        """Raises ApiError 401 or 403 if access is refused; names in `headers` are in lower case."""
        self._require_host(headers.get("host"))
        if not self._keys:
            self._require_origin(headers.get("origin"), headers.get("host", ""))
        elif not _is_public(path) and not self._has_key(path, headers):
            raise ApiError(
                401,
                "a valid API key is needed, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _require_host(self, host: str | None) -> None:
        """Raises ApiError for a Host header that may come from DNS rebinding.

        A web page can bind only names of public DNS to this machine's address. So addresses, names
        without a dot and names of local networks are allowed. So is a request without the header,
        because browsers always send it.
        """
        if self._host_names is None or host is None:
            return
        name = _host_name(host).removesuffix(".")
        if name not in self._host_names and not _is_local(name):
            raise ApiError(
                403,
                f"{name[:100]!r} is not a name of this server; an API key would allow it",
                "host",
            )

    def _require_origin(self, origin: str | None, host: str) -> None:
        if origin is None or "*" in self._origins or origin in self._origins:
            return
        if origin == "null" or urlsplit(origin).netloc != host:
            raise ApiError(
                403, f"pages of {origin[:100]!r} are refused; --cors-origin allows them", "origin"
            )

    def _has_key(self, path: str, headers: Mapping[str, str]) -> bool:
        """Returns whether the request has an allowed key; compares all keys in constant time."""
        allowed = list(self._keys)
        if path == "/props" and self._status_key is not None:
            allowed.append(self._status_key)
        given = _digest(_given_key(headers).encode("utf-8", "surrogateescape"))
        matches = [hmac.compare_digest(given, key) for key in allowed]
        return any(matches)


def _digest(key: bytes) -> bytes:
    """Returns the SHA-256 hash of a key, so that timing does not reveal the key's length."""
    return hashlib.sha256(key).digest()


def _given_key(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _is_public(path: str) -> bool:
    return path in _PUBLIC_PATHS or path.startswith(PAGE_FOLDER)


def _host_name(host: str) -> str:
    """Returns the name in a Host header, without the port and the brackets of IPv6."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_local(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return _LABEL.fullmatch(name) is not None or name.endswith(_LOCAL_ENDINGS)
    return True


_NUM_FULL = 4  # this many clients may be at their limit at once
_HOST_BITS = 64  # a machine may use any IPv6 address of its network

# The client whose request the current task answers.
current_client: ContextVar[str] = ContextVar("current_client", default="")


class Admission:
    """Limits each client to `places` requests at once, and all clients to four times as many."""

    def __init__(self, places: int) -> None:
        self._places, self._held = places, Counter[str]()

    @contextmanager
    def admitted(self, client: str) -> Iterator[None]:
        """Counts a client's request during the `with` block; raises ApiError 429 at the limit."""
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
            self._held += Counter()  # drops clients without requests


def client_of(scope: Scope) -> str:
    """Returns the client's IPv4 address, or the /64 network of its IPv6 address."""
    address = (scope.get("client") or ("",))[0]
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return str(address)
    if known.version == 4 or known.ipv4_mapped is not None:
        return str(known if known.version == 4 else known.ipv4_mapped)
    return str(ipaddress.ip_network((known, _HOST_BITS), strict=False))
