"""The page cache: fresh writes are in it, and can be dropped."""

from pathlib import Path

import pytest
from memory import page_cache


def test_a_file_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_DROP_ALL", tmp_path / "none")  # leave the machine's alone
    file = tmp_path / "m"
    file.write_bytes(bytes(1_000_001))
    assert page_cache.cached_share(file) == 1
    if page_cache.drop_cached(file) == 1:
        pytest.skip("a file system in memory keeps its pages")
    assert page_cache.cached_share(file) < 0.01


def test_what_stays_is_dropped_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, everybody = tmp_path / "m", tmp_path / "drop_caches"
    file.write_bytes(bytes(5000))
    everybody.touch()
    monkeypatch.setattr(page_cache, "_DROP_ALL", everybody)
    monkeypatch.setattr(page_cache, "cached_share", lambda path: 0.5)
    assert page_cache.drop_cached(file, tolerated=0.6) == 0.5
    assert everybody.read_text() == ""
    page_cache.drop_cached(file, tolerated=0.4)
    assert everybody.read_text() == "1"
