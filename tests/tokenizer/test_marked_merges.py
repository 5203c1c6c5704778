"""Gemma 4's tokenizer: marks for spaces, merges by rank, bytes for unknown characters."""

import pytest

from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary

MARK = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["a", "b", "ab", MARK, f"{MARK}a", f"{MARK}ab", "\n", "\n\n", f"b{MARK}"]
MERGES = ["a b", f"{MARK} a", f"{MARK} ab", "\n \n", f"b {MARK}"]
TOKENIZER = Tokenizer(
    Vocabulary(
        "gemma4",
        tokens=["<bos>", *BYTES, *PIECES],
        kinds=[TokenKind.CONTROL] + [TokenKind.BYTE] * 256 + [TokenKind.NORMAL] * len(PIECES),
        merges=MERGES,
        special_ids={"bos": 0},
        add_bos=True,
    )
)


def pieces(text: str) -> list[str]:
    ids = TOKENIZER.encode(text, add_bos=False, parse_special=False)
    return [TOKENIZER.token_text(token_id) for token_id in ids]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab", ["ab"]),
        ("ab ab", ["ab", f"{MARK}ab"]),
        ("b a", ["b", f"{MARK}a"]),
        ("a\n\n\nb", ["a", "\n\n", "\n", "b"]),
        ("\u00e9", ["<0xC3>", "<0xA9>"]),
        ("  a", [MARK, f"{MARK}a"]),
    ],
)
def test_pieces(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


@pytest.mark.parametrize("text", ["ab ab\n a", "caf\u00e9 \U0001f600", " b "])
def test_texts_come_back(text: str) -> None:
    ids = TOKENIZER.encode(text, add_bos=False, parse_special=False)
    assert TOKENIZER.decode(ids) == text


def test_no_space_is_put_before_a_text_but_bos_is() -> None:
    assert TOKENIZER.add_bos
    assert not TOKENIZER.adds_space
