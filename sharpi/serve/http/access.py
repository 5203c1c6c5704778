"""Access: who may ask: keys, and which web pages and host names a browser may come from.

A page on the web can make its visitor's browser send requests to this machine, but knows no key:
where none is asked for, foreign origins are refused, and host names other than this machine's.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from sharpi.serve.http.errors import ApiError

PAGE_FOLDER = "/page/"

_PUBLIC_PATHS = ("/", "/health", "/favicon.ico")
_LOOPBACK_NAMES = ("localhost", "::1")


class Access:
    """`keys`: any of them lets in, none asks for none. `origins`: web pages that may ask.

    `host_names`: what Host may say; None takes all. `status_key` opens /props alone.
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
        """Raises ApiError 401 or 403; `headers` by their names in lower case."""
        self._require_host(headers.get("host", ""))
        if not self._keys:
            self._require_origin(headers.get("origin"), headers.get("host", ""))
        elif not _is_public(path) and not self._has_key(path, headers):
            raise ApiError(
                401,
                "a valid API key is needed, as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
                "invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _require_host(self, host: str) -> None:
        if self._host_names is None:
            return
        name = _host_name(host)
        if name not in self._host_names and name not in _LOOPBACK_NAMES and not _is_127(name):
            raise ApiError(403, f"this server is not {name[:100]!r}; a key would let it be", "host")

    def _require_origin(self, origin: str | None, host: str) -> None:
        if origin is None or "*" in self._origins or origin in self._origins:
            return
        if origin == "null" or urlsplit(origin).netloc != host:
            raise ApiError(
                403, f"pages of {origin[:100]!r} may not ask; --cors-origin lets them", "origin"
            )

    def _has_key(self, path: str, headers: Mapping[str, str]) -> bool:
        """Compares with every key, each in constant time."""
        allowed = list(self._keys)
        if path == "/props" and self._status_key is not None:
            allowed.append(self._status_key)
        given = _digest(_given_key(headers).encode("utf-8", "surrogateescape"))
        matches = [hmac.compare_digest(given, key) for key in allowed]
        return any(matches)


def _digest(key: bytes) -> bytes:
    """Of one length, so that the comparison tells nothing about that either."""
    return hashlib.sha256(key).digest()


def _given_key(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _is_public(path: str) -> bool:
    return path in _PUBLIC_PATHS or path.startswith(PAGE_FOLDER)


def _host_name(host: str) -> str:
    """Without the port and the brackets of IPv6."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_127(name: str) -> bool:
    parts = name.split(".")
    return len(parts) == 4 and parts[0] == "127" and all(part.isdecimal() for part in parts)
