"""The bytes of one file over HTTP, in ranges, taken up again where a connection broke.

Plain HTTP and not the library's own download: that one begins a file anew when the program was
stopped, does not check what came, and refuses files above 50 GB, which ranges get past.
"""

import time
from collections.abc import Callable

from huggingface_hub import constants
from huggingface_hub.utils import get_session, hf_raise_for_status
from msgspec import Struct

from sharpi.hub.hub_errors import BusyHubError, UnreachableError, hub_errors
from sharpi.hub.partial_file import PartialFile

_RANGE_BYTES = 16 << 30  # one request: content networks do not serve more than 50 GB


class Patience(Struct, frozen=True):
    """How often to try again without a byte received in between, and how long to wait at first."""

    max_attempts: int = 5
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 30.0

    def seconds(self, attempt: int, error: UnreachableError | None) -> float:
        """How long to wait before the next try: twice as long each time, or as the hub asked."""
        asked = error.wait_seconds if isinstance(error, BusyHubError) else None
        wait = self.first_wait_seconds * 2**attempt if asked is None else asked
        return min(wait, self.longest_wait_seconds)


class DownloadSource(Struct, frozen=True):
    """Where the bytes come from; the URL may redirect, each time to another place."""

    repository: str
    url: str
    headers: dict[str, str]


def receive(
    source: DownloadSource, target: PartialFile, patience: Patience, on_bytes: Callable[[int], None]
) -> None:
    """Fill `target` up to its size; raises HubError when the hub refuses or stays silent."""
    fruitless = 0
    while not target.is_whole:
        before, error = target.received, None
        try:
            _receive_range(source, target, on_bytes)
        except UnreachableError as fault:
            error = fault
        fruitless = 0 if target.received > before else fruitless + 1
        if fruitless >= patience.max_attempts:
            raise error or UnreachableError(f"{source.url} ends before its end")
        if error is not None:
            time.sleep(patience.seconds(fruitless, error))


def _receive_range(
    source: DownloadSource, target: PartialFile, on_bytes: Callable[[int], None]
) -> None:
    last = min(target.size, target.received + _RANGE_BYTES) - 1
    headers = {
        **source.headers,
        "Range": f"bytes={target.received}-{last}",
        "Accept-Encoding": "identity",
    }
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    session = get_session()
    with (
        hub_errors(source.repository),
        session.stream("GET", source.url, headers=headers, timeout=timeout) as response,
    ):
        hf_raise_for_status(response)
        if response.status_code != 206:  # all of it, whatever was asked for
            on_bytes(-target.received)
            target.restart()
        for data in response.iter_bytes():  # as they come: a chunk awaited whole is lost
            target.append(data)
            on_bytes(len(data))
            if target.received > target.size:
                return
