"""TextIndex against a dictionary: the same numbers for the same texts, whatever they are."""

from hypothesis import given
from hypothesis import strategies as st

from sharpi.gguf.string_array import pack_strings
from sharpi.gguf.text_index import TextIndex

TEXTS = st.lists(st.text("abé\0Ġ", max_size=9), max_size=60)


def first_numbers(texts: list[str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for number, text in enumerate(texts):
        numbers.setdefault(text, number)
    return numbers


@given(TEXTS, TEXTS)
def test_texts_are_found_as_in_a_dictionary(texts: list[str], others: list[str]) -> None:
    index, expected = TextIndex(texts), first_numbers(texts)
    asked = [*texts, *others, "", "never there"]
    assert [index.get(text) for text in asked] == [expected.get(text) for text in asked]
    assert [text in index for text in asked] == [text in expected for text in asked]
    assert index.found(asked) == {text: expected[text] for text in asked if text in expected}
    assert index.todict() == dict(index) == expected
    assert len(index) == len(expected)
    assert index.longest == max((len(text.encode()) for text in texts), default=0)


def test_many_texts_with_equal_beginnings_and_ends() -> None:
    texts = [f"{i % 7}{'x' * (i % 40)}{i}" for i in range(20_000)]
    index = TextIndex(pack_strings(texts))
    assert all(index[text] == number for number, text in enumerate(texts))
    assert "x" not in index


def test_bytes_that_are_not_utf_8() -> None:
    index = TextIndex(["a", "\udcff", "\udc80b"])
    assert index["\udc80b"] == 2
    assert "\udc81b" not in index
    assert "\ud800" not in index  # stands for no byte
    assert 5 not in index
