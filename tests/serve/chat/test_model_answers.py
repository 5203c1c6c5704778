"""Both APIs over a real model: the effect of grammars, budgets, seeds and the KV cache."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from clients import anthropic, openai
from model_server import STORIES, stories_server

pytestmark = pytest.mark.native

HELLO: Any = [{"role": "user", "content": "Tell me a story."}]
PLACES: Any = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Bonn", "Kiel", "Ulm"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": PLACES}}
OTHER: Any = {"type": "function", "function": {"name": "other", "parameters": PLACES}}
BRIEF: Any = {
    "model": STORIES,
    "messages": HELLO,
    "max_tokens": 60,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with stories_server(tmp_path_factory.mktemp("stories")) as (_, url):
        yield url


@pytest.fixture(scope="module")
def gpt(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def sonnet(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def content(client: openai.OpenAI, **values: Any) -> str:
    [choice] = client.chat.completions.create(**{**BRIEF, **values}).choices
    return choice.message.content or ""


@pytest.mark.slow
def test_a_greedy_answer_is_the_same_streamed(gpt: openai.OpenAI) -> None:
    whole = content(gpt)
    chunks = gpt.chat.completions.create(**{**BRIEF, "stream": True})
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(texts) == whole
    assert len(texts) > 30


def test_a_seed_gives_the_same_answer_again(gpt: openai.OpenAI) -> None:
    first, again, other = (
        content(gpt, temperature=1, seed=seed, max_tokens=20) for seed in (5, 5, 6)
    )
    assert first == again != other


def test_a_turn_finds_its_beginning_in_the_kv_cache(gpt: openai.OpenAI) -> None:
    question = [{"role": "user", "content": "Tell me a story about a dog and its long way home."}]
    first = gpt.chat.completions.create(**{**BRIEF, "messages": question})
    answer = {"role": "assistant", "content": first.choices[0].message.content}
    turns = [*question, answer, {"role": "user", "content": "Go on."}]
    second = gpt.chat.completions.create(**{**BRIEF, "messages": turns})
    assert first.usage is not None
    assert second.usage is not None
    details = second.usage.prompt_tokens_details
    assert details is not None
    assert (details.cached_tokens or 0) >= first.usage.prompt_tokens - 4


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_sampled_turn_is_found_with_its_own_tokens(gpt: openai.OpenAI, seed: int) -> None:
    """At this temperature the model often spells words otherwise than its tokenizer."""
    question = [{"role": "user", "content": f"Tell me story number {seed}."}]
    hot = {**BRIEF, "temperature": 1.2, "max_tokens": 700, "messages": question}
    stories = (gpt.chat.completions.create(**{**hot, "seed": n}) for n in range(seed, 99, 10))
    first = next(story for story in stories if story.choices[0].finish_reason == "stop")
    answer = {"role": "assistant", "content": first.choices[0].message.content}
    turns = [*question, answer, {"role": "user", "content": "Go on."}]
    second = gpt.chat.completions.create(**{**BRIEF, "messages": turns, "max_tokens": 1})
    assert first.usage is not None
    assert second.usage is not None
    details = second.usage.prompt_tokens_details
    assert details is not None
    assert (details.cached_tokens or 0) >= first.usage.total_tokens - 2


def test_several_answers_share_their_prompt(gpt: openai.OpenAI) -> None:
    asked = {**BRIEF, "temperature": 1, "seed": 1, "n": 3, "max_tokens": 12}
    answer = gpt.chat.completions.create(**asked)
    assert len({choice.message.content for choice in answer.choices}) == 3
    seeds = [content(gpt, temperature=1, seed=seed, max_tokens=12) for seed in (1, 2, 3)]
    assert [choice.message.content for choice in answer.choices] == seeds


def test_json_by_its_schema(gpt: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "trip", "schema": PLACES}}
    trip = json.loads(content(gpt, response_format=form, reasoning_effort="none"))
    assert trip["city"] in ("Bonn", "Kiel", "Ulm")
    assert 1 <= trip["days"] <= 9


def test_json_objects(gpt: openai.OpenAI) -> None:
    form = {"type": "json_object"}
    assert content(gpt, response_format=form, reasoning_effort="none").startswith("{")


@pytest.mark.parametrize(
    "grammar", ['root ::= ("yes" | "no") " sir"', 'start: ("yes" | "no") " sir"']
)
def test_grammars(gpt: openai.OpenAI, grammar: str) -> None:
    text = content(gpt, reasoning_effort="none", extra_body={"grammar": grammar})
    assert text in ("yes sir", "no sir")
    completion = gpt.completions.create(
        model=STORIES, prompt="Once", extra_body={"grammar": grammar}
    )
    assert completion.choices[0].text in ("yes sir", "no sir")


def test_grammars_that_are_none(gpt: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        content(gpt, extra_body={"grammar": "root ::= ("})
    assert caught.value.param == "grammar"
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "wish"}}}
    with pytest.raises(openai.BadRequestError) as caught:
        content(gpt, response_format=form)
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_call_that_has_to_be(gpt: openai.OpenAI, choice: Any) -> None:
    tools = {"tools": [TOOL, OTHER], "tool_choice": choice, "parallel_tool_calls": False}
    asked = {**BRIEF, **tools, "max_tokens": 150, "reasoning_effort": "none"}
    [made] = gpt.chat.completions.create(**asked).choices
    assert made.finish_reason == "tool_calls"
    assert made.message.tool_calls is not None
    [call] = made.message.tool_calls
    assert call.type == "function"
    assert json.loads(call.function.arguments)["city"] in ("Bonn", "Kiel", "Ulm")
    if choice != "required":
        assert call.function.name == "weather"


def test_a_call_that_has_to_be_in_responses(gpt: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "strict": True, **TOOL["function"]}
    response = gpt.responses.create(
        model=STORIES,
        input="Hi",
        tools=[tool],
        tool_choice="required",
        max_output_tokens=150,
        reasoning={"effort": "none"},
        temperature=0,
    )
    assert response.output[0].type == "function_call"
    assert json.loads(response.output[0].arguments)["days"] in range(1, 10)


def test_a_call_that_has_to_be_in_messages(sonnet: anthropic.Anthropic) -> None:
    tool: Any = {"name": "weather", "input_schema": PLACES}
    with sonnet.messages.stream(
        model=STORIES,
        max_tokens=150,
        messages=HELLO,
        tools=[tool],
        tool_choice={"type": "any"},
        thinking={"type": "disabled"},
        extra_body={"temperature": 0},
    ) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use"
    assert message.content[-1].type == "tool_use"
    assert dict(message.content[-1].input)["city"] in ("Bonn", "Kiel", "Ulm")  # type: ignore[call-overload]


def test_a_budget_closes_reasoning(sonnet: anthropic.Anthropic) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "<think>"}]
    message = sonnet.messages.create(
        model=STORIES,
        max_tokens=40,
        messages=begun,
        thinking={"type": "enabled", "budget_tokens": 8},
        extra_body={"temperature": 0},
    )
    thinking, text = message.content
    assert (thinking.type, text.type) == ("thinking", "text")
    details = message.usage.output_tokens_details
    assert details is not None
    assert 0 < details.thinking_tokens <= 20


def test_stop_sequences(sonnet: anthropic.Anthropic) -> None:
    message = sonnet.messages.create(
        model=STORIES,
        max_tokens=100,
        messages=HELLO,
        stop_sequences=["."],
        extra_body={"temperature": 0},
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", ".")
    [text] = message.content
    assert text.type == "text"
    assert "." not in text.text


def test_a_bias_rules_the_choice(gpt: openai.OpenAI, url: str) -> None:
    completion = gpt.completions.create(
        model=STORIES, prompt="Once", logit_bias={"65": 100}, max_tokens=3, logprobs=1
    )
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert len(set(logprobs.tokens)) == 1


def test_logprobs_are_of_the_text(gpt: openai.OpenAI) -> None:
    [choice] = gpt.chat.completions.create(**BRIEF, logprobs=True, top_logprobs=3).choices
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    data = b"".join(bytes(token.bytes or []) for token in tokens)
    assert data.decode().strip() == (choice.message.content or "").strip()
    for token in tokens:
        assert len(token.top_logprobs) == 3
        assert token.logprob == max(each.logprob for each in token.top_logprobs)


def test_a_prompt_that_is_too_long(gpt: openai.OpenAI, sonnet: anthropic.Anthropic) -> None:
    long: Any = [{"role": "user", "content": "once upon a time " * 900}]
    with pytest.raises(openai.BadRequestError) as caught:
        content(gpt, messages=long)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(anthropic.BadRequestError, match="context"):
        sonnet.messages.create(model=STORIES, max_tokens=9, messages=long)


@pytest.mark.slow
def test_json_or_a_call(gpt: openai.OpenAI) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "trip", "schema": PLACES}}
    asked = {**BRIEF, "tools": [TOOL], "response_format": form, "max_tokens": 150}
    asked |= {"temperature": 2, "reasoning_effort": "none"}
    for seed in range(4):
        [choice] = gpt.chat.completions.create(**asked, seed=seed).choices
        if choice.message.tool_calls:
            [call, *_] = choice.message.tool_calls
            assert call.type == "function"
            trip = json.loads(call.function.arguments)
        else:
            trip = json.loads(choice.message.content or "")
        assert trip["days"] in range(1, 10)
