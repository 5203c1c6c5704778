"""Serves the web page at `/` from files in memory; request paths are never used as file paths."""

import hashlib
from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from sharpi.resources import page_folder
from sharpi.serve.http.access import PAGE_FOLDER
from sharpi.serve.http.endpoint import Endpoint

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The page may load only its own files: no code that a model writes, and nothing from other hosts.
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)


class PageFile(Struct, frozen=True):
    """One file of the web page, with its content in memory."""

    content: bytes
    media_type: str
    tag: str  # changes whenever the content does

    async def respond(self, request: Request) -> Response:
        """Returns the file, or status 304 if the client has this version cached."""
        headers = self._headers()
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)

    def _headers(self) -> dict[str, str]:
        """Returns headers for caching with revalidation, and for security."""
        return {
            "Cache-Control": "no-cache",
            "ETag": self.tag,
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }


def page_endpoints() -> list[Endpoint]:
    """Returns the endpoints of `/`, and of all files that the web page loads, under `/page/`."""
    folder = page_folder()
    files = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
    return [_endpoint(folder, path) for path in files]


def _endpoint(folder: Path, path: Path) -> Endpoint:
    name = path.relative_to(folder).as_posix()
    address = "/" if name == "index.html" else f"{PAGE_FOLDER}{name}"
    return Endpoint("GET", address, _read(path).respond, is_public=False)


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return PageFile(content, _TYPES[path.suffix], tag)
