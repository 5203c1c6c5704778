"""Suspects: the requests of a failed step, which run alone until the one at fault is found."""

from collections.abc import Iterable

from sharpi.engine.scheduling.request import Request


class Suspects:
    """The suspects; each is cleared once it has computed its tokens of the failed step alone."""

    def __init__(self) -> None:
        self.goals: dict[Request, int] = {}  # num_computed at which each is cleared

    def add(self, request: Request, num_tokens: int) -> None:
        """Adds a request of the failed step, which had `num_tokens` tokens in that step."""
        self.goals[request] = request.num_computed + num_tokens
        if request.table is not None and not request.table.is_sound:
            request.release()

    def next_alone(self, running: Iterable[Request]) -> list[Request]:
        """Returns the suspect to run now; all of `running` if none of them is suspected."""
        requests = list(running)
        return [request for request in requests if request in self.goals][:1] or requests

    def computed(self, request: Request) -> None:
        """Clears a request that has computed its tokens of the failed step."""
        if request.num_computed >= self.goals.get(request, 0):
            self.forget(request)

    def forget(self, request: Request) -> None:
        """Clears a request that has ended."""
        self.goals.pop(request, None)
