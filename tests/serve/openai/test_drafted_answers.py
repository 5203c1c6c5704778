"""Several answers to one request, with drafts: each is the one that it would be without."""

from collections.abc import Iterator
from typing import Any

import pytest
from served_demo import ServedDemo

from sharpi.settings import SpeculationConfig as Speculation

pytestmark = pytest.mark.native
PROMPT = "Tom had a red ball. Tom had a red ball. Tom had a red"
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "names",
        "schema": {"type": "array", "items": {"enum": ["Lily", "Tom"]}, "minItems": 4},
    },
}


@pytest.fixture(scope="module")
def drafting() -> Iterator[ServedDemo]:
    server = ServedDemo(speculation=Speculation(kinds=("ngram", "suffix"), max_drafts=4))
    yield server
    server.stop()


def answers(server: ServedDemo, **asked: Any) -> list[str]:
    body = {"prompt": PROMPT, "max_tokens": 30, "seed": 7, "n": 3} | asked
    reply = server.client.post("/v1/completions", json=body).json()
    return [choice["text"] for choice in reply["choices"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [{}, {"temperature": 0}, {"response_format": SCHEMA}],
    ids=["sampled", "greedy", "form"],
)
def test_n_answers(asked: dict[str, Any], demo: ServedDemo, drafting: ServedDemo) -> None:
    expected = answers(demo, **asked)
    assert len(expected) == 3
    assert answers(drafting, **asked) == expected
    assert answers(drafting, **asked) == expected
    metrics = drafting.client.get("/metrics").text
    counts = [line for line in metrics.splitlines() if "accepted_draft_tokens_total " in line]
    assert float(counts[-1].split()[-1]) > 0
