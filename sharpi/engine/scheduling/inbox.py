"""What other threads want of the scheduler: new answers, and the ends of some."""

from collections import deque
from threading import Lock

from sharpi.engine.scheduling.request import Request, RequestId


class Inbox:
    """Filled by any thread, emptied by the engine's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: deque[Request] = deque()
        self._cancelled: set[RequestId] = set()
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._requests)

    def number(self) -> RequestId:
        """The next request id."""
        with self._lock:
            self._last_number += 1
            return RequestId(self._last_number)

    def put(self, request: Request) -> None:
        """One answer more."""
        with self._lock:
            self._requests.append(request)

    def cancel(self, request_id: RequestId) -> None:
        """One less, if it has not ended."""
        with self._lock:
            self._cancelled.add(request_id)

    def empty(self) -> tuple[deque[Request], set[RequestId]]:
        """All that came since the last call."""
        with self._lock:
            requests, cancelled = self._requests, self._cancelled
            self._requests, self._cancelled = deque(), set()
            return requests, cancelled
