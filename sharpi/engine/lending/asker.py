"""Asker: the threads that request outputs of experts from the ranks that lend these experts.

If a rank is lost, this machine itself computes the replies that the rank still owes, from the
mapped file, and later steps send it no requests. The values are the same; only reading from disk is
slower.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from sharpi.cluster.question_line import Bytes, QuestionLine
from sharpi.engine.lending.choice import Choice
from sharpi.engine.lending.expert_programs import MAX_TOKENS, WARM_UP, ExpertPrograms
from sharpi.engine.lending.loan import Loan
from sharpi.experts.native.feed import ExpertFeed
from sharpi.experts.native.remote import RemoteExperts
from sharpi.experts.stats.remote_stats import RemoteStats
from sharpi.system.closing import Closing
from sharpi.system.native_threads import start_native

_PROBES = 7  # requests, of which the first ones find pages and caches cold
_COUNTED = 5
_LEAVE_SECONDS = 5.0


class Asker(Closing):
    """Requests the outputs of the experts in `loans` from other ranks.

    `lines` are the connections to these ranks, and `names` their names for the user. `on_note` is
    called with a line for the user about each rank that is lost.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        loans: Sequence[Loan],
        lines: Sequence[QuestionLine],
        names: Sequence[str],
        programs: ExpertPrograms,
        on_note: Callable[[str], None],
    ) -> None:
        self._lines, self._names, self._programs = lines, names, programs
        self._loans, self._on_note = loans, on_note
        self._lock = threading.Lock()  # of `programs`, and of what is pending
        self._pending: list[bytes | None] = [None] * len(lines)
        self._lost = [False] * len(lines)
        self._threads: list[threading.Thread] = []
        self._on_close: Callable[[], None] = lambda: None
        self._choice: Choice | None = None
        self._line_locks = [threading.Lock() for _ in lines]
        self.remote = RemoteExperts(shape, len(lines), MAX_TOKENS)
        self._ranks = {line.other: index for index, line in enumerate(lines)}
        self._let_ask()

    def _let_ask(self) -> None:
        for loan in self._loans:
            index = self._ranks[loan.lender]
            if not self._lost[index]:
                self.remote.lend(loan.layer, loan.first, loan.end, index)

    def choose_again(self, choice: Choice) -> None:
        """Passes the token count of each step to `choice`, and closes it when the asker closes."""
        self._choice = choice

    def count(self, num_tokens: int) -> None:
        """Passes the number of tokens of a step to the `Choice`, if there is one."""
        if self._choice is not None:
            self._choice.count(num_tokens)

    def pause(self) -> None:
        """Makes steps send no requests from the next one on; any thread may call it."""
        for index in range(len(self._lines)):
            self.remote.forget(index)

    def resume(self) -> None:
        """Makes steps send requests again, and other ranks read the experts that they lend.

        Any thread may call it.
        """
        for index, line in enumerate(self._lines):
            if not self._lost[index]:
                with self._line_locks[index]:
                    line.ask(WARM_UP, len(WARM_UP))
        self._let_ask()

    def round_trip(self) -> float:
        """Returns the median seconds from a request to its reply, for the slowest rank.

        Infinite if all ranks are lost.
        """
        seconds = []
        for index, line in enumerate(self._lines):
            if self._lost[index]:
                continue
            loan = next(each for each in self._loans if each.lender == line.other)
            question, size = self._programs.probe(loan.layer, loan.first)
            with self._line_locks[index]:
                own = [_seconds(line, question, size) for _ in range(_PROBES)]
            seconds.append(statistics.median(own[-_COUNTED:]))
        return max(seconds, default=float("inf"))

    def when_closed(self, on_close: Callable[[], None]) -> None:
        """Registers a function to call at the end of `close`."""
        self._on_close = on_close

    def start(self, feed: ExpertFeed) -> None:
        """Makes the steps of `feed` send requests, and starts a thread for each connection."""
        self.remote.let_ask(feed)
        for index in range(len(self._lines)):
            self._begin(self._ask_all, index)

    def _begin(self, work: Callable[[int], None], index: int) -> None:
        thread = threading.Thread(target=work, args=(index,), name="questions", daemon=True)
        self._threads.append(thread)
        start_native(thread)

    def _ask_all(self, index: int) -> None:
        """Sends the requests of one connection, until the run ends or the rank is lost."""
        line = self._lines[index]
        while (question := self.remote.take(index)) is not None:
            self._pending[index] = question
            try:
                with self._line_locks[index]:
                    answer = line.ask(question, self.remote.answer_bytes(index))
            except Exception:  # whatever torch raises for a lost connection
                self.lost(line.other)
                return
            with self._lock:
                if self._lost[index]:
                    return
                self._pending[index] = None
            self.remote.give(index, answer)
        if not self._lost[index]:
            self._end(line)

    def lost(self, rank: int) -> None:
        """Computes a lost rank's replies here from now on, also that to a request already sent.

        Any thread may call it, for any rank, more than once.
        """
        for index, line in enumerate(self._lines):
            with self._lock:
                if line.other != rank or self._lost[index]:
                    continue
                self._lost[index] = True
            self.remote.forget(index)
            self._on_note(f"{self._names[index]} is lost; its experts are read from the disk here")
            self._begin(self._answer_all, index)

    def _answer_all(self, index: int) -> None:
        question = self._pending[index] or self.remote.take(index)
        while question is not None:
            self.remote.give(index, self._own_answer(question))
            question = self.remote.take(index)

    def _own_answer(self, question: bytes) -> Bytes | None:
        with self._lock:
            try:
                values = self._programs.answer(np.frombuffer(question, np.uint8))
            except Exception:  # then the step fails, with the reader's error
                return None
            return None if values is None else values.reshape(-1).copy().view(np.uint8)

    @staticmethod
    def _end(line: QuestionLine) -> None:
        try:
            line.end()
        except Exception:  # it has ended before
            return

    @property
    def stats(self) -> RemoteStats:
        """The requests to other ranks so far: their number, bytes and seconds."""
        counts = self.remote.counts()
        return RemoteStats(
            questions=sum(each.questions for each in counts),
            bytes_sent=sum(each.sent_bytes for each in counts),
            bytes_received=sum(each.received_bytes for each in counts),
            stall_seconds=sum(each.stall_ns for each in counts) / 1e9,
            round_trip_seconds=sum(each.round_trip_ns for each in counts) / 1e9,
        )

    def close(self) -> None:
        """Ends the threads and the connections; steps may send no more requests."""
        if self._choice is not None:
            self._choice.close()
        self.remote.end()
        for thread in self._threads:
            thread.join(_LEAVE_SECONDS)
        if not any(thread.is_alive() for thread in self._threads):
            self.remote.close()
            self._programs.close()
        self._on_close()


def _seconds(line: QuestionLine, question: bytes, size: int) -> float:
    start = time.perf_counter()
    line.ask(question, size)
    return time.perf_counter() - start
