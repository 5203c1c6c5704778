"""The list of well-known models: names that can be told apart, and sizes that can be right."""

import pytest

from sharpi.hub.catalogue import (
    BITS,
    CATALOGUE,
    ModelName,
    approximate_bytes,
    entries_like,
    find_entry,
    read_name,
    short_names,
    short_names_of,
)


def test_names_are_short_and_differ() -> None:
    names = list(short_names())
    assert len(set(names)) == len(names) >= 15
    for name in names:
        family, _, size = name.partition(":")
        assert family
        assert size
        assert read_name(name) is None  # so that it never hides a name of the hub


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda each: each.name)
def test_an_entry_is_consistent(entry: object) -> None:
    from sharpi.hub.catalogue import CatalogueEntry

    assert isinstance(entry, CatalogueEntry)
    assert entry.quants
    assert set(entry.quants) <= set(BITS)
    assert read_name(entry.repository) == ModelName(entry.repository)
    assert (entry.num_experts > 0) == (entry.active < entry.parameters)
    assert entry.num_used < max(1, entry.num_experts) or not entry.num_experts
    sizes = [entry.file_bytes(quant) for quant in entry.quants]
    assert sizes == sorted(sizes)


def test_size_of_a_known_file() -> None:
    """Qwen3-30B-A3B-Q4_K_M.gguf has 18.6 GB, and gpt-oss-20b-mxfp4.gguf 12.1 GB."""
    for name, gigabytes in (("qwen3:30b", 18.6), ("gpt-oss:20b", 12.1)):
        found = find_entry(name)
        assert found is not None
        assert found[0].file_bytes(found[1]) / 1e9 == pytest.approx(gigabytes, rel=0.05)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("qwen3:30b", "Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M"),
        ("QWEN3:30B", "Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M"),
        ("qwen3:30b:q8_0", "Qwen/Qwen3-30B-A3B-GGUF:Q8_0"),
        ("gpt-oss:20b", "ggml-org/gpt-oss-20b-GGUF:MXFP4"),
    ],
)
def test_what_a_short_name_means(text: str, name: str) -> None:
    found = find_entry(text)
    assert found is not None
    assert str(found[0].model_name(found[1])) == name


@pytest.mark.parametrize("text", ["qwen3", "qwen3:31b", "qwen3:30b:Q2_K", ""])
def test_what_is_no_short_name(text: str) -> None:
    assert find_entry(text) is None


@pytest.mark.parametrize(("quant", "size"), [(None, 18), ("q8_0", 32), ("IQ9_X", None)])
def test_size_of_a_model_to_fetch(quant: str | None, size: int | None) -> None:
    known = approximate_bytes(ModelName("Qwen/Qwen3-30B-A3B-GGUF", quant))
    assert (known and known // 10**9) == size
    assert approximate_bytes(ModelName("some/other", "Q8_0")) is None


def test_words() -> None:
    assert {each.name for each in entries_like("OSS")} == {"gpt-oss:20b", "gpt-oss:120b"}
    assert entries_like("nothing like it") == []


def test_short_names_of_models() -> None:
    named = [
        ModelName("qwen/qwen3-30b-a3b-gguf", "Q4_K_M"),
        ModelName("Qwen/Qwen3-30B-A3B-GGUF", "Q8_0"),
        ModelName("Org/Other-GGUF", "Q8_0"),
    ]
    assert short_names_of(named) == ["qwen3:30b", "qwen3:30b:q8_0"]
