"""Downloads one file over HTTP in ranges, and resumes if a connection breaks.

It does not use huggingface_hub's download function, which restarts a file after the program was
stopped, does not check the content, and rejects files above 50 GB, for which ranges are needed.
"""

import time
from collections.abc import Callable

from huggingface_hub import constants
from huggingface_hub.utils import get_session, hf_raise_for_status
from msgspec import Struct

from sharpi.hub.hub_errors import BusyHubError, UnreachableError, hub_errors
from sharpi.hub.partial_file import PartialFile

_RANGE_BYTES = 16 << 30  # bytes of one request: content networks do not serve more than 50 GB


class RetryPolicy(Struct, frozen=True):
    """The number of retries of a download, and the waiting times between them."""

    max_attempts: int = 5  # successive attempts that receive nothing
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 30.0

    def seconds(self, attempt: int, error: UnreachableError | None) -> float:
        """Returns the seconds to wait before the next attempt.

        The time doubles with each attempt, unless the hub names another time in `error`.
        """
        asked = error.wait_seconds if isinstance(error, BusyHubError) else None
        wait = self.first_wait_seconds * 2**attempt if asked is None else asked
        return min(wait, self.longest_wait_seconds)


class DownloadSource(Struct, frozen=True):
    """The URL and request headers of a file; the URL may redirect differently each time."""

    repository: str
    url: str
    headers: dict[str, str]


def receive(
    source: DownloadSource,
    target: PartialFile,
    retries: RetryPolicy,
    on_bytes: Callable[[int], None],
) -> None:
    """Downloads the rest of a file to `target`.

    `on_bytes`: called with the number of bytes received, negative if the file restarts. Raises
    HubError if the hub rejects the request, or if all retries receive nothing.
    """
    num_failed = 0
    while not target.is_complete:
        before, error = target.received, None
        try:
            _receive_range(source, target, on_bytes)
        except UnreachableError as fault:
            error = fault
        num_failed = 0 if target.received > before else num_failed + 1
        if num_failed >= retries.max_attempts:
            raise error or UnreachableError(f"the download of {source.url} ended early")
        if error is not None:
            time.sleep(retries.seconds(num_failed, error))


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
        if response.status_code != 206:  # the server sent the whole file, not the range
            on_bytes(-target.received)
            target.restart()
        # No chunk size: if the connection broke, a partly filled chunk would be lost.
        for data in response.iter_bytes():
            target.append(data)
            on_bytes(len(data))
            if target.received > target.size:
                return
