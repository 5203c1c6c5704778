"""The progress of a prompt in a stream, for clients that ask for it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from served_demo import MODEL, ServedDemo

pytestmark = pytest.mark.native
PROMPT = "Once upon a time there was a cat. " * 40


@pytest.fixture(scope="module")
def demo() -> Iterator[ServedDemo]:
    served = ServedDemo(context_size=2048, batch_size=64)
    yield served
    served.stop()


def chunks(demo: ServedDemo, prompt: str, **values: Any) -> list[dict[str, Any]]:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": prompt}],
        "stream": True,
        "max_tokens": 2,
        **values,
    }
    with demo.client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if "{" in line]
    return [json.loads(line) for line in lines]


def test_it_comes_before_the_answer_and_grows_to_the_whole_prompt(demo: ServedDemo) -> None:
    first = chunks(demo, PROMPT, return_progress=True)
    told = [each["prompt_progress"] for each in first if "prompt_progress" in each]
    assert len(told) > 3
    assert all("prompt_progress" in each for each in first[: len(told)])
    assert all(each["choices"] == [] for each in first[: len(told)])
    done = [each["processed"] for each in told]
    assert done == sorted(set(done))
    assert done[-1] == told[-1]["total"]
    assert {each["total"] for each in told} == {told[0]["total"]}
    times = [each["time_ms"] for each in told]
    assert times == sorted(times)
    again = chunks(demo, PROMPT + " And then", return_progress=True)
    cached = again[0]["prompt_progress"]
    assert 0 < cached["cache"] < cached["processed"] <= cached["total"]


@pytest.mark.parametrize("values", [{}, {"return_progress": False}])
def test_nobody_else_gets_it(demo: ServedDemo, values: dict[str, Any]) -> None:
    assert not [each for each in chunks(demo, PROMPT, **values) if "prompt_progress" in each]


def test_without_a_stream_it_has_no_effect(demo: ServedDemo) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    response = demo.client.post("/v1/chat/completions", json=body | {"return_progress": True})
    assert response.status_code == 200
    assert response.json()["choices"]
