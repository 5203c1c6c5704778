"""Pulling from a stand-in for the hub: results, failures and messages."""

import threading
from pathlib import Path
from typing import NoReturn

import pytest
from listener import Listener
from stand_in import Refusal, StandIn, checksum

from sharpi.errors import HubError
from sharpi.hub.cache import Cache
from sharpi.hub.catalogue import require_name
from sharpi.hub.pull import Pulled, Puller

REPO = "org/tiny-GGUF"
DATA = bytes(range(256)) * 4096  # 1 MiB


@pytest.fixture(autouse=True)
def _few_quick_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sharpi.hub.pull._ATTEMPTS", 3)
    monkeypatch.setattr("sharpi.hub.pull._FIRST_WAIT_SECONDS", 0.01)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "hub")


@pytest.fixture
def puller(hub: StandIn, cache: Cache, listener: Listener) -> Puller:
    return Puller(cache, listener, hub.endpoint)


def pull(puller: Puller, name: str) -> Pulled:
    return puller.pull(require_name(name))


def partial(cache: Cache, data: bytes, path: str) -> Path:
    return cache.repository_folder(REPO) / "partial" / checksum(data) / path


class TestWhatArrives:
    def test_a_file_where_the_library_looks_for_it(
        self, hub: StandIn, puller: Puller, cache: Cache, listener: Listener
    ) -> None:
        from huggingface_hub import try_to_load_from_cache

        hub.add(REPO, {"README.md": b"hello", "tiny-Q4_K_M.gguf": DATA})
        pulled = pull(puller, f"{REPO}:q4_k_m")
        assert pulled.start.read_bytes() == DATA
        assert str(pulled.start) == try_to_load_from_cache(REPO, "tiny-Q4_K_M.gguf", cache.folder)
        assert (str(pulled.name), pulled.received_bytes) == (f"{REPO}:Q4_K_M", len(DATA))
        assert listener.begun == [("tiny-Q4_K_M.gguf", len(DATA), 0)]
        assert (listener.received, listener.num_ended, listener.notes) == (len(DATA), 1, [])
        assert not (cache.repository_folder(REPO) / "partial").exists()

    def test_all_parts_of_a_split_set_and_nothing_else(self, hub: StandIn, puller: Puller) -> None:
        parts = {f"Q8_0/t-Q8_0-0000{i}-of-00003.gguf": b"part %d" % i * 99 for i in (1, 2, 3)}
        hub.add(REPO, parts | {"mmproj-F16.gguf": DATA, "t-Q4_K_M.gguf": DATA})
        pulled = pull(puller, f"{REPO}:Q8_0")
        assert pulled.start.name == "t-Q8_0-00001-of-00003.gguf"
        assert sorted(path.name for path in pulled.start.parent.iterdir()) == [
            path.removeprefix("Q8_0/") for path in parts
        ]
        assert pulled.received_bytes == sum(map(len, parts.values()))
        assert len(hub.content_requests()) == 3

    def test_a_second_pull_asks_for_no_content(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        first, num_requests = pull(puller, REPO), len(hub.content_requests())
        again = pull(puller, REPO)
        assert (again.start, len(hub.content_requests())) == (first.start, num_requests)

    def test_another_revision_shares_what_did_not_change(
        self, hub: StandIn, puller: Puller, cache: Cache
    ) -> None:
        hub.add(REPO, {"tiny-Q8_0.gguf": DATA}, ref="v1")
        hub.add(REPO, {"tiny-Q8_0.gguf": DATA, "README.md": b"new"})
        first, second = pull(puller, f"{REPO}@v1"), pull(puller, REPO)
        assert first.start != second.start
        assert first.start.resolve() == second.start.resolve()
        assert len(hub.content_requests()) == 1
        assert str(first.name) == f"{REPO}:Q8_0@v1"

    def test_empty_file(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"tiny.gguf": b""})
        assert pull(puller, REPO).start.read_bytes() == b""

    def test_a_small_file_has_the_checksum_of_git(
        self, hub: StandIn, puller: Puller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import hashlib

        import stand_in

        def git_name(data: bytes) -> str:
            return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

        monkeypatch.setattr(stand_in, "checksum", git_name)
        monkeypatch.setattr(
            stand_in,
            "_sibling",
            lambda path, data: {"rfilename": path, "size": len(data), "blobId": git_name(data)},
        )
        hub.add(REPO, {"tiny.gguf": b"small"})
        assert pull(puller, REPO).start.resolve().name == git_name(b"small")
        hub.corrupt.add("other.gguf")
        hub.add(REPO, {"other.gguf": b"also small"})
        with pytest.raises(HubError, match="checksum"):
            pull(puller, f"{REPO}:other")


class TestBrokenDownloads:
    def test_a_connection_that_breaks_is_taken_up_again(
        self, hub: StandIn, puller: Puller, listener: Listener
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.break_after = [1000, 2000, 300_000]
        assert pull(puller, REPO).start.read_bytes() == DATA
        starts = [each.range for each in hub.content_requests()]
        assert starts[0] == f"bytes=0-{len(DATA) - 1}"
        assert len(starts) == 4
        assert listener.received == len(DATA)

    def test_a_later_program_goes_on_where_one_was_stopped(
        self, hub: StandIn, cache: Cache, listener: Listener
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        path = partial(cache, DATA, "tiny.gguf")
        path.parent.mkdir(parents=True)
        path.write_bytes(DATA[:700_000])
        pulled = pull(Puller(cache, listener, hub.endpoint), REPO)
        assert pulled.start.read_bytes() == DATA
        assert pulled.received_bytes == len(DATA) - 700_000
        assert listener.begun == [("tiny.gguf", len(DATA), 700_000)]
        assert hub.content_requests()[0].range == f"bytes=700000-{len(DATA) - 1}"

    def test_what_was_received_stays_when_the_hub_falls_silent(
        self, hub: StandIn, puller: Puller, cache: Cache
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.break_after = [400_000, 0, 0, 0]
        with pytest.raises(HubError):
            pull(puller, REPO)
        assert 0 < partial(cache, DATA, "tiny.gguf").stat().st_size <= 400_000
        assert pull(puller, REPO).start.read_bytes() == DATA
        assert hub.content_requests()[-1].range != f"bytes=0-{len(DATA) - 1}"

    def test_the_parts_that_came_before_a_break_are_listed_and_kept(
        self, hub: StandIn, puller: Puller, cache: Cache
    ) -> None:
        parts = {f"t-Q8_0-0000{i}-of-00002.gguf": b"%d" % i * 70_000 for i in (1, 2)}
        hub.add(REPO, parts)
        hub.break_after = [70_000, 0, 0, 0]
        with pytest.raises(HubError):
            pull(puller, REPO)
        [model] = cache.all_models()
        assert (str(model.name), model.size, model.is_complete) == (f"{REPO}:Q8_0", 70_000, False)
        assert pull(puller, REPO).received_bytes == 70_000
        assert cache.all_models()[0].is_complete

    def test_the_hub_goes_away_before_the_end(
        self, hub: StandIn, puller: Puller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub.errors import LocalEntryNotFoundError

        def link(*_: object, **__: object) -> NoReturn:
            raise LocalEntryNotFoundError("what the library says after 20 seconds")

        hub.add(REPO, {"tiny.gguf": DATA})
        monkeypatch.setattr("sharpi.hub.pull.hf_hub_download", link)
        with pytest.raises(HubError, match="stopped answering"):
            pull(puller, REPO)

    def test_a_server_without_ranges_begins_again(
        self, hub: StandIn, cache: Cache, listener: Listener
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.ignores_ranges = True
        path = partial(cache, DATA, "tiny.gguf")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 700_000)
        assert pull(Puller(cache, listener, hub.endpoint), REPO).start.read_bytes() == DATA
        assert listener.received == len(DATA)

    def test_more_than_the_file_was_received_before(
        self, hub: StandIn, puller: Puller, cache: Cache
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        path = partial(cache, DATA, "tiny.gguf")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * (len(DATA) + 1))
        assert pull(puller, REPO).start.read_bytes() == DATA

    @pytest.mark.parametrize("status", [429, 500, 503])
    def test_a_hub_out_of_breath_is_asked_again(
        self, hub: StandIn, puller: Puller, status: int
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.refusals["/content/"] = [Refusal(status, {"Retry-After": "0"})] * 2
        assert pull(puller, REPO).start.read_bytes() == DATA

    def test_wrong_checksum_is_said_and_leaves_nothing(
        self, hub: StandIn, puller: Puller, cache: Cache
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.corrupt.add("tiny.gguf")
        with pytest.raises(
            HubError, match=r"tiny\.gguf arrived with a wrong checksum and was removed"
        ):
            pull(puller, REPO)
        assert not [
            path for path in cache.folder.rglob("*") if path.is_file() and path.stat().st_size
        ]
        hub.corrupt.clear()
        assert pull(puller, REPO).start.read_bytes() == DATA

    def test_wrong_size_in_the_cache_is_said_and_fetched_anew(
        self, hub: StandIn, puller: Puller, listener: Listener
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        pull(puller, REPO).start.resolve().write_bytes(b"cut short")
        assert pull(puller, REPO).start.read_bytes() == DATA
        assert any("wrong size" in note for note in listener.notes)

    def test_full_disk_is_said_before_anything_is_fetched(
        self, hub: StandIn, puller: Puller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import shutil
        from types import SimpleNamespace

        hub.add(REPO, {"tiny.gguf": DATA})
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
        with pytest.raises(HubError, match=r"needs 1\.0 MiB, .* 1000 B free; .*HF_HOME"):
            pull(puller, REPO)
        assert hub.content_requests() == []

    def test_two_at_once_fetch_it_once(self, hub: StandIn, cache: Cache) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.gate.clear()
        listeners = [Listener(), Listener()]
        pulled: list[Pulled] = []

        def work(listener: Listener) -> None:
            pulled.append(pull(Puller(cache, listener, hub.endpoint), REPO))

        threads = [threading.Thread(target=work, args=(each,)) for each in listeners]
        for thread in threads:
            thread.start()
        while all(each.is_alive() for each in threads) and not any(
            each.notes for each in listeners
        ):
            threads[0].join(0.01)
        hub.gate.set()
        for thread in threads:
            thread.join(60)
        assert [each.start.read_bytes() == DATA for each in pulled] == [True, True]
        assert len(hub.content_requests()) == 1
        notes = [note for each in listeners for note in each.notes]
        assert notes == ["another program is fetching tiny.gguf; waiting for it"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("refusal", "message"),
        [
            (Refusal(401, {"X-Error-Code": "GatedRepo"}), "gated.*HF_TOKEN"),
            (
                Refusal(401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
                "does not know the token.*HF_TOKEN",
            ),
            (Refusal(401), "has no org/tiny-GGUF, or it is private.*HF_TOKEN"),
            (Refusal(403), "refuses org/tiny-GGUF.*HF_TOKEN"),
            (Refusal(404, {"X-Error-Code": "RepoNotFound"}), "has no org/tiny-GGUF"),
            (Refusal(404, {"X-Error-Code": "RevisionNotFound"}), "no such revision"),
            (Refusal(429, {"Retry-After": "17"}), "slow down.*in 17 s"),
            (Refusal(500), "out of order.*later"),
            (Refusal(418), "status 418"),
        ],
        ids=lambda value: str(getattr(value, "status", "")),
    )
    def test_one_line(self, hub: StandIn, puller: Puller, refusal: Refusal, message: str) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.refusals["/api/models/"] = [refusal]
        with pytest.raises(HubError, match=message) as caught:
            pull(puller, REPO)
        assert "\n" not in str(caught.value)

    def test_something_else_than_a_hub(self, hub: StandIn, puller: Puller) -> None:
        hub.refusals["/api/models/"] = [Refusal(200)]
        with pytest.raises(HubError, match="does not answer as a model hub does"):
            pull(puller, REPO)

    def test_gated_content(
        self, hub: StandIn, puller: Puller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.token = "hf_secret"
        with pytest.raises(HubError, match="gated"):
            pull(puller, REPO)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        assert pull(puller, REPO).start.read_bytes() == DATA

    def test_the_token_does_not_leave_the_hub(
        self, hub: StandIn, puller: Puller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        pull(puller, REPO)
        assert any("authorization" in each.headers for each in hub.requests)
        assert all("authorization" not in each.headers for each in hub.content_requests())

    def test_a_name_that_is_close(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        with pytest.raises(HubError, match=r"has no org/tiny-GUF.*close to it: org/tiny-GGUF"):
            pull(puller, "org/tiny-GUF")

    def test_a_search_that_fails_says_nothing(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        hub.refusals["/api/models?"] = [Refusal(500)] * 10
        with pytest.raises(HubError) as caught:
            pull(puller, "org/tiny-GUF")
        assert "close" not in str(caught.value)

    def test_a_quant_that_is_not_there(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"t-Q4_K_S.gguf": b"1", "t-Q4_K_M.gguf": b"2", "t-Q8_0.gguf": b"3"})
        with pytest.raises(HubError, match=r"did you mean Q4_K_M or Q4_K_S.*there are.*Q8_0"):
            pull(puller, f"{REPO}:Q4_K_L")

    def test_no_gguf(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"model.safetensors": DATA, "mmproj-F16.gguf": DATA})
        with pytest.raises(HubError, match="no GGUF file at the hub"):
            pull(puller, REPO)

    def test_a_part_that_the_repository_lacks(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"t-00001-of-00003.gguf": b"1", "t-00003-of-00003.gguf": b"3"})
        with pytest.raises(HubError, match="lacks part 2 of 3"):
            pull(puller, REPO)

    def test_a_path_that_leads_out_of_the_cache(self, hub: StandIn, puller: Puller) -> None:
        hub.add(REPO, {"../../../t-Q8_0.gguf": DATA, "/absolute/t-Q4_0.gguf": DATA})
        with pytest.raises(HubError, match="no GGUF file"):
            pull(puller, REPO)


class TestOffline:
    def test_what_is_in_the_cache_is_used(
        self, hub: StandIn, puller: Puller, listener: Listener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub import constants

        hub.add(REPO, {"tiny-Q8_0.gguf": DATA})
        first = pull(puller, REPO)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert pull(puller, REPO).start == first.start
        assert listener.notes == [f"HF_HUB_OFFLINE is set; using {REPO}:Q8_0 from the cache"]

    def test_no_network(self, puller: Puller, hub: StandIn, cache: Cache) -> None:
        nowhere = Puller(cache, Listener(), "http://127.0.0.1:9")
        with pytest.raises(
            HubError, match=f"no connection to 127.0.0.1: .*, and {REPO} is not in the cache"
        ):
            pull(nowhere, REPO)

    def test_the_hub_is_down(self, hub: StandIn, puller: Puller, listener: Listener) -> None:
        hub.add(REPO, {"tiny.gguf": DATA})
        first = pull(puller, REPO)
        hub.refusals["/api/models/"] = [Refusal(503)]
        assert pull(puller, REPO).start == first.start
        assert "status 503" in listener.notes[0]
