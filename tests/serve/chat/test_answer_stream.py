"""Answers as one stream: order, waiting, failures, and closing."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from scripted_host import ScriptedHost

from sharpi.config import GenerationRequest
from sharpi.dialogue.events import Text
from sharpi.engine.sampling.text_delta import FinishInfo
from sharpi.serve.chat import answer_stream
from sharpi.serve.chat.answer_parts import (
    AnswerDelta,
    AnswerDeltaOrEnd,
    AnswerEnd,
    PromptRequest,
    Usage,
)
from sharpi.serve.chat.answer_reading import answer
from sharpi.serve.chat.answer_stream import answers, merged

END = AnswerEnd("stop", Usage())


def prompt_request(host: ScriptedHost) -> PromptRequest:
    ids = host.tokenizer.encode("Hi", add_bos=False, parse_special=True)
    return PromptRequest(ids, GenerationRequest())


async def saying(*texts: str, pause: float = 0.0) -> AsyncGenerator[AnswerDeltaOrEnd, None]:
    for text in texts:
        await asyncio.sleep(pause)
        yield AnswerDelta(Text(text))
    yield END


def collected(*sources: AsyncGenerator[AnswerDeltaOrEnd, None]) -> list[Any]:
    async def collect() -> list[Any]:
        return [item async for item in merged(sources)]

    return asyncio.run(collect())


def test_the_others_begin_after_the_first() -> None:
    items = collected(saying("a", pause=0.02), saying("b"), saying("c"))
    assert items[0] == (0, AnswerDelta(Text("a")))
    assert sorted(number for number, item in items if item == END) == [0, 1, 2]


def test_nothing_for_a_while_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_stream, "PING_SECONDS", 0.01)
    items = collected(saying("a", pause=0.05))
    assert items[0] is None
    assert [item for item in items if item] == [(0, AnswerDelta(Text("a"))), (0, END)]


def test_a_failure_ends_all() -> None:
    host = ScriptedHost()
    host.scripts = [["x", RuntimeError("broken")], ["y"] * 1000]

    async def read() -> None:
        async with answers(cast(Any, host), [prompt_request(host)] * 2) as items:
            async for _ in items:
                pass

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(read())
    assert host.num_open == 0


def test_what_is_left_is_closed() -> None:
    host = ScriptedHost()
    host.scripts = [["x"] * 1000]

    async def read() -> int:
        async with answers(cast(Any, host), [prompt_request(host)] * 3) as items:
            async for number, _ in (item async for item in items if item):
                if number == 2:
                    break
        return host.num_open

    assert asyncio.run(read()) == 0
    assert len(host.asked) == 3


def test_an_error_of_the_model_is_raised() -> None:
    host = ScriptedHost()
    host.finish_info = FinishInfo("error", error=ValueError("no"))

    async def read() -> None:
        async for _ in answer(cast(Any, host), prompt_request(host)):
            pass

    with pytest.raises(ValueError, match="no"):
        asyncio.run(read())
