"""Answers as one stream: order, failures, and closing."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

import pytest
from scripted_host import ScriptedHost

from sharpi.dialogue.answer_text import Text
from sharpi.engine.sampling.generation_state import FinishInfo
from sharpi.serve.chat.answer_reading import answer_parts
from sharpi.serve.chat.chat_call import AnswerDelta, AnswerEnd, PromptRequest
from sharpi.settings import GenerationRequest


def prompt_request(host: ScriptedHost) -> PromptRequest:
    ids = host.tokenizer.encode("Hi", add_bos=False, parse_special=True)
    return PromptRequest(ids, GenerationRequest())


def collected(host: ScriptedHost, num: int) -> list[Any]:
    async def collect() -> list[Any]:
        async with aclosing(answer_parts(cast(Any, host), [prompt_request(host)] * num)) as items:
            return [item async for item in items]

    return asyncio.run(collect())


def test_the_others_begin_after_the_first() -> None:
    host = ScriptedHost()
    host.scripts = ["a", "b", "c"]
    items = collected(host, 3)
    assert items[0][0] == 0
    assert isinstance(items[0][1], AnswerDelta)
    assert items[0][1].event == Text("a")
    assert sorted(number for number, item in items if isinstance(item, AnswerEnd)) == [0, 1, 2]


def test_a_failure_ends_all() -> None:
    host = ScriptedHost()
    host.scripts = [["x", RuntimeError("broken")], ["y"] * 1000]
    with pytest.raises(RuntimeError, match="broken"):
        collected(host, 2)
    assert host.num_open == 0


def test_what_is_left_is_closed() -> None:
    host = ScriptedHost()
    host.scripts = [["x"] * 1000]

    async def read() -> int:
        async with aclosing(answer_parts(cast(Any, host), [prompt_request(host)] * 3)) as items:
            async for number, _ in (item async for item in items if item):
                if number == 2:
                    break
        return host.num_open

    assert asyncio.run(read()) == 0
    assert len(host.asked) == 3


def test_an_error_of_the_model_is_raised() -> None:
    host = ScriptedHost()
    host.finish_info = FinishInfo("error", error=ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        collected(host, 1)
