"""Which answers wait and which run, and who has to give way when KV pages run out."""

from collections import deque
from collections.abc import Iterable, Iterator

from sharpi.engine.scheduling.answer import Answer
from sharpi.engine.scheduling.prefix_cache import PrefixCache
from sharpi.errors import ContextFullError
from sharpi.ops.cpu.kv_cache import PAGE_POSITIONS


class RunQueue:
    """`waiting` in the order they came, `running` the oldest first; at most `max_parallel`.

    `max_pages`: those of one answer.
    """

    def __init__(self, cache: PrefixCache, max_parallel: int, max_pages: int) -> None:
        self._cache, self._max_parallel, self._max_pages = cache, max_parallel, max_pages
        self.waiting: deque[Answer] = deque()
        self.running: list[Answer] = []

    def __iter__(self) -> Iterator[Answer]:
        return iter([*self.waiting, *self.running])

    def add(self, answers: Iterable[Answer]) -> None:
        """They wait."""
        self.waiting += answers

    def remove(self, answer: Answer) -> None:
        """It has ended."""
        answer.release()
        if answer in self.running:
            self.running.remove(answer)
        else:
            self.waiting.remove(answer)

    def admit(self) -> None:
        """Lets begin who may."""
        while self.waiting and len(self.running) < self._max_parallel:
            if self.running and not self._fits(self.waiting[0]):
                return
            self.running.append(self.waiting.popleft())
            self.running.sort(key=lambda answer: answer.request_id.number)

    def _fits(self, answer: Answer) -> bool:
        """Whether the tokens so far of all that run and of one more have pages."""
        promised = sum(_pages_to_come(each) for each in self.running)
        shared = sum(page.num_users > 0 for page in self._cache.find(answer.tokens[:-1]).whole)
        return promised + _pages_to_come(answer) - shared <= self._cache.num_available

    def share(self, answer: Answer, budget: int) -> int:
        """How many tokens, at most `budget`, it may compute now: those have pages.

        0 where it had to give way itself. Raises ContextFullError where there is nobody to.
        """
        table = answer.open(self._cache, self._max_pages)
        count = answer.next_count(budget)
        while not table.reserve(count):
            if len(self.running) == 1:
                raise ContextFullError("all KV pages are in use by other sequences; raise -c")
            youngest = self.running[-1]
            self._preempt(youngest)
            if youngest is answer:
                return 0
        return count

    def _preempt(self, answer: Answer) -> None:
        answer.release()
        self.running.remove(answer)
        self.waiting.appendleft(answer)


def _pages_to_come(answer: Answer) -> int:
    has = answer.table.num_pages if answer.table else 0
    return max(0, len(answer.tokens) // PAGE_POSITIONS + 1 - has)
