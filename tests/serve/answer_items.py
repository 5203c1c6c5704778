"""The items of one answer of a host, as a stream."""

from collections.abc import AsyncGenerator

from sharpi.serve.host.answer_group import AnswerRequest, Item
from sharpi.serve.host.model_host import ModelHost
from sharpi.settings import GenerationRequest


async def items_of(
    host: ModelHost, ids: list[int], request: GenerationRequest
) -> AsyncGenerator[Item, None]:
    with host.admitted({"client": ("127.0.0.1", 1)}):
        group = host.answers([AnswerRequest(ids, request)])
        try:
            while group.is_open:
                numbered = await group.next()
                if numbered is not None:
                    yield numbered[1]
        finally:
            group.close()
