"""Lists this user's servers on this machine, each of which keeps a file while it runs."""

import contextlib
from collections.abc import Iterator

from msgspec import Struct

from sharpi.system.process_files import ProcessFile, facts_of_processes

_SUFFIX = ".json"


class RunningServer(Struct, frozen=True):
    """A running server, as its file describes it."""

    pid: int
    url: str
    model: str
    created: int  # seconds since 1970
    status_key: str  # an API key that is valid for /props only


@contextlib.contextmanager
def registered(server: RunningServer) -> Iterator[None]:
    """Lets `running_servers` find the server during the `with` block; raises OSError."""
    port = server.url.rpartition(":")[2]
    with ProcessFile(f"{server.pid}-{port}{_SUFFIX}", server):
        yield


def running_servers() -> list[RunningServer]:
    """Returns the running servers, oldest first, and removes stale files; raises OSError."""
    found = facts_of_processes(f"*{_SUFFIX}", RunningServer)
    return sorted(found, key=lambda server: (server.created, server.pid))
