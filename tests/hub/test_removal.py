"""Removing a model deletes its own files and nothing else."""

import mmap
from pathlib import Path

from cache_folder import write_model, write_partial

from sharpi.hub.cache import Cache, Removal

REPO = "org/tiny-GGUF"
OLD, NEW = "0" * 40, "1" * 40


def remove(folder: Path, *names: str) -> Removal:
    cache = Cache(folder)
    removal = Removal(cache, [each for each in cache.all_models() if str(each.name) in names])
    removal.carry_out()
    return removal


def names(folder: Path) -> list[str]:
    return [str(model.name) for model in Cache(folder).all_models()]


def test_the_other_quant_stays(tmp_path: Path) -> None:
    write_model(tmp_path, REPO, {"t-Q4_0.gguf": b"123", "t-Q8_0.gguf": b"4567", "README.md": b"h"})
    removal = remove(tmp_path, f"{REPO}:Q4_0")
    assert (removal.freed_bytes, removal.kept_bytes) == (3, 0)
    assert names(tmp_path) == [f"{REPO}:Q8_0"]
    blobs = tmp_path / "models--org--tiny-GGUF" / "blobs"
    assert sorted(blob.read_bytes() for blob in blobs.iterdir()) == [b"4567", b"h"]


def test_the_last_model_takes_the_repository_with_it(tmp_path: Path) -> None:
    write_model(tmp_path, REPO, {f"Q8_0/t-0000{i}-of-00002.gguf": b"%d" % i for i in (1, 2)})
    assert remove(tmp_path, f"{REPO}:Q8_0").freed_bytes == 2
    assert list(tmp_path.iterdir()) == []


def test_other_files_of_the_repository_stay(tmp_path: Path) -> None:
    snapshot = write_model(tmp_path, REPO, {"t-Q4_0.gguf": b"123", "README.md": b"h"})
    remove(tmp_path, f"{REPO}:Q4_0")
    assert (snapshot / "README.md").read_bytes() == b"h"


def test_what_another_revision_uses_stays(tmp_path: Path) -> None:
    same, changed = {"t-Q8_0-00001-of-00002.gguf": b"same"}, "t-Q8_0-00002-of-00002.gguf"
    write_model(tmp_path, REPO, same | {changed: b"old"}, OLD, ref="v1")
    write_model(tmp_path, REPO, same | {changed: b"new!!"}, NEW)
    removal = remove(tmp_path, f"{REPO}:Q8_0")
    assert (removal.freed_bytes, removal.kept_bytes) == (5, 4)
    [model] = Cache(tmp_path).all_models()
    assert [file.location.read_bytes() for file in model.files] == [b"same", b"old"]


def test_a_download_that_broke(tmp_path: Path) -> None:
    write_partial(tmp_path, REPO, "t-Q8_0.gguf", b"12345")
    assert remove(tmp_path, f"{REPO}:Q8_0").freed_bytes == 5
    assert list(tmp_path.iterdir()) == []


def test_content_that_caches_share_is_not_touched(tmp_path: Path) -> None:
    snapshot = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"12345"})
    blob = (snapshot / "t-Q8_0.gguf").resolve()
    payload = tmp_path / "blobs" / "ab" / "content"
    payload.parent.mkdir(parents=True)
    blob.rename(payload)
    blob.symlink_to(payload)
    removal = remove(tmp_path, f"{REPO}:Q8_0")
    assert (removal.freed_bytes, removal.kept_bytes) == (0, 5)
    assert payload.read_bytes() == b"12345"
    assert names(tmp_path) == []


def test_a_program_that_has_it_mapped_keeps_it(tmp_path: Path) -> None:
    snapshot = write_model(tmp_path, REPO, {"t-Q8_0.gguf": b"x" * 5000})
    with (snapshot / "t-Q8_0.gguf").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    remove(tmp_path, f"{REPO}:Q8_0")
    assert mapped[:] == b"x" * 5000
