"""Lender: replies to another rank's requests for experts that this rank has in memory."""

import threading
from collections.abc import Sequence

import numpy as np

from sharpi.cluster.group import RequestChannel
from sharpi.engine.lending.expert_programs import WARM_UP, ExpertPrograms
from sharpi.engine.lending.loan import Loan
from sharpi.system.process import Closing, start_native

_LEAVE_SECONDS = 5.0


class Lender(Closing):
    """Replies to another rank's requests, on its own thread."""

    def __init__(
        self, channel: RequestChannel, programs: ExpertPrograms, loans: Sequence[Loan]
    ) -> None:
        self._channel, self._programs, self._loans = channel, programs, loans
        self._thread = threading.Thread(target=self._reply_to_all, name="lender", daemon=True)
        start_native(self._thread)

    @property
    def is_at_work(self) -> bool:
        """True until the other rank has sent the empty request, or is lost."""
        return self._thread.is_alive()

    def warm(self) -> None:
        """Begins to read the lent experts into memory, on another thread."""
        threading.Thread(target=self._touch, name="reads", daemon=True).start()

    def _touch(self) -> None:
        for loan in self._loans:
            if self.is_at_work:
                self._programs.touch(loan.layer, loan.first, loan.end)

    def _reply_to_all(self) -> None:
        request = np.zeros(self._programs.max_request_bytes, np.uint8)
        try:
            while True:
                self._channel.receive_request(request)
                if request[: len(WARM_UP)].tobytes() == WARM_UP:
                    self.warm()
                    self._channel.send_reply(request[: len(WARM_UP)].copy())
                    continue
                values = self._programs.compute_reply(request)
                if values is None:
                    return
                self._channel.send_reply(values.reshape(-1).view(np.uint8))
        except Exception:  # the other rank is lost, which the watch reports, or sends nonsense
            return

    def close(self) -> None:
        """Frees the programs, unless a reply is still being computed."""
        self._thread.join(_LEAVE_SECONDS)
        if not self._thread.is_alive():
            self._programs.close()
