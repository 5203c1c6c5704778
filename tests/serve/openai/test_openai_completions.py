"""/v1/completions and /v1/models through the real client."""

from __future__ import annotations

from typing import Any

import pytest
from clients import openai
from scripted_host import MODEL, ScriptedHost


def ask(client: openai.OpenAI, **values: Any) -> Any:
    return client.completions.create(**{"model": MODEL, "prompt": "Once", **values})


def test_a_completion(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [" upon a time"]
    completion = ask(client)
    assert [each.text for each in completion.choices] == [" upon a time"]
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.prompt_tokens == 4
    assert (host.asked[0].prompt, host.asked[0].request.max_tokens) == ("Once", 16)


def test_a_stream_with_usage_and_echo(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [[" upon", " a time"]]
    options = {"include_usage": True}
    chunks = list(ask(client, stream=True, echo=True, stream_options=options))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == "Once upon a time"
    assert chunks[-1].usage.completion_tokens == 12


def test_prompts_in_every_form(client: openai.OpenAI, host: ScriptedHost) -> None:
    ids = host.tokenizer.encode("Two", add_bos=False, parse_special=True)
    host.scripts = ["a", "b", "c", "d"]
    completion = ask(client, prompt=["One", "Two"], n=2)
    assert sorted(each.prompt for each in host.asked) == ["One", "One", "Two", "Two"]
    assert [each.index for each in completion.choices] == [0, 1, 2, 3]
    assert completion.usage.prompt_tokens == 6
    ask(client, prompt=ids)
    ask(client, prompt=[ids, ids], echo=True)
    assert {each.prompt for each in host.asked[4:]} == {"Two"}


def test_logprobs(client: openai.OpenAI, host: ScriptedHost) -> None:
    host.scripts = [list("ab")]
    logprobs = ask(client, logprobs=2).choices[0].logprobs
    assert (logprobs.tokens, logprobs.text_offset) == (["a", "b"], [0, 1])
    assert logprobs.token_logprobs == [-0.25, -0.25]
    assert len(logprobs.top_logprobs[0]) == 2
    offsets = [c.choices[0].logprobs for c in ask(client, logprobs=2, stream=True)]
    assert [each.text_offset for each in offsets if each] == [[0], [1]]


REFUSED = [
    ({"suffix": "the end"}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"prompt": []}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": [[1, {}]]}, "prompt"),
    ({"prompt": [99_999]}, "prompt"),
    ({"logprobs": 21}, "logprobs"),
]


@pytest.mark.parametrize(("values", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals_name_the_parameter(
    client: openai.OpenAI, values: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **values)
    assert caught.value.param == param


def test_models(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert (model.id, model.object, model.owned_by) == (MODEL, "model", "sharpi")
    assert client.models.retrieve("alias").id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other/model")
