"""Limits in descriptions, as Anthropic's clients write them."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from clients import anthropic
from pydantic import BaseModel, Field
from scripted_host import MODEL, ScriptedHost

from sharpi.serve.anthropic.limits import with_limits


class Pet(BaseModel):
    name: str = Field(min_length=2, max_length=5, pattern="^[A-Z]{2}, [a-z]+$", description="Its.")
    age: int = Field(ge=0, le=30)
    weight: float | None = Field(default=None, gt=0, lt=9.5)
    kind: Literal["cat", "dog"]
    tags: list[str] = Field(min_length=2, max_length=3)


@pytest.mark.slow
def test_the_limits_of_a_class_are_found(
    claude: anthropic.Anthropic, host: ScriptedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.scripts = ['{"name": "AB, c", "age": 3, "kind": "cat", "tags": ["a", "b"]}']
    known: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "sharpi.serve.anthropic.request.with_limits",
        lambda schema: known.append(with_limits(schema)) or schema,
    )
    messages: Any = [{"role": "user", "content": "Hi"}]
    message = claude.messages.parse(
        model=MODEL, max_tokens=50, messages=messages, output_format=Pet
    )
    assert message.parsed_output is not None
    assert message.parsed_output.age == 3
    found, wanted = known[0]["properties"], Pet.model_json_schema()["properties"]
    for name, keywords in {
        "name": ("minLength", "maxLength", "pattern"),
        "age": ("minimum", "maximum"),
        "tags": ("minItems", "maxItems"),
    }.items():
        assert [found[name].get(key) for key in keywords] == [wanted[name][key] for key in keywords]
    assert found["weight"]["anyOf"][0]["exclusiveMaximum"] == 9.5


@pytest.mark.parametrize(
    ("description", "found"),
    [
        ("{maxLength: 5, pattern: ^a, b$, default: x}", {"maxLength": 5, "pattern": "^a, b$"}),
        ('Text.\n\n{pattern: "^a\\\\.$"}', {"pattern": "^a\\.$"}),
        ("{uniqueItems: True, minItems: 2}", {"uniqueItems": True, "minItems": 2}),
        ("{minimum: many, maxLength: 1.5}", {}),
        ("one of {minimum: 1}", {}),
        ("{hello: 1}", {}),
        (3, {}),
    ],
)
def test_the_words_of_descriptions(description: object, found: dict[str, object]) -> None:
    schema = {"description": description}
    assert with_limits({"items": schema})["items"] == schema | found


def test_given_keywords_stay() -> None:
    assert with_limits({"minimum": 1, "description": "{minimum: 5}"})["minimum"] == 1
