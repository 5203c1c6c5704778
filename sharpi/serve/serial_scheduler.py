"""SerialScheduler: one answer after the other over `Session.generate`."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sharpi.config import GenerationRequest
from sharpi.engine.constraint import Constraint
from sharpi.engine.engine import Engine
from sharpi.engine.generation import Generation
from sharpi.engine.piece import Ending, Piece, TokenChoice
from sharpi.errors import ContextFullError


@dataclass
class Ticket:
    """One answer that was asked for."""

    prompt_ids: list[int]
    request: GenerationRequest
    on_piece: Callable[[Piece], None]
    on_end: Callable[[Ending], None]
    is_cancelled: bool = False
    num_seen: int = 0


class SerialScheduler:
    """The interface of the scheduler that batches, for one sequence."""

    def __init__(self, engine: Engine, max_parallel: int) -> None:
        self._engine, self._session = engine, engine.session()
        self._waiting: deque[Ticket] = deque()
        self._running: tuple[Ticket, Generation] | None = None

    def submit(
        self,
        prompt_ids: Sequence[int],
        request: GenerationRequest,
        *,
        constraint: Constraint | None = None,
        on_piece: Callable[[Piece], None],
        on_end: Callable[[Ending], None],
    ) -> Ticket:
        if len(prompt_ids) >= self._engine.context_size:
            raise ContextFullError(
                f"the prompt has {len(prompt_ids)} tokens and the context"
                f" {self._engine.context_size}"
            )
        ticket = Ticket(list(prompt_ids), request, on_piece, on_end)
        self._waiting.append(ticket)
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        ticket.is_cancelled = True

    def step(self) -> bool:
        if self._running is None:
            if not self._waiting:
                return False
            ticket = self._waiting.popleft()
            if ticket.is_cancelled:
                ticket.on_end(Ending("cancelled"))
                return True
            self._running = ticket, self._session.generate(ticket.prompt_ids, ticket.request)
        ticket, generation = self._running
        if ticket.is_cancelled:
            self._running = None
            generation.close()
            ticket.on_end(Ending("cancelled", generation.timings))
            return True
        try:
            text = next(generation, None)
        except Exception as error:
            self._running = None
            ticket.on_end(Ending("error", generation.timings, error=error))
            return True
        chosen = tuple(map(TokenChoice, generation.ids[ticket.num_seen :]))
        ticket.num_seen = len(generation.ids)
        if text is not None or chosen:
            ticket.on_piece(Piece(text or "", chosen))
        if text is None:
            self._running = None
            ticket.on_end(Ending(generation.finish_reason or "stop", generation.timings))
        return True

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return int(self._running is not None)

    @property
    def num_pages(self) -> int:
        return self._engine.runner.pages.num_pages

    @property
    def pages_in_use(self) -> int:
        return self.num_pages - len(self._engine.runner.pages._free)
