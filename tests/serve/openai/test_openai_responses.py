"""/v1/responses through the real client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from clients import openai
from scripted_host import MODEL, ScriptedHost

from sharpi.engine.sampling.generation_state import FinishInfo

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells it.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": True,
}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>'


def ask(client: openai.OpenAI, **values: Any) -> Any:
    return client.responses.create(**{"model": MODEL, "input": "Hi", **values})


def test_a_response_and_its_usage(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.num_cached = 3
    response = ask(client, instructions="Be brief.", max_output_tokens=50, metadata={"a": "b"})
    assert (response.output_text, response.status) == ("Hello there.", "completed")
    assert (response.instructions, response.metadata) == ("Be brief.", {"a": "b"})
    assert response.usage.output_tokens == 12
    assert response.usage.input_tokens_details.cached_tokens == 3
    assert host.asked[0].prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>")
    assert host.asked[0].request.max_tokens == 50


def test_the_events_of_a_stream(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [["<think>Hm", ".</think>", "Yes", ".", CALL]]
    events = list(ask(client, stream=True, tools=[WEATHER]))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds[:2] == ["created", "in_progress"]
    added = [e.item.type for e in events if e.type == "response.output_item.added"]
    assert added == ["reasoning", "message", "function_call"]
    joined = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert joined == "Yes."
    assert kinds.count("output_text.done") == kinds.count("reasoning_text.done") == 1
    done = [e.arguments for e in events if e.type == "response.function_call_arguments.done"]
    assert json.loads(done[0]) == {"city": "Bonn"}
    final = events[-1].response
    assert [item.type for item in final.output] == added
    assert all(item.status == "completed" for item in final.output)
    items = [e.item for e in events if e.type == "response.output_item.done"]
    assert [item.id for item in items] == [item.id for item in final.output]


def test_the_streaming_helper(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [["Hel", "lo ", "you."]]
    with client.responses.stream(model=MODEL, input="Hi") as stream:
        deltas = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        assert stream.get_final_response().output_text == "Hello you."
    assert deltas[0] == "Hel"


def test_a_call_and_its_result(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [f"<think>Hm.</think>Let me see.\n{CALL}\n{CALL}"]
    response = ask(client, tools=[WEATHER])
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["weather", "weather"]
    results = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        for call in calls
    ]
    history = [{"role": "user", "content": "Hi"}, *(item.to_dict() for item in response.output)]
    ask(client, input=[*history, *results], tools=[WEATHER])
    prompt = host.asked[1].prompt
    assert prompt.count("<|im_start|>assistant") == 2
    assert "<think>Hm.</think>Let me see.<tool_call>" in prompt
    assert prompt.count("rain") == 2


def test_an_answer_that_was_cut(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.finish_info = FinishInfo("length")
    response = ask(client)
    assert (response.status, response.incomplete_details.reason) == (
        "incomplete",
        "max_output_tokens",
    )
    assert response.to_dict()["completed_at"] is None
    assert list(ask(client, stream=True))[-1].type == "response.incomplete"


def test_logprobs(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [list("ok")]
    response = ask(client, include=["message.output_text.logprobs"], top_logprobs=1)
    logprobs = response.output[0].content[0].logprobs
    assert [each.token for each in logprobs] == ["o", "k"]


def test_thinking_is_switched(client: openai.OpenAI, host: ScriptedHost) -> None:
    ask(client, reasoning={"effort": "none"})
    ask(client, reasoning={"effort": "high", "summary": "auto"})
    assert [each.prompt.endswith("</think>\n\n") for each in host.asked] == [True, False]


def test_a_failure_in_mid_stream_is_an_event(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [["Hel", RuntimeError("secret")]]
    last = list(ask(client, stream=True))[-1]
    assert (last.type, last.code) == ("error", "server_error")
    assert "secret" not in last.message


REFUSED = [
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"background": True}, "background"),
    ({"input": []}, "input"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input[0].content",
    ),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"tool_choice": {"type": "function", "name": "x"}, "tools": [WEATHER]}, "tool_choice"),
]


@pytest.mark.parametrize(("values", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_name_the_parameter(
    client: openai.OpenAI, values: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **values)
    assert caught.value.param == param


def test_agents_send_several_system_messages(client: openai.OpenAI, host: ScriptedHost) -> None:
    turns: Any = [{"role": "developer", "content": text} for text in ("One.", "Two.")]
    ask(client, instructions="Zero.", input=[*turns, {"role": "user", "content": "Hi"}])
    assert host.asked[0].prompt.startswith("<|im_start|>system\nZero.\n\nOne.\n\nTwo.<|im_end|>")
