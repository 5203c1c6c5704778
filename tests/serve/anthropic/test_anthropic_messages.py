"""/v1/messages through the real client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from clients import anthropic
from scripted_host import MODEL, ScriptedHost

from sharpi.engine.sampling.generation_state import FinishInfo
from sharpi.errors import ContextFullError
from sharpi.serve.http.errors import busy

HELLO: Any = [{"role": "user", "content": "Hi"}]
WEATHER: Any = {
    "name": "weather",
    "description": "Tells it.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_FIRST = ("message_start", "content_block_start", "content_block_delta")
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>'


def ask(claude: anthropic.Anthropic, **values: Any) -> Any:
    asked = {"model": MODEL, "max_tokens": 100, "messages": HELLO, **values}
    return claude.messages.create(**asked)


def test_a_message_and_its_usage(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    host.num_cached = 3
    message = ask(claude, system="Be brief.")
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    assert [block.text for block in message.content] == ["Hello there."]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.usage.output_tokens == 12
    assert message.usage.cache_read_input_tokens == 3
    assert host.asked[0].prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>")
    assert host.asked[0].request.max_tokens == 100


def test_the_streaming_helper(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    host.scripts = [["Hel", "lo ", "you."]]
    with claude.messages.stream(model=MODEL, max_tokens=9, messages=HELLO) as stream:
        assert "".join(stream.text_stream) == "Hello you."
        message = stream.get_final_message()
    assert message.content[0].type == "text"
    assert message.content[0].text == "Hello you."
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 10)


def test_the_events_of_a_stream(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    host.scripts = [["<think>Hm", ".</think>", "Yes.", CALL]]
    events = list(ask(claude, stream=True, tools=[WEATHER]))
    kinds = [event.type for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    starts = [e.content_block.type for e in events if e.type == "content_block_start"]
    assert starts == ["thinking", "text", "tool_use"]
    assert [e.index for e in events if e.type == "content_block_stop"] == [0, 1, 2]
    deltas = [e.delta for e in events if e.type == "content_block_delta"]
    assert "".join(d.thinking for d in deltas if d.type == "thinking_delta") == "Hm."
    assert [d.signature for d in deltas if d.type == "signature_delta"] != [""]
    arguments = "".join(d.partial_json for d in deltas if d.type == "input_json_delta")
    assert json.loads(arguments) == {"city": "Bonn"}
    assert events[-2].delta.stop_reason == "tool_use"
    assert events[0].message.usage.input_tokens > 0


def test_the_frames_of_a_stream(http: httpx.Client, host: ScriptedHost) -> None:
    body = {"messages": HELLO, "max_tokens": 9, "stream": True}
    with http.stream("POST", "/v1/messages", json=body) as response:
        frames = response.read().decode().split("\n\n")
    assert frames.pop() == ""
    for frame in frames:
        name, data = frame.split("\n")
        assert name.removeprefix("event: ") == json.loads(data.removeprefix("data: "))["type"]


def test_the_async_client(url: str, host: ScriptedHost) -> None:
    async def text() -> str:
        async with (
            anthropic.AsyncAnthropic(base_url=url, api_key="none") as claude,
            claude.messages.stream(model=MODEL, max_tokens=9, messages=HELLO) as stream,
        ):
            return await stream.get_final_text()

    assert asyncio.run(text()) == "Hello there."


def test_sampling_reaches_the_model(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    sampling = {"temperature": 0.5, "top_p": 0.7, "top_k": 5, "seed": 3}
    ask(claude, stop_sequences=["END"], metadata={"user_id": "u"}, extra_body=sampling)
    request = host.asked[0].request
    assert request.stop == ("END",)
    assert (request.sampling.temperature, request.sampling.top_k) == (0.5, 5)
    assert (request.sampling.top_p, request.sampling.seed) == (0.7, 3)


@pytest.mark.parametrize(
    ("finish_info", "reason", "sequence"),
    [
        (FinishInfo("stop"), "end_turn", None),
        (FinishInfo("stop", stop="END"), "stop_sequence", "END"),
        (FinishInfo("length"), "max_tokens", None),
        (FinishInfo("context"), "model_context_window_exceeded", None),
    ],
)
def test_why_it_stopped(
    claude: anthropic.Anthropic,
    host: ScriptedHost,
    finish_info: FinishInfo,
    reason: str,
    sequence: str | None,
) -> None:
    host.finish_info = finish_info
    message = ask(claude)
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)


def test_a_call_and_its_result(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    host.scripts = [f"<think>Hm.</think>Let me see.\n{CALL}"]
    message = ask(claude, tools=[WEATHER])
    thinking, text, call = message.content
    assert (thinking.thinking, text.text, message.stop_reason) == (
        "Hm.",
        "Let me see.",
        "tool_use",
    )
    assert (call.name, call.input) == ("weather", {"city": "Bonn"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    after = [{"type": "text", "text": "So?"}]
    turns = [
        *HELLO,
        {"role": "assistant", "content": [block.to_dict() for block in message.content]},
        {"role": "user", "content": [result, *after]},
    ]
    ask(claude, messages=turns, tools=[WEATHER])
    prompt = host.asked[1].prompt
    assert "<think>Hm.</think>Let me see.<tool_call>" in prompt
    assert prompt.index("Bonn") < prompt.index("rain") < prompt.index("So?")


def test_thinking_is_switched(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    ask(claude, thinking={"type": "disabled"})
    ask(claude, thinking={"type": "enabled", "budget_tokens": 50})
    ask(claude, thinking={"type": "adaptive"}, output_config={"effort": "high"})
    assert [each.prompt.endswith("</think>\n\n") for each in host.asked] == [True, False, False]
    assert [each.constraint is not None for each in host.asked] == [True, True, False]


def test_thinking_is_not_shown_where_it_is_omitted(
    claude: anthropic.Anthropic, host: ScriptedHost
) -> None:
    host.scripts = ["<think>Hm.</think>Yes."]
    message = ask(claude, thinking={"type": "adaptive", "display": "omitted"})
    thinking, text = message.content
    assert (thinking.thinking, text.text) == ("", "Yes.")
    assert thinking.signature


def test_a_beginning_is_gone_on_with(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    ask(claude, messages=[*HELLO, {"role": "assistant", "content": "The answer is"}])
    assert host.asked[0].prompt.endswith("<|im_start|>assistant\nThe answer is")


def test_tool_choice(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    host.scripts = [CALL + CALL]
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert len(ask(claude, tools=[WEATHER], tool_choice=choice).content) == 1
    ask(claude, tools=[WEATHER], tool_choice={"type": "any"})
    ask(claude, tools=[WEATHER], tool_choice={"type": "tool", "name": "weather"})
    assert [each.constraint is not None for each in host.asked] == [False, True, True]


def test_counting_tokens(claude: anthropic.Anthropic, host: ScriptedHost) -> None:
    counted = claude.messages.count_tokens(model=MODEL, messages=HELLO, tools=[WEATHER])
    message = ask(claude, tools=[WEATHER])
    assert counted.input_tokens == message.usage.input_tokens
    assert len(host.asked) == 1


def test_models(claude: anthropic.Anthropic) -> None:
    [model] = list(claude.models.list())
    assert (model.id, model.type) == (MODEL, "model")
    assert claude.models.retrieve(MODEL).id == MODEL


def test_a_failure_before_the_first_token_is_a_status(
    claude: anthropic.Anthropic, host: ScriptedHost
) -> None:
    host.scripts = [[ContextFullError("the prompt is too long")]]
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError, match="too long"):
            ask(claude, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_a_429(
    claude: anthropic.Anthropic, host: ScriptedHost, stream: bool
) -> None:
    host.scripts = [[busy(8)]]
    with pytest.raises(anthropic.RateLimitError) as caught:
        ask(claude, stream=stream)
    assert caught.value.response.headers["retry-after"] == "1"


def test_a_failure_in_mid_stream_is_an_event(
    claude: anthropic.Anthropic, host: ScriptedHost
) -> None:
    host.scripts = [["Hel", RuntimeError("secret")]]
    stream = iter(ask(claude, stream=True))
    assert [next(stream).type for _ in range(3)] == list(_FIRST)
    with pytest.raises(anthropic.APIStatusError, match="failed to handle this request"):
        next(stream)


REFUSED = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "x"}}, "'x'"),
    ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "budget_tokens"),
    ({"thinking": {"type": "enabled"}}, "budget_tokens"),
]


@pytest.mark.parametrize(("values", "word"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_name_the_parameter(
    claude: anthropic.Anthropic, values: dict[str, Any], word: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=word) as caught:
        ask(claude, **values)
    body = caught.value.body
    assert isinstance(body, dict)
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")


def test_another_model(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="scripted"):
        ask(claude, model="claude-opus-5")
