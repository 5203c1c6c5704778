"""/health, /metrics, /props, /tokenize and /detokenize of a running server."""

import time

import httpx
import pytest
from served_demo import MODEL, ServedDemo

pytestmark = pytest.mark.native


def metric(server: ServedDemo, name: str) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))


def test_health(demo: ServedDemo) -> None:
    assert demo.client.get("/health").json() == {"status": "ok", "model": "loaded"}


def test_props(demo: ServedDemo) -> None:
    demo.complete()
    props = demo.client.get("/props").json()
    assert (props["model"], props["state"], props["parallel"]) == (MODEL, "loaded", 4)
    assert props["context_size"] == 512
    assert props["tokens_per_second"] > 0
    assert props["resident_bytes"] > 1 << 20
    assert props["bytes_by_tier"]["ram"] > 0
    assert "/" not in props["file"]


def metrics_with(demo: ServedDemo, line: str) -> str:
    """Returns the metrics once they have a line: a request is counted after its answer has left."""
    deadline = time.monotonic() + 60
    while line not in (text := demo.client.get("/metrics").text):
        assert time.monotonic() < deadline, text
    return text


class TestMetrics:
    def test_count_tokens_and_times(self, demo: ServedDemo) -> None:
        names = ("generated_tokens_total", "first_token_seconds_count", "inter_token_seconds_count")
        before = [metric(demo, f"sharpi_{name}") for name in names]
        assert demo.complete(max_tokens=7).status_code == 200
        after = [metric(demo, f"sharpi_{name}") for name in names]
        assert [b - a for a, b in zip(before, after, strict=True)] == [7, 1, 6]

    def test_count_prompt_tokens_computed_and_found(self, demo: ServedDemo) -> None:
        names = ("sharpi_prompt_tokens_total", "sharpi_cached_prompt_tokens_total")
        before = sum(metric(demo, name) for name in names)
        demo.complete(prompt="The dog was happy and")
        ids = demo.client.post("/tokenize", json={"content": "The dog was happy and"}).json()
        tokens = len(ids["tokens"]) + 1  # BOS
        assert sum(metric(demo, name) for name in names) - before in (tokens, tokens - 1)

    def test_pages(self, demo: ServedDemo) -> None:
        assert metric(demo, "sharpi_kv_pages") > 0
        assert metric(demo, "sharpi_kv_pages_in_use") <= metric(demo, "sharpi_kv_pages")

    def test_routes_are_those_declared(self, demo: ServedDemo) -> None:
        demo.client.get("/v1/models/" + "x" * 50)
        demo.client.get("/secret" * 20)
        text = metrics_with(demo, 'route="other",status="404"')
        assert 'route="/v1/models/{name:path}",status="404"' in text
        assert 'route="other",status="404"' in text
        assert "xxx" not in text
        assert "secret" not in text

    @pytest.mark.slow
    def test_experts_that_are_streamed(self, serve_demo: "type[ServedDemo]") -> None:
        server = serve_demo(moe_slots=4)
        server.complete(max_tokens=20)
        lookups, hits, misses = (
            metric(server, f"sharpi_expert_{name}_total") for name in ("lookups", "hits", "misses")
        )
        assert lookups == hits + misses > 0
        assert misses > 0
        assert metric(server, "sharpi_expert_loads_total") > 0
        assert metric(server, "sharpi_expert_read_bytes_total") > 0
        assert metric(server, "sharpi_expert_stall_seconds_total") > 0
        assert metric(server, "sharpi_expert_predicted_total") >= 0


class TestTokens:
    def test_there_and_back(self, demo: ServedDemo) -> None:
        text = "A small cat – and a dog."
        ids = demo.client.post("/tokenize", json={"content": text}).json()["tokens"]
        back = demo.client.post("/detokenize", json={"tokens": ids}).json()["content"]
        assert back == text

    def test_bos_where_it_is_asked_for(self, demo: ServedDemo) -> None:
        plain = demo.client.post("/tokenize", json={"content": "Once"}).json()["tokens"]
        body = {"content": "Once", "add_special": True}
        whole = demo.client.post("/tokenize", json=body).json()["tokens"]
        tokenizer = demo.host.tokenizer
        assert whole == ([tokenizer.bos_id] if tokenizer.add_bos else []) + plain

    @pytest.mark.parametrize(
        ("path", "body", "param"),
        [
            ("/tokenize", {}, "content"),
            ("/tokenize", {"content": 5}, "content"),
            ("/tokenize", {"content": "a", "add_special": "perhaps"}, "add_special"),
            ("/detokenize", {}, "tokens"),
            ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
            ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
            ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ],
    )
    def test_refusals_name_the_field(
        self, demo: ServedDemo, path: str, body: dict[str, object], param: str
    ) -> None:
        response = demo.client.post(path, json=body)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == param

    def test_ids_beyond_the_vocabulary_are_no_text(self, demo: ServedDemo) -> None:
        response = demo.client.post("/detokenize", json={"tokens": [2**31 - 1]})
        assert (response.status_code, response.json()) == (200, {"content": ""})


def test_paths_and_methods_that_are_not_there(demo: ServedDemo) -> None:
    missing: httpx.Response = demo.client.get("/v1/nothing")
    assert missing.status_code == 404
    assert missing.json()["error"]["type"] == "invalid_request_error"
    wrong = demo.client.get("/v1/completions")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
