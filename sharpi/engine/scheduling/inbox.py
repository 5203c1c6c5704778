"""Orders of other threads to the scheduler: new requests, and requests to cancel."""

from collections import deque
from threading import Lock

from sharpi.engine.scheduling.request import Request, RequestId


class Inbox:
    """Filled by any thread, emptied by the engine's thread; `has_news` may be read unlocked."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: deque[Request] = deque()
        self._cancelled: set[RequestId] = set()
        self._last_number = 0
        self.has_news = False

    def __len__(self) -> int:
        return len(self._requests)

    def number(self) -> RequestId:
        """Returns the next request id."""
        with self._lock:
            self._last_number += 1
            return RequestId(self._last_number)

    def put(self, request: Request) -> None:
        """Adds a request."""
        with self._lock:
            self._requests.append(request)
            self.has_news = True

    def cancel(self, request_id: RequestId) -> None:
        """Asks for the end of a request, if it has not ended."""
        with self._lock:
            self._cancelled.add(request_id)
            self.has_news = True

    def empty(self) -> tuple[deque[Request], set[RequestId]]:
        """Takes everything that has come since the last call."""
        with self._lock:
            requests, cancelled = self._requests, self._cancelled
            self._requests, self._cancelled = deque(), set()
            self.has_news = False
            return requests, cancelled
