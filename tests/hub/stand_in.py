"""A stand-in for the hub's HTTP interface: repositories in memory, and its possible failures.

Files are served as the hub serves large ones: a redirect, with the checksum in its headers, to a
content network under another host name, which supports ranges.
"""

import hashlib
import json
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

_INFO = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?")
_FILE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")


@dataclass
class Request:
    """A request of a client."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass
class Refusal:
    """A response other than the correct one."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


class StandIn:
    """The hub; `with` starts and stops it. Faults are set as attributes while it runs."""

    def __init__(self) -> None:
        self.commits: dict[tuple[str, str], dict[str, bytes]] = {}
        self.refs: dict[tuple[str, str], str] = {}
        self.requests: list[Request] = []
        self.refusals: dict[str, list[Refusal]] = {}  # by what the path contains; taken in turn
        self.break_after: list[int] = []  # bytes after which each content answer breaks off
        self.corrupt: set[str] = set()  # paths whose content comes with a wrong byte
        self.ignores_ranges = False
        self.token: str | None = None
        self.gate = threading.Event()  # content waits for it
        self.gate.set()
        self._content: dict[str, tuple[str, bytes]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, repository: str, files: dict[str, bytes], ref: str = "main") -> str:
        """Adds a commit of these files, to which `ref` then points."""
        listing = json.dumps({path: checksum(data) for path, data in files.items()})
        commit = hashlib.sha1(listing.encode()).hexdigest()
        self.commits[repository, commit] = files
        self.refs[repository, ref] = commit
        for path, data in files.items():
            self._content[checksum(data)] = (path, data)
        return commit

    def content_requests(self) -> list[Request]:
        return [each for each in self.requests if each.path.startswith("/content/")]

    def __enter__(self) -> "StandIn":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()

    def _files(self, repository: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        commit = self.refs.get((repository, revision), revision)
        files = self.commits.get((repository, commit))
        return None if files is None else (commit, files)

    def _handler(hub) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def _answer(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                hub.requests.append(Request(self.command, self.path, headers))
                url = urlsplit(self.path)
                path = unquote(url.path)
                for part, refusals in hub.refusals.items():
                    if part in self.path and refusals:
                        refusal = refusals.pop(0)
                        return self._send(refusal.status, refusal.headers)
                if path.startswith("/content/"):
                    return self._send_content(path.removeprefix("/content/"))
                if path == "/api/models":
                    return self._send_search(parse_qs(url.query).get("search", [""])[0])
                if match := _INFO.fullmatch(path):
                    return self._send_info(match["repository"], match["revision"] or "main")
                if match := _FILE.fullmatch(path):
                    return self._send_file(match["repository"], match["revision"], match["path"])
                return self._send(404)

            def _send_info(self, repository: str, revision: str) -> None:
                if not any(repository == known for known, _ in hub.commits):
                    return self._send(401, {"X-Error-Code": "RepoNotFound"})
                found = hub._files(repository, revision)
                if found is None:
                    return self._send(404, {"X-Error-Code": "RevisionNotFound"})
                commit, files = found
                self._send_json(
                    {
                        "_id": "1",
                        "id": repository,
                        "sha": commit,
                        "siblings": [_sibling(path, data) for path, data in files.items()],
                    }
                )

            def _send_search(self, text: str) -> None:
                repositories = sorted({name for name, _ in hub.commits})
                self._send_json(
                    [{"_id": "1", "id": name} for name in repositories if text[:4] in name]
                )

            def _send_file(self, repository: str, revision: str, path: str) -> None:
                found = hub._files(repository, revision)
                if found is None or path not in found[1]:
                    return self._send(404, {"X-Error-Code": "EntryNotFound"})
                if hub.token and self.headers.get("authorization") != f"Bearer {hub.token}":
                    return self._send(401, {"X-Error-Code": "GatedRepo"})
                data = found[1][path]
                place = f"http://localhost:{hub._server.server_port}/content/{checksum(data)}"
                headers = {
                    "X-Repo-Commit": found[0],
                    "X-Linked-Size": str(len(data)),
                    "X-Linked-Etag": f'"{checksum(data)}"',
                    "ETag": '"of the redirect"',
                    "Location": f"{place}?name={quote(path)}",
                }
                self._send(302, headers)

            def _send_content(self, name: str) -> None:
                path, data = hub._content[name]
                if path in hub.corrupt:
                    data = bytes([data[0] ^ 1]) + data[1:]
                asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
                status, headers = 200, {}
                if asked and not hub.ignores_ranges:
                    first, last = int(asked[1]), int(asked[2] or len(data) - 1)
                    headers = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
                    status, data = 206, data[first : last + 1]
                hub.gate.wait(60)
                self._send(status, headers, data)

            def _send_json(self, value: Any) -> None:
                self._send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

            def _send(
                self, status: int, headers: dict[str, str] | None = None, body: bytes = b""
            ) -> None:
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self._write(body)

            def _write(self, body: bytes) -> None:
                if body and self.path.startswith("/content/") and hub.break_after:
                    body = body[: hub.break_after.pop(0)]
                    self.close_connection = True
                with suppress(ConnectionError):  # a client that was stopped
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Tests print nothing."""

        return Handler


def checksum(data: bytes) -> str:
    """Returns the name of a large file's content at the hub."""
    return hashlib.sha256(data).hexdigest()


def _sibling(path: str, data: bytes) -> dict[str, Any]:
    pointer = {"sha256": checksum(data), "size": len(data), "pointerSize": 134}
    return {"rfilename": path, "size": len(data), "blobId": "0" * 40, "lfs": pointer}
