"""`sharpi cache`: lists and removes what --prompt-cache keeps, and nothing else."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine

from sharpi.engine.prompt_cache.cache_folder import CacheFolder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CacheFolder:
    folder = CacheFolder(tmp_path / "kept", max_bytes=1)
    for key in (b"\xaa" * 16, b"\xbb" * 16):
        folder.add_model(key, {"model": f"{key[:1].hex()}.gguf", "kv_type": "f16"})
        (folder.of_model(key) / f"{'0' * 32}-{'1' * 32}-64.kv").write_bytes(bytes(2048))
    monkeypatch.setenv("SHARPI_PROMPT_CACHE", str(folder.path))
    return folder


def test_it_lists_each_model(sharpi: CommandLine, folder: CacheFolder) -> None:
    result = sharpi("cache")
    assert sorted(line.split()[-1] for line in result.out.splitlines()) == ["aa.gguf", "bb.gguf"]
    assert "2.0 KiB" in result.out
    assert str(folder.path) in result.err


def test_as_json(sharpi: CommandLine, folder: CacheFolder) -> None:
    found = {each["model"]: each for each in json.loads(sharpi("cache", "list", "--json").out)}
    assert found["aa.gguf"]["key"] == "aa" * 16
    assert (found["bb.gguf"]["files"], found["bb.gguf"]["bytes"]) == (1, 2048)


def test_a_model_without_pages_was_used_when_its_folder_was_made(
    sharpi: CommandLine, folder: CacheFolder
) -> None:
    folder.add_model(b"\xcc" * 16, {"model": "cc.gguf"})
    found = {each["model"]: each for each in json.loads(sharpi("cache", "list", "--json").out)}
    assert found["cc.gguf"]["last_use"][:4] >= found["aa.gguf"]["last_use"][:4]
    assert found["cc.gguf"]["bytes"] == 0


def test_rm_removes_one_model(sharpi: CommandLine, folder: CacheFolder) -> None:
    assert sharpi("cache", "rm", "aaaa").exit_code == 0
    assert [each.key for each in folder.models()] == ["bb" * 16]


def test_rm_all_leaves_what_is_not_sharpis(sharpi: CommandLine, folder: CacheFolder) -> None:
    (folder.path / "mine.txt").write_text("mine")
    assert sharpi("cache", "rm", "--all").exit_code == 0
    assert folder.models() == []
    assert (folder.path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rm"], "rm needs the keys of models, or --all"),
        (["rm", "--all", "aa"], "rm needs the keys of models, or --all"),
        (["rm", "cc"], "no key begins with 'cc'"),
        (["rm", ""], "no key begins with ''"),
        (["list", "aa"], "list takes no keys"),
        (["list", "--prompt-cache", "nowhere"], "nowhere: there is no such folder"),
    ],
)
def test_a_mistake_is_one_line_and_removes_nothing(
    sharpi: CommandLine, folder: CacheFolder, arguments: list[str], message: str
) -> None:
    result = sharpi("cache", *arguments)
    assert result.exit_code != 0
    assert message in result.err
    assert len(result.err.splitlines()) == 1
    assert len(folder.models()) == 2


def test_the_folder_must_be_named(sharpi: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHARPI_PROMPT_CACHE", raising=False)
    assert "name the folder" in sharpi("cache").err
