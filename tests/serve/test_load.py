"""Eight clients with mixed requests for some seconds: nothing is lost, nothing leaks."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable

import httpx
import pytest
from served_demo import MODEL, ServedDemo

from sharpi.serve.host.model_host import ModelHostSettings

pytestmark = pytest.mark.native

NUM_CLIENTS = 8
SECONDS = 3.0
STORY = "Once upon a time there was a girl who had a red ball and a dog. She went to the park. " * 8
PATH = "/v1/completions"


class Load:
    """The record of the clients; all answers to a greedy request have to equal the first in
    `texts`.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.texts: dict[tuple[int, int], str] = {}
        self.counts: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        await asyncio.gather(*(self._client(seed, deadline) for seed in range(NUM_CLIENTS)))

    async def _client(self, seed: int, deadline: float) -> None:
        choices = random.Random(seed)
        async with httpx.AsyncClient(base_url=self._url, timeout=60, trust_env=False) as http:
            while time.monotonic() < deadline:
                length, tokens = choices.choice((20, 90, 300, 600)), choices.choice((1, 8, 60))
                body = {"prompt": STORY[:length], "max_tokens": tokens, "temperature": 0}
                kind = choices.choice(("stream", "stream", "whole", "leave", "leave at once"))
                if kind == "whole":
                    text = (await http.post(PATH, json=body)).json()["choices"][0]["text"]
                    self._compare((length, tokens), text)
                elif kind == "leave at once":
                    await self._leave_at_once(http, body, choices.uniform(0, 0.05))
                else:
                    await self._stream(http, body, (length, tokens), kind == "leave")
                self.counts[kind] += 1

    async def _leave_at_once(
        self, http: httpx.AsyncClient, body: dict[str, object], seconds: float
    ) -> None:
        try:
            async with asyncio.timeout(seconds):
                await http.post(PATH, json=body | {"max_tokens": 300})
        except TimeoutError:
            return

    async def _stream(
        self,
        http: httpx.AsyncClient,
        body: dict[str, object],
        known_as: tuple[int, int],
        leaves: bool,
    ) -> None:
        text, last = "", ""
        async with http.stream("POST", PATH, json=body | {"stream": True}) as response:
            assert response.status_code == 200
            async for line in response.aiter_lines():
                last = line or last
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
                    if leaves:
                        return
        assert last == "data: [DONE]"
        self._compare(known_as, text)

    def _compare(self, known_as: tuple[int, int], text: str) -> None:
        assert self.texts.setdefault(known_as, text) == text


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_leaks(serve_demo: Callable[..., ServedDemo]) -> None:
    server = serve_demo(host=ModelHostSettings(MODEL, max_parallel=4, max_waiting=64))
    load = Load(server.url)
    asyncio.run(load.run(SECONDS))
    assert min(load.counts.values()) > 0
    assert len(load.counts) == 4
    server.wait_until(lambda: server.num_busy == 0)
    props = server.client.get("/props").json()
    assert (props["answers_running"], props["answers_waiting"]) == (0, 0)
    assert props["kv_pages_in_use"] == 0
    assert not server.host._open
    for (length, tokens), text in list(load.texts.items())[:4]:
        alone = server.complete(prompt=STORY[:length], max_tokens=tokens)
        assert alone.json()["choices"][0]["text"] == text
