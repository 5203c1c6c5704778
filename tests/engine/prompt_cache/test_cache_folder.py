"""The folder of a prompt cache keeps to its budget, and to its own files."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sharpi.engine.prompt_cache.cache_folder import CacheFolder, StoredFile
from sharpi.engine.prompt_cache.record import TEMPORARY, RecordName
from sharpi.errors import UsageError

KEY = b"k" * 16


def put(folder: CacheFolder, number: int, num_bytes: int, key: bytes = KEY) -> Path:
    folder.add_model(key, {"model": "m.gguf"})
    name = RecordName("0" * 32, f"{number:032x}", 64, has_state=False)
    path = folder.of_model(key) / str(name)
    path.write_bytes(bytes(num_bytes))
    os.utime(path, ns=(number, number))
    return path


def test_the_least_recently_used_leaves_first(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "kept", max_bytes=1000)
    paths = [put(folder, number, 300, bytes([number]) * 16) for number in (3, 1, 2)]
    assert folder.make_room(300, time_ns=9)
    assert [path.exists() for path in paths] == [True, False, True]


def test_nothing_newer_leaves_for_something_older(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "kept", max_bytes=1000)
    path = put(folder, 5, 900)
    assert not folder.make_room(200, time_ns=4)
    assert not folder.make_room(2000, time_ns=9)
    assert not path.exists() or folder.max_bytes >= 900


@settings(deadline=None)
@given(
    st.integers(1, 2000),
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 700)), max_size=12),
)
def test_the_budget_is_kept(
    tmp_path_factory: pytest.TempPathFactory, most: int, adds: list
) -> None:
    folder = CacheFolder(tmp_path_factory.mktemp("kept"), max_bytes=most)
    for time_ns, num_bytes in adds:
        if folder.make_room(num_bytes, time_ns):
            put(folder, time_ns, num_bytes)
        assert sum(file.num_bytes for file in folder.files()) <= most


def test_other_files_are_neither_counted_nor_removed(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path, max_bytes=100)
    path = put(folder, 1, 50)
    others = [tmp_path / "letter.txt", path.parent / "letter.txt", tmp_path / path.name]
    for other in others:
        other.write_bytes(bytes(500))
    assert [file.path for file in folder.files()] == [path]
    assert folder.make_room(100, time_ns=9)
    folder.remove(folder.models()[0])
    assert all(other.exists() for other in others)
    assert not path.exists()


def test_what_a_killed_writer_left_is_counted_and_removed(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path, max_bytes=100)
    old, new = (put(folder, 1, 1).parent / f"{TEMPORARY}{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(bytes(30))
    os.utime(old, ns=(1, 1))
    assert sorted(file.num_bytes for file in folder.files()) == [1, 30, 30]
    folder.remove_abandoned()
    assert (old.exists(), new.exists()) == (False, True)


def test_models_are_listed_with_what_is_known_of_them(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path, max_bytes=100)
    put(folder, 1, 10)
    path = put(folder, 2, 20, b"z" * 16)
    (path.parent / "about.json").write_text("{ no json")
    listed = [(each.about, each.num_files, each.num_bytes) for each in folder.models()]
    assert listed == [({}, 1, 20), ({"model": "m.gguf"}, 1, 10)]


def test_files_sort_by_their_last_use() -> None:
    assert StoredFile(1, Path("b"), 5) < StoredFile(2, Path("a"), 1)


def test_a_folder_is_its_owners_alone(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path / "a" / "kept", max_bytes=100)
    folder.add_model(KEY, {})
    for path in (folder.path, folder.of_model(KEY)):
        assert path.stat().st_mode & 0o777 == 0o700


def test_a_file_in_its_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="it is a file, not a folder"):
        CacheFolder(tmp_path / "file", max_bytes=100)
    with pytest.raises(UsageError, match="Not a directory"):
        CacheFolder(tmp_path / "file" / "kept", max_bytes=100)
    assert (tmp_path / "file").read_text() == "mine"
