"""/v1/chat/completions through the real client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from clients import openai
from scripted_host import MODEL, ScriptedHost

from sharpi.engine.sampling.generation_state import FinishInfo
from sharpi.errors import ContextFullError
from sharpi.serve.http.errors import busy

HELLO: Any = [{"role": "user", "content": "Hi"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells it.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>'


def ask(client: openai.OpenAI, **values: Any) -> Any:
    return client.chat.completions.create(**{"model": MODEL, "messages": HELLO, **values})


def test_an_answer_and_its_usage(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.num_cached = 3
    answer = ask(client)
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello there.")
    assert (choice.finish_reason, answer.model) == ("stop", MODEL)
    assert host.asked[0].prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    usage = answer.usage
    assert (usage.completion_tokens, usage.prompt_tokens_details.cached_tokens) == (12, 3)
    assert usage.total_tokens == usage.prompt_tokens + 12


def test_a_stream(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [["Hel", "lo ", "you."]]
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [each.choices[0].delta.content for each in chunks if each.choices]
    assert len(texts) == 5
    assert "".join(text or "" for text in texts) == "Hello you."
    assert [each.choices[0].finish_reason for each in chunks if each.choices][-1] == "stop"
    assert chunks[-1].usage.completion_tokens == 10
    assert all(each.usage is None for each in chunks[:-1])
    assert len({each.id for each in chunks}) == 1


def test_the_frames_of_a_stream(http: httpx.Client, host: ScriptedHost) -> None:
    body = {"messages": HELLO, "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        frames = response.read().decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(json.loads(frame.removeprefix("data: ")) for frame in frames[:-2])


def test_the_async_client(url: str, host: ScriptedHost) -> None:
    async def texts() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True)
            return [chunk.choices[0].delta.content async for chunk in stream]

    assert asyncio.run(texts()) == ["", "Hello there.", None]


def test_sampling_reaches_the_model(client: openai.OpenAI, host: ScriptedHost) -> None:
    ask(
        client,
        temperature=0.5,
        top_p=0.7,
        seed=11,
        presence_penalty=0.1,
        frequency_penalty=-0.2,
        stop=["END", "STOP"],
        max_completion_tokens=77,
        logit_bias={"65": -100},
        user="somebody",
        metadata={"a": "b"},
        store=False,
        extra_body={"top_k": 5, "min_p": 0.2, "repetition_penalty": 1.1},
    )
    request = host.asked[0].request
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0.5, 0.7, 11)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.1, -0.2)
    assert (sampling.top_k, sampling.min_p, sampling.repeat_penalty) == (5, 0.2, 1.1)
    assert (request.stop, request.max_tokens) == (("END", "STOP"), 77)
    assert request.logit_bias == ((65, -100.0),)


def test_what_is_not_said_is_the_servers_default(client: openai.OpenAI, host: ScriptedHost) -> None:
    ask(client, temperature=None, stop="x")
    assert host.asked[0].request.sampling == host.settings.sampling
    assert host.asked[0].request.stop == ("x",)


def test_developers_speak_as_the_system(client: openai.OpenAI, host: ScriptedHost) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    ask(
        client,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": parts},
        ],
    )
    assert "<|im_start|>system\nBe brief.<|im_end|>" in host.asked[0].prompt
    assert "<|im_start|>user\none\ntwo<|im_end|>" in host.asked[0].prompt


def test_reasoning_is_apart(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = ["<think>Hm.</think>\n\nYes."]
    answer = ask(client)
    assert answer.choices[0].message.content == "Yes."
    assert answer.choices[0].message.reasoning_content == "Hm."
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    deltas = [each.choices[0].delta for each in ask(client, stream=True)]
    assert "".join(getattr(each, "reasoning_content", None) or "" for each in deltas) == "Hm."
    assert "".join(each.content or "" for each in deltas) == "Yes."


def test_thinking_is_switched(client: openai.OpenAI, host: ScriptedHost) -> None:
    ask(client, reasoning_effort="none")
    ask(client, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    ask(client, reasoning_effort="high")
    assert [each.prompt.endswith("</think>\n\n") for each in host.asked] == [True, True, False]


def test_a_call_and_its_result(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [f"Let me see.\n{CALL}"]
    answer = ask(client, tools=[WEATHER])
    [choice] = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me see.")
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "weather")
    assert json.loads(call.function.arguments) == {"city": "Bonn"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    ask(client, messages=[*HELLO, choice.message.to_dict(), result], tools=[WEATHER])
    assert '"city": "Bonn"' in host.asked[1].prompt
    assert "rain" in host.asked[1].prompt


def test_calls_stream(client: openai.OpenAI, host: ScriptedHost) -> None:
    second = CALL.replace("Bonn", "Kiel")
    host.scripts = [list(CALL + "\n" + second)]
    with client.chat.completions.stream(model=MODEL, messages=HELLO, tools=[WEATHER]) as stream:
        deltas = [each for each in stream if each.type == "tool_calls.function.arguments.delta"]
        message = stream.get_final_completion().choices[0].message
    assert len(deltas) > 4
    assert message.tool_calls is not None
    cities = [json.loads(call.function.arguments)["city"] for call in message.tool_calls]
    assert cities == ["Bonn", "Kiel"]
    assert len({call.id for call in message.tool_calls}) == 2


def test_without_parallel_calls_the_first_is_the_last(
    client: openai.OpenAI, host: ScriptedHost
) -> None:
    host.scripts = [list(CALL + "\n" + CALL)]
    [choice] = ask(client, tools=[WEATHER], parallel_tool_calls=False).choices
    assert (choice.finish_reason, len(choice.message.tool_calls)) == ("tool_calls", 1)
    assert host.num_open == 0


def test_strict_calls_follow_their_schema(client: openai.OpenAI, host: ScriptedHost) -> None:
    ask(client, tools=[{**WEATHER, "function": {**WEATHER["function"], "strict": True}}])
    constraint = host.asked[0].constraint
    assert constraint is not None

    def accept(text: str) -> list[bool]:
        """Returns whether each token of a text was allowed."""
        ids = host.tokenizer.encode(text, add_bos=False, parse_special=True)
        allowed = []
        for token_id in ids:
            mask = constraint.allowed()
            allowed.append(mask is None or bool(mask[token_id // 32] >> (token_id % 32) & 1))
            if allowed[-1]:
                constraint.accept(token_id)
        return allowed

    assert all(accept("Sure, look:\n<tool_call>\n"))
    assert not any(accept("xyz"))
    assert all(accept('{"name": "weather", "arguments": {"city": "Bonn"'))
    assert not any(accept(', "zip'[:1]))


def test_no_tools_are_shown_where_none_may_be_called(
    client: openai.OpenAI, host: ScriptedHost
) -> None:
    host.scripts = [CALL]
    [choice] = ask(client, tools=[WEATHER], tool_choice="none").choices
    assert (choice.finish_reason, choice.message.content) == ("stop", CALL)
    assert "weather" not in host.asked[0].prompt


def test_several_answers(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = ["one", "two", "three"]
    answer = ask(client, n=3, seed=7)
    assert [each.message.content for each in answer.choices] == ["one", "two", "three"]
    assert [each.request.sampling.seed for each in host.asked] == [7, 8, 9]
    assert answer.usage.prompt_tokens == ask(client).usage.prompt_tokens
    assert answer.usage.completion_tokens == len("onetwothree")
    host.reset()
    host.scripts = ["one", "two", "three"]
    chunks = list(ask(client, n=3, stream=True))
    for number, text in enumerate(host.scripts):
        own = [c.choices[0] for c in chunks if c.choices[0].index == number]
        assert "".join(each.delta.content or "" for each in own) == text
        assert own[-1].finish_reason == "stop"


def test_logprobs(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [["<think>", "Hm", "</think>", "o", "k"]]
    answer = ask(client, logprobs=True, top_logprobs=2)
    content = answer.choices[0].logprobs.content
    assert [each.token for each in content] == ["o", "k"]
    assert content[-1].bytes == [ord("k")]
    assert [each.logprob for each in content[-1].top_logprobs] == [-0.5, -1.5]
    host.scripts = [list("ok")]
    chunks = [each.choices[0] for each in ask(client, logprobs=True, stream=True)]
    assert [each.logprobs.content[0].token for each in chunks if each.logprobs] == ["o", "k"]


def test_the_end_token_is_counted_and_not_shown(client: openai.OpenAI, host: ScriptedHost) -> None:
    end = next(iter(host.tokenizer.end_ids))
    host.scripts = [["o", "k", host.tokenizer.token_text(end)]]
    host.finish_info = FinishInfo("stop", end_token=end)
    answer = ask(client, logprobs=True)
    assert [each.token for each in answer.choices[0].logprobs.content] == ["o", "k"]
    assert (answer.choices[0].message.content, answer.usage.completion_tokens) == ("ok", 3)


@pytest.mark.parametrize(
    ("reason", "finish_reason"), [("length", "length"), ("context", "length"), ("stop", "stop")]
)
def test_why_it_ended(
    client: openai.OpenAI, host: ScriptedHost, reason: Any, finish_reason: str
) -> None:
    host.finish_info = FinishInfo(reason)
    assert ask(client).choices[0].finish_reason == finish_reason


def test_going_on_with_the_last_message(client: openai.OpenAI, host: ScriptedHost) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "The answer is"}]
    ask(client, messages=begun, extra_body={"continue_final_message": True})
    assert host.asked[0].prompt.endswith("<|im_start|>assistant\nThe answer is")


def test_a_failure_before_the_first_token_is_a_status(
    client: openai.OpenAI, host: ScriptedHost
) -> None:
    host.scripts = [[ContextFullError("the prompt is too long")]]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="too long") as caught:
            ask(client, stream=stream)
        assert caught.value.code == "context_length_exceeded"
    assert host.num_open == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_a_429(client: openai.OpenAI, host: ScriptedHost, stream: bool) -> None:
    host.scripts = [[busy(8)]]
    with pytest.raises(openai.RateLimitError) as caught:
        ask(client, stream=stream)
    assert caught.value.response.headers["retry-after"] == "1"


def test_a_failure_in_mid_stream_is_an_event(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [["Hel", RuntimeError("secret")]]
    stream = iter(ask(client, stream=True))
    assert [next(stream).choices[0].delta.content for _ in range(2)] == ["", "Hel"]
    with pytest.raises(openai.APIError, match="failed to handle this request"):
        next(stream)


def test_a_client_that_leaves_ends_its_answer(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [["x"] * 3_000_000]
    stream = ask(client, stream=True)
    next(iter(stream))
    stream.close()
    host.wait_until_nothing_is_open()


REFUSED = [
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"temperature": 3}, "temperature"),
    ({"top_p": "much"}, "top_p"),
    ({"seed": True}, "seed"),
    ({"max_tokens": -2}, "max_tokens"),
    ({"logit_bias": {"hello": 1}}, "logit_bias.hello"),
    ({"logit_bias": {"65": 101}}, "logit_bias[...]"),
    ({"stop": [1]}, "stop[0]"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content",
    ),
    ({"extra_body": {"mirostat": 2}}, "mirostat"),
]


@pytest.mark.parametrize(("values", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_name_the_parameter(
    client: openai.OpenAI, values: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **values)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_another_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, model="gpt-5")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b'{"n": NaN}', b"[" * 9999, b"\xff"])
def test_bodies_that_are_no_object(http: httpx.Client, body: bytes) -> None:
    response = http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_the_stop_string_has_no_logprobs(http: httpx.Client, host: ScriptedHost) -> None:
    [end] = host.tokenizer.encode_inside("!")
    host.scripts = [["Hi", "!"]]
    host.finish_info = FinishInfo("stop", end_token=end, stop="!")
    asked = {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "stop": "!"}
    choice = http.post("/v1/chat/completions", json=asked).json()["choices"][0]
    assert [each["token"] for each in choice["logprobs"]["content"]] == ["H", "i"]


def test_a_history_is_read_and_not_judged(http: httpx.Client, host: ScriptedHost) -> None:
    """Arguments that are no JSON, a result with a picture, a call without a result."""
    history = [
        *HELLO,
        {
            "role": "assistant",
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "no"}}],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "tool_calls": [{"id": "", "function": {"name": None}}]},
        {"role": "tool", "content": {"rows": 2}},
        {"role": "user", "content": None},
    ]
    response = http.post("/v1/chat/completions", json={"messages": history})
    assert response.status_code == 200
    assert "[image omitted]" in host.asked[-1].prompt
    assert '{"rows": 2}' in host.asked[-1].prompt
    no_text = {"role": "user", "content": {"rows": 2}}
    response = http.post("/v1/chat/completions", json={"messages": [no_text]})
    assert response.json()["error"]["param"] == "messages[0].content"


def test_tools_that_a_server_would_run_are_left_out(http: httpx.Client, host: ScriptedHost) -> None:
    function = {"name": "f", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}, {"type": "web_search"}]
    response = http.post("/v1/chat/completions", json={"messages": HELLO, "tools": tools})
    assert response.status_code == 200
    assert "web_search" in response.headers["x-sharpi-note"]
    assert "web_search" in host.notes[0]


@pytest.mark.parametrize(
    "form",
    [
        {"json_schema": {"type": "boolean"}},
        {"response_format": {"type": "json_schema", "schema": {"type": "boolean"}}},
        {"logit_bias": [[65, 2.5], [66, False]]},
        {"seed": -1, "stop": ["x"] * 40, "frobnicate": {"a": None}},
    ],
    ids=lambda form: next(iter(form)),
)
def test_forms_of_other_servers_are_taken(http: httpx.Client, form: dict[str, Any]) -> None:
    response = http.post("/v1/chat/completions", json={"messages": HELLO, **form})
    assert response.status_code == 200, response.text
