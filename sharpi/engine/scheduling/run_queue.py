"""The order of requests: which wait, which run, and which is preempted when KV pages run out."""

from collections import Counter, deque
from itertools import count

from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.engine.scheduling.request import Request, RequestId
from sharpi.errors import ContextFullError

_MAX_CLIENTS = 1000  # whose turns are remembered
_BYTES_BETWEEN = 32 << 20  # read from disk between two steps of other requests


class RunQueue:
    """The requests that wait, in order of arrival, and up to `max_parallel` that run, oldest first.

    Any thread may call `put` with a request and `cancel` with the id of one. Waiting requests of
    several clients start in rotation. One request has at most `max_pages`. Each running request has
    a slot number of its own; `slot_texts` has the computed tokens of the last request in each slot.
    """

    def __init__(self, cache: PrefixCache, max_parallel: int, max_pages: int) -> None:
        self._cache, self._max_parallel, self._max_pages = cache, max_parallel, max_pages
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._start_numbers: dict[str, int] = {}  # the number of each client's last start
        self._num_starts = count(1)
        self.slot_texts: list[list[int]] = [[] for _ in range(max_parallel)]
        # Each call of these is one step of a deque, which no other thread interrupts.
        self._arrived, self._cancelled = deque[Request](), deque[RequestId]()
        self.put, self.cancel = self._arrived.append, self._cancelled.append

    @property
    def num_waiting(self) -> int:
        """The number of requests that have not begun, or lost their pages."""
        return len(self.waiting) + len(self._arrived)

    def take_in(self) -> list[Request]:
        """Queues the requests that have come; returns those that are to be cancelled."""
        if not (self._arrived or self._cancelled):
            return []
        # The ids come first, so that the request of each has come, too.
        cancelled = {self._cancelled.popleft() for _ in range(len(self._cancelled))}
        self.waiting.extend(self._arrived.popleft() for _ in range(len(self._arrived)))
        return [each for each in (*self.waiting, *self.running) if each.request_id in cancelled]

    def remove(self, request: Request) -> None:
        if request.slot is not None and request.num_computed:
            self.slot_texts[request.slot] = request.tokens[: request.num_computed]
        request.release()
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)

    def admit(self) -> None:
        """Starts waiting requests, until pages or slots do not suffice for the next one."""
        while self.waiting and len(self.running) < self._max_parallel:
            request = self._next()
            if self.running and not self._fits(request):
                return
            self.waiting.remove(request)
            self._record_start(request.client)
            taken = {each.slot for each in self.running}
            request.slot = next(slot for slot in count() if slot not in taken)
            self.running.append(request)
            self.running.sort(key=lambda request: request.request_id.number)

    def _next(self) -> Request:
        """Returns the oldest request of the client with the fewest running requests."""
        running, starts = Counter(each.client for each in self.running), self._start_numbers
        return min(self.waiting, key=lambda own: (running[own.client], starts.get(own.client, 0)))

    def _record_start(self, client: str) -> None:
        self._start_numbers.pop(client, None)
        self._start_numbers[client] = next(self._num_starts)
        if len(self._start_numbers) > _MAX_CLIENTS:
            del self._start_numbers[next(iter(self._start_numbers))]

    def _fits(self, request: Request) -> bool:
        """Returns True if pages suffice for this request and for all that running requests need."""
        promised = sum(each.pages_to_come for each in self.running)
        shared = sum(page.num_users > 0 for page in self._cache.find(request.tokens[:-1]).whole)
        return promised + request.pages_to_come - shared <= self._cache.num_available

    def reserve_tokens(self, request: Request, budget: int) -> int:
        """Reserves pages for the next tokens, at most `budget`; returns how many, 0 to wait.

        Preempts the youngest requests if pages are short; raises ContextFullError if there is none.
        """
        table = request.table
        if table is None:
            if not request.restore(self._cache, _BYTES_BETWEEN if len(self.running) > 1 else None):
                return 0
            table = request.open(self._cache, self._max_pages)
        num_tokens = 1 if request.is_decoding else request.next_count(budget)
        while not table.reserve(num_tokens):
            if len(self.running) == 1:
                raise ContextFullError("all KV pages are in use by other sequences; raise -c")
            youngest = self.running[-1]
            self._preempt(youngest)
            if youngest is request:
                return 0
        return num_tokens

    def _preempt(self, request: Request) -> None:
        request.release()
        self.running.remove(request)
        self.waiting.appendleft(request)
