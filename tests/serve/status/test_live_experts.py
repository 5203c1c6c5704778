"""GET /experts/live of a running model, the data of the heat map."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answer_items import items_of
from starlette.applications import Starlette
from starlette.testclient import TestClient

from sharpi.engine.loader import load_engine
from sharpi.serve.host import model_host
from sharpi.serve.host.model_host import ModelHost, ModelHostSettings
from sharpi.serve.http.endpoint import EndpointTable
from sharpi.serve.status import status_routes
from sharpi.settings import GenerationRequest, RunConfig

pytestmark = pytest.mark.native
ROOT = Path(__file__).parents[3]
DEMO = ROOT / "models" / "demo" / "stories-moe.gguf"
DENSE = ROOT / "tests" / "references" / "data" / "qwen3.gguf"
NUM_LAYERS, NUM_EXPERTS, NUM_PARALLEL = 6, 16, 2


@pytest.fixture
def config(request: pytest.FixtureRequest) -> RunConfig:
    fields = {"model": DEMO, "context_size": 128, "num_parallel": NUM_PARALLEL}
    return RunConfig(**(fields | getattr(request, "param", {})))


@pytest.fixture
def host(config: RunConfig) -> Iterator[ModelHost]:
    host = ModelHost(
        lambda: load_engine(config), ModelHostSettings("demo", max_parallel=NUM_PARALLEL)
    )
    host.start()
    yield host
    host.close()


@pytest.fixture
def client(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Returns a client for which every request takes a new view."""
    monkeypatch.setattr(status_routes, "_FRESH_SECONDS", 0.0)
    return TestClient(Starlette(routes=EndpointTable(status_routes.endpoints(host)).routes))


def generate(host: ModelHost) -> None:
    request = GenerationRequest(max_tokens=8, ignore_end=True)

    async def drain() -> None:
        async for _ in items_of(host, [1, 5, 9], request):
            pass

    asyncio.run(drain())


def used(live: dict[str, Any]) -> list[int]:
    return [sum(layer["uses"]) for layer in live["layers"]]


@pytest.mark.parametrize("config", [{"moe_slots": 4}], indirect=True)
def test_streamed_experts(host: ModelHost, client: TestClient) -> None:
    before = client.get("/experts/live").json()
    generate(host)
    after = client.get("/experts/live").json()
    assert before["kind"] == after["kind"] == "streamed"
    assert after["seconds"] > before["seconds"]
    assert after["num_experts"] == NUM_EXPERTS
    assert [layer["layer"] for layer in after["layers"]] == list(range(NUM_LAYERS))
    assert not any(used(before))
    assert all(used(after))
    for layer in after["layers"]:
        assert layer["slots"] == layer["resident"].count("1") == 4
        assert len(layer["resident"]) == len(layer["uses"]) == NUM_EXPERTS
        assert layer["hits"] + layer["late"] + layer["loads"] == layer["accesses"]


def test_experts_in_memory(host: ModelHost, client: TestClient) -> None:
    assert client.get("/experts/live").json()["kind"] == "mapped"
    generate(host)
    live = client.get("/experts/live").json()
    assert all(used(live)), "uses are counted once somebody looks on"
    assert {layer["resident"] for layer in live["layers"]} == {"1" * NUM_EXPERTS}
    assert "hits" not in live["layers"][0]
    assert live["tokens_per_second"] >= 0


@pytest.mark.parametrize("config", [{"model": DENSE}], indirect=True)
def test_a_dense_model(client: TestClient) -> None:
    response = client.get("/experts/live")
    assert response.json()["kind"] == "dense"
    assert response.headers["cache-control"] == "no-store"


def test_a_look_loads_nothing(config: RunConfig) -> None:
    host = ModelHost(
        lambda: load_engine(config),
        ModelHostSettings("demo", max_parallel=NUM_PARALLEL, idle_seconds=0.05),
    )
    host.start()
    client = TestClient(Starlette(routes=EndpointTable(status_routes.endpoints(host)).routes))
    try:
        for _ in range(1000):
            if client.get("/experts/live").json()["kind"] == "unloaded":
                break
            asyncio.run(asyncio.sleep(0.05))
        assert not host.is_loaded
    finally:
        host.close()


def test_many_watchers_are_one_look(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_routes, "_FRESH_SECONDS", 60.0)
    client = TestClient(Starlette(routes=EndpointTable(status_routes.endpoints(host)).routes))
    answers = [client.get("/experts/live").json() for _ in range(5)]
    assert len({answer["seconds"] for answer in answers}) == 1


def test_a_busy_model_is_not_waited_for(
    host: ModelHost, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(view: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(model_host, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(host, "inspect_if_loaded", never)
    assert client.get("/experts/live").json()["kind"] == "busy"
