"""The OpenAPI document, and random requests made from it."""

from importlib.util import find_spec
from typing import Any

import pytest
from served_demo import ServedDemo

pytestmark = pytest.mark.native
CHECKED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize")


@pytest.fixture(scope="module")
def document(demo: ServedDemo) -> dict[str, Any]:
    response = demo.client.get("/openapi.json")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


def test_every_path_is_described(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert set(CHECKED) < set(document["paths"])
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"].endswith("."), (method, path)


def test_a_body_says_what_it_may_hold(document: dict[str, Any]) -> None:
    chat = document["components"]["schemas"]["ChatBody"]
    assert chat["required"] == ["messages"]
    [limits] = [each for each in chat["properties"]["n"]["anyOf"] if each["type"] == "integer"]
    assert (limits["minimum"], limits["maximum"]) == (1, 16)


def test_references_are_complete(document: dict[str, Any]) -> None:
    names = set(document["components"]["schemas"])

    def check(value: Any) -> None:
        if isinstance(value, dict):
            reference = value.get("$ref")
            assert reference is None or reference.rpartition("/")[2] in names
            for each in value.values():
                check(each)
        elif isinstance(value, list):
            for each in value:
                check(each)

    check(document)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")
def test_requests_made_from_the_document_never_fail_the_server(
    demo: ServedDemo, document: dict[str, Any]
) -> None:
    import schemathesis
    from hypothesis import HealthCheck, given, settings

    schema = schemathesis.openapi.from_dict(document)
    for path in CHECKED:
        strategy = schema[path]["POST"].as_strategy()

        @settings(
            max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=strategy)
        def send(case: Any) -> None:
            body = case.body
            if isinstance(body, dict):
                body = body | {"max_tokens": 1}
            response = demo.client.post(case.formatted_path, json=body)
            assert response.status_code in (200, 400, 404), response.text
            if response.status_code != 200:
                assert response.json()["error"]["message"]

        send()
    assert demo.complete().status_code == 200
