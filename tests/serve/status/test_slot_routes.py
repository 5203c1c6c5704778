"""/slots: a text is saved to a file and restored from it, in another server too."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from served_demo import ServedDemo

from sharpi.serve.app import AppSettings

pytestmark = pytest.mark.native
TEXT = "Once upon a time there was a red ball. " * 12


def cached(server: ServedDemo, **fields: Any) -> tuple[int, str]:
    answer = server.complete(prompt=TEXT, **fields).json()
    found = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return found, answer["choices"][0]["text"]


def act(server: ServedDemo, action: str, body: Any, number: int = 0) -> httpx.Response:
    return server.client.post(f"/slots/{number}", params={"action": action}, json=body)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServedDemo]:
    server = ServedDemo(app=partial(AppSettings, slot_folder=folder))
    yield server
    server.stop()


@pytest.mark.slow
def test_what_was_saved_is_restored_by_another_server(
    server: ServedDemo, folder: Path, serve_demo: Callable[..., ServedDemo]
) -> None:
    found, text = cached(server)
    assert found == 0
    saved = act(server, "save", {"filename": "red ball.bin"}).json()
    assert (saved["id_slot"], saved["filename"]) == (0, "red ball.bin")
    assert saved["n_written"] == (folder / "red ball.bin").stat().st_size
    assert saved["timings"]["save_ms"] > 0
    assert server.client.get("/slots").json()[0]["n_tokens"] == saved["n_saved"] > 100
    other = serve_demo(app=partial(AppSettings, slot_folder=folder))
    restored = act(other, "restore", {"filename": "red ball.bin"}, number=2).json()
    assert (restored["n_restored"], restored["id_slot"]) == (saved["n_saved"], 2)
    assert 0 < restored["n_read"] < saved["n_written"]
    found, again = cached(other)
    assert found > 100
    assert again == text
    other.scheduler.cache.clear()
    assert other.scheduler.cache.num_evictable == 0


def test_an_erased_text_is_computed_again(server: ServedDemo) -> None:
    server.scheduler.cache.clear()
    cached(server)
    erased = server.client.post("/slots/0?action=erase").json()
    assert erased["n_erased"] > 100
    assert server.client.get("/slots").json()[0]["n_tokens"] == 0
    assert cached(server)[0] == 0


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../out", "a/b", "/etc/passwd", "a\\b", ".hidden", "a\0b", "x" * 300, None, 5],
)
def test_no_name_leads_out_of_the_folder(server: ServedDemo, folder: Path, name: Any) -> None:
    before = sorted(folder.rglob("*"))
    for action in ("save", "restore"):
        response = act(server, action, {"filename": name})
        assert response.status_code == 400
        assert "filename" in response.json()["error"]["message"]
    assert sorted(folder.rglob("*")) == before


def test_a_link_is_not_followed(server: ServedDemo, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "mine")
    cached(server)
    assert act(server, "restore", {"filename": "link"}).status_code == 500
    assert act(server, "save", {"filename": "link"}).status_code == 200
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "swapped"])
def test_a_damaged_file_is_refused(server: ServedDemo, folder: Path, damage: str) -> None:
    text = cached(server)[1]
    act(server, "save", {"filename": damage})
    path = folder / damage
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[-100:]
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
    elif damage == "foreign":
        content = bytearray(b"a letter to somebody" * 100)
    else:
        half = len(content) // 2
        content = content[half:] + content[:half]
    path.write_bytes(content)
    response = act(server, "restore", {"filename": damage}, number=1)
    assert response.status_code == 400
    assert "cannot be restored" in response.json()["error"]["message"]
    assert cached(server)[1] == text


def test_mistakes(server: ServedDemo, demo: ServedDemo) -> None:
    assert act(server, "restore", {"filename": "missing"}).status_code == 404
    assert act(server, "copy", {"filename": "a"}).status_code == 400
    assert act(server, "save", {"filename": "a"}, number=9).status_code == 400
    response = act(demo, "save", {"filename": "a"})
    assert response.status_code == 501
    assert "--slot-save-path" in response.json()["error"]["message"]
