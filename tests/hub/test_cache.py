"""The models in a cache folder, their names, and looking one up."""

import os
from pathlib import Path

import pytest
from cache_folder import write_model, write_partial

from sharpi.errors import HubError
from sharpi.hub.cache import Cache, look_up
from sharpi.hub.catalogue import require_name

REPO = "org/tiny-GGUF"
OLD, NEW = "0" * 40, "1" * 40


def names(cache: Cache) -> list[str]:
    return [str(model.name) for model in cache.all_models()]


def start(folder: Path, name: str) -> Path:
    return look_up(Cache(folder), require_name(name))[0].start


def age(path: Path, seconds: int) -> None:
    os.utime(path.resolve(), (seconds, seconds))


def test_no_folder_is_an_empty_cache(tmp_path: Path) -> None:
    assert Cache(tmp_path / "missing").all_models() == []


def test_models_by_repository_and_quant(tmp_path: Path) -> None:
    write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"12", "t-Q4_0.gguf": b"1", "README.md": b"hi"})
    write_model(tmp_path, "a/plain", {"model.safetensors": b"x"})
    (tmp_path / "datasets--org--data").mkdir()
    (tmp_path / "version.txt").write_text("1")
    cache = Cache(tmp_path)
    assert names(cache) == [f"{REPO}:Q4_0", f"{REPO}:Q8_0"]
    assert [model.size for model in cache.all_models()] == [1, 2]
    assert all(model.is_complete for model in cache.all_models())


def test_a_split_set_is_one_model_and_starts_with_its_first_part(tmp_path: Path) -> None:
    parts = {f"Q8_0/t-0000{i}-of-00002.gguf": b"%d" % i for i in (1, 2)}
    snapshot = write_model(tmp_path, REPO, parts)
    assert names(Cache(tmp_path)) == [f"{REPO}:Q8_0"]
    assert start(tmp_path, REPO) == snapshot / "Q8_0/t-00001-of-00002.gguf"


def test_a_set_without_all_parts_is_not_run(tmp_path: Path) -> None:
    write_model(tmp_path, REPO, {"t-Q8_0-00001-of-00002.gguf": b"1"})
    with pytest.raises(HubError, match=f"only partly.*`sharpi pull {REPO}:Q8_0`"):
        start(tmp_path, f"{REPO}:Q8_0")


def test_a_download_that_broke_is_listed_and_not_run(tmp_path: Path) -> None:
    write_model(tmp_path, REPO, {"t-Q4_0.gguf": b"1"})
    write_partial(tmp_path, REPO, "t-Q8_0.gguf", b"12345")
    models = Cache(tmp_path).all_models()
    assert [(model.name.quant, model.size, model.is_complete) for model in models] == [
        ("Q4_0", 1, True),
        ("Q8_0", 5, False),
    ]
    with pytest.raises(HubError, match="is not in the cache; there is Q4_0"):
        start(tmp_path, f"{REPO}:Q8_0")


def test_a_download_that_broke_is_all_there_is(tmp_path: Path) -> None:
    write_partial(tmp_path, REPO, "t-Q8_0.gguf", b"12345")
    assert names(Cache(tmp_path)) == [f"{REPO}:Q8_0"]
    with pytest.raises(HubError, match="only partly"):
        start(tmp_path, REPO)


def test_a_link_into_nothing_is_no_model(tmp_path: Path) -> None:
    snapshot = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"1"})
    (snapshot / "t-Q8_0.gguf").resolve().unlink()
    assert names(Cache(tmp_path)) == []


class TestRevisions:
    def test_the_main_one_has_the_plain_name(self, tmp_path: Path) -> None:
        old = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"1"}, OLD, ref="v1")
        new = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"2"}, NEW)
        assert names(Cache(tmp_path)) == [f"{REPO}:Q8_0", f"{REPO}:Q8_0@v1"]
        assert start(tmp_path, f"{REPO}:Q8_0").parent == new
        assert start(tmp_path, f"{REPO}@v1").parent == old

    def test_one_without_a_branch_goes_by_its_commit(self, tmp_path: Path) -> None:
        old = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"1"}, OLD, ref=None)
        write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"2"}, NEW)
        assert names(Cache(tmp_path))[1] == f"{REPO}:Q8_0@00000000"
        assert start(tmp_path, f"{REPO}:Q8_0@00000000").parent == old
        assert start(tmp_path, f"{REPO}:Q8_0@{OLD}").parent == old

    def test_the_newest_where_there_is_no_main(self, tmp_path: Path) -> None:
        old = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"1"}, OLD, ref="v1")
        new = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"2"}, NEW, ref="v2")
        age(old / "t-Q8_0.gguf", 1000)
        assert start(tmp_path, f"{REPO}:Q8_0").parent == new
        age(new / "t-Q8_0.gguf", 10)
        assert start(tmp_path, f"{REPO}:Q8_0").parent == old

    def test_what_only_an_older_one_has_is_found(self, tmp_path: Path) -> None:
        old = write_model(tmp_path, REPO, {"t-Q4_0.gguf": b"1"}, OLD, ref=None)
        write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"2"}, NEW)
        assert start(tmp_path, f"{REPO}:Q4_0").parent == old

    def test_an_unknown_one(self, tmp_path: Path) -> None:
        write_model(tmp_path, REPO, {"t-Q4_0.gguf": b"1"})
        with pytest.raises(HubError, match=f"`sharpi pull {REPO}@v9`"):
            start(tmp_path, f"{REPO}@v9")


class TestWhatIsSaid:
    def test_the_line_to_type(self, tmp_path: Path) -> None:
        with pytest.raises(HubError) as caught:
            start(tmp_path, f"{REPO}:Q8_0")
        assert str(caught.value) == (
            f"{REPO}:Q8_0 is not in the cache; type `sharpi pull {REPO}:Q8_0`"
        )

    def test_repositories_that_are_close(self, tmp_path: Path) -> None:
        write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"1"})
        with pytest.raises(HubError, match=f"close to it in the cache: {REPO}"):
            start(tmp_path, "org/tiny-GUF:Q8_0")

    def test_another_quant_of_the_repository(self, tmp_path: Path) -> None:
        write_model(tmp_path, REPO, {"t-Q4_K_M.gguf": b"1", "t-Q8_0.gguf": b"2"})
        with pytest.raises(HubError, match=r"did you mean Q4_K_M\?.*or type `sharpi pull"):
            start(tmp_path, f"{REPO}:Q4_K_S")

    def test_the_usual_one_among_those_that_are_there(self, tmp_path: Path) -> None:
        write_model(tmp_path, REPO, {"t-F16.gguf": b"1", "t-Q8_0.gguf": b"2"})
        model, note = look_up(Cache(tmp_path), require_name(REPO))
        assert model.name.quant == "Q8_0"
        assert note == f"{REPO}:Q8_0, as no quant was named; there are also F16"
