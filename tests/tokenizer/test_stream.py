"""Text as it streams: whole characters, hidden tokens, the space before a text."""

from hypothesis import given
from hypothesis import strategies as st

from sharpi.tokenizer.stream import StopFilter, StreamDecoder
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


def feed_all(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    filter_ = StopFilter(stops)
    out = ""
    for piece in pieces:
        out += filter_.feed(piece)
        if filter_.found is not None:
            return out, True
    return out + filter_.flush(), False


@given(st.text("ab", max_size=40), st.text("ab", min_size=1, max_size=4), st.data())
def test_pieces_make_no_difference(text: str, stop: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, stopped = feed_all([stop], pieces)
    assert stopped == (stop in text)
    assert shown == (text[: text.index(stop)] if stop in text else text)


def test_text_that_cannot_become_a_stop_is_shown_at_once() -> None:
    filter_ = StopFilter(["END"])
    assert filter_.feed("hello E") == "hello "
    assert filter_.feed("x") == "Ex"


def test_the_earliest_of_several_stops_cuts() -> None:
    assert feed_all(["bb", "a"], ["xa", "bb"]) == ("x", True)


def test_without_stops_everything_passes() -> None:
    assert feed_all([], ["a", "b"]) == ("ab", False)
    assert feed_all([""], ["a"]) == ("a", False)


@given(st.data())
def test_stops_act_on_the_answer_alone(data: st.DataObject) -> None:
    opening = data.draw(st.sampled_from(["<think>", "\n<think>", ""]))
    thought = f"{opening}a STOP </thi\n\n</think>\n\n"
    text = f"{thought}b\n\nSTOP c"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    for stop, shown in (("STOP", f"{thought}b\n\n"), ("\n\n", f"{thought}b"), ("no", text)):
        filter_ = StopFilter([stop], (opening.strip(), "</think>"))
        out = ""
        for piece in pieces:
            out += "" if filter_.found is not None else filter_.feed(piece)
        assert (out if filter_.found is not None else out + filter_.flush()) == shown


def test_an_answer_without_reasoning_stops_as_well() -> None:
    filter_ = StopFilter(["STOP"], ("<think>", "</think>"))
    assert filter_.feed("<thin") == ""
    assert filter_.feed("g STOP") == "<thing "
    assert filter_.found is not None
