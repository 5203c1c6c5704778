"""Suspects: the requests of a failed step, which run alone until the one at fault is found."""

from collections.abc import Iterable

from sharpi.engine.scheduling.request import Request


class Suspects:
    """The requests suspected of a failed step's fault.

    A request is no longer suspected once it has computed, alone, its tokens of that step.
    """

    def __init__(self) -> None:
        self.goals: dict[Request, int] = {}  # num_computed at which each is cleared

    def add(self, request: Request, num_tokens: int) -> None:
        """Adds a request of the failed step, which had `num_tokens` tokens in that step."""
        self.goals[request] = request.num_computed + num_tokens
        if request.table is not None and not request.table.is_valid:
            request.release()

    def next_alone(self, running: Iterable[Request]) -> list[Request]:
        """Returns the suspect to run now; all of `running` if none of them is suspected."""
        requests = list(running)
        return [request for request in requests if request in self.goals][:1] or requests

    def computed(self, request: Request) -> None:
        """Ends the suspicion of a request if it has computed its tokens of the failed step."""
        if request.num_computed >= self.goals.get(request, 0):
            self.forget(request)

    def forget(self, request: Request) -> None:
        """Ends the suspicion of a request, as when the request has ended."""
        self.goals.pop(request, None)
