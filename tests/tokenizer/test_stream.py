"""Text as it streams: whole characters, hidden tokens, the space before a text."""

from sharpi.tokenizer.stream import StreamDecoder
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import Vocabulary


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    """Returns one token per byte."""
    ids = {tokenizer.token_bytes(i): i for i in reversed(range(tokenizer.vocab_size))}
    return [ids[bytes([byte])] for byte in data]


def test_no_half_characters(tokenizer: Tokenizer) -> None:
    text = "\U0001f468\u200d\U0001f469 \u4f60\u00e9"
    decoder = StreamDecoder(tokenizer)
    pieces = [decoder.feed(token_id) for token_id in byte_ids(tokenizer, text.encode())]
    assert [piece for piece in pieces if piece] == list(text)
    assert decoder.flush() == ""


def test_an_unfinished_character_is_replaced_at_the_end(byte_tokenizer: Tokenizer) -> None:
    decoder = StreamDecoder(byte_tokenizer)
    assert [decoder.feed(i) for i in byte_ids(byte_tokenizer, b"a\xf0\x9f")] == ["a", "", ""]
    assert decoder.flush() == "\ufffd"


def test_invalid_bytes_are_replaced(byte_tokenizer: Tokenizer) -> None:
    decoder = StreamDecoder(byte_tokenizer)
    assert "".join(decoder.feed(i) for i in byte_ids(byte_tokenizer, b"a\xffb")) == "a\ufffdb"


def test_control_tokens_are_hidden_unless_shown(byte_tokenizer: Tokenizer) -> None:
    end = byte_tokenizer.id_of("<|im_end|>")
    assert end is not None
    assert StreamDecoder(byte_tokenizer).feed(end) == ""
    assert StreamDecoder(byte_tokenizer, shown_ids={end}).feed(end) == "<|im_end|>"


def test_space_before_a_text(by_words: Vocabulary) -> None:
    tokenizer = Tokenizer(by_words)
    ids = tokenizer.encode("see it", add_bos=True, parse_special=False)
    opening, continuing = StreamDecoder(tokenizer, starts_text=True), StreamDecoder(tokenizer)
    assert "".join(map(opening.feed, ids)) == "see it"
    assert "".join(map(continuing.feed, ids)) == " see it"
