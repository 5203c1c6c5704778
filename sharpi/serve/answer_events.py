"""Answers as the bytes of a stream: what an API makes of their items, and pings in between."""

from collections.abc import Callable, Iterable, Sequence

from sharpi.serve.answer_parts import AnswerItem, Question
from sharpi.serve.answer_stream import answers
from sharpi.serve.event_stream import PING, Events
from sharpi.serve.model_host import ModelHost


async def answer_events(
    host: ModelHost,
    questions: Sequence[Question],
    events_of: Callable[[int, AnswerItem], Iterable[bytes]],
    ping: bytes = PING,
) -> Events:
    """What `events_of` makes of (number of the answer, item), as the items come."""
    async with answers(host, questions) as items:
        async for numbered in items:
            if numbered is None:
                yield ping
                continue
            for event in events_of(*numbered):
                yield event
