"""The page at `/`: a fixed table of files, read once; no path from a request reaches the disk."""

import hashlib
from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sharpi.resources import page_folder
from sharpi.serve.http.access import PAGE_FOLDER

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The page runs its own files and nothing else: not what a model writes, not what is elsewhere.
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)


class PageFile(Struct, frozen=True):
    """One file's bytes; `tag` changes when they do."""

    content: bytes
    media_type: str
    tag: str

    async def respond(self, request: Request) -> Response:
        """The file, or 304 for who has it already."""
        headers = self._headers()
        if self.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)

    def _headers(self) -> dict[str, str]:
        """Kept, but asked for again: a newer sharpi has newer files at the same addresses."""
        return {
            "Cache-Control": "no-cache",
            "ETag": self.tag,
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }


def page_routes() -> list[Route]:
    """GET and HEAD of `/` and of everything that the page loads, under `/page/`."""
    folder = page_folder()
    files = sorted(path for path in folder.rglob("*") if path.suffix in _TYPES)
    return [_route(folder, path) for path in files]


def _route(folder: Path, path: Path) -> Route:
    name = path.relative_to(folder).as_posix()
    address = "/" if name == "index.html" else f"{PAGE_FOLDER}{name}"
    return Route(address, _read(path).respond, methods=["GET"])


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return PageFile(content, _TYPES[path.suffix], tag)
