"""Encoding and decoding beyond the vectors: BOS and EOS, special tokens, bytes, bad input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from larger_vocabulary import with_tokens
from msgspec.structs import replace
from nasty_texts import SPECIAL_TEXTS, TEXTS
from other_threads import lets_others_run

from sharpi.errors import UsageError
from sharpi.tokenizer.pre_tokenizers import find_pre_tokenizer
from sharpi.tokenizer.stream import StreamDecoder
from sharpi.tokenizer.tokenizer import Tokenizer
from sharpi.tokenizer.vocabulary import TokenKind, Vocabulary

UNICODE = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


def plain_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_bos=False, parse_special=False)


def test_texts_come_back(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        assert tokenizer.decode(plain_ids(tokenizer, text)) == text


def test_special_texts_come_back(byte_tokenizer: Tokenizer) -> None:
    for text in SPECIAL_TEXTS:
        assert byte_tokenizer.decode(plain_ids(byte_tokenizer, text)) == text


def test_other_threads_run_while_a_long_text_is_encoded(byte_tokenizer: Tokenizer) -> None:
    text = "".join(map(chr, range(0x4E00, 0x9E00))) * 8
    plain_ids(byte_tokenizer, text[:5000])  # the whole model is built
    assert lets_others_run(lambda: plain_ids(byte_tokenizer, text))


class TestProperties:
    @given(text=UNICODE)
    def test_byte_level_loses_nothing(self, byte_tokenizer: Tokenizer, text: str) -> None:
        assert byte_tokenizer.decode(plain_ids(byte_tokenizer, text)) == text

    @given(text=UNICODE)
    def test_sentence_piece_loses_nothing_but_the_mark(
        self, by_words: Vocabulary, text: str
    ) -> None:
        tokenizer = Tokenizer(by_words)
        assert tokenizer.decode(plain_ids(tokenizer, text)) == text.replace("\u2581", " ")

    @pytest.mark.slow
    @given(data=st.data())
    def test_stream_and_whole_agree(self, tokenizer: Tokenizer, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30))
        decoder = StreamDecoder(tokenizer, starts_text=True)
        streamed = "".join(decoder.feed(token_id) for token_id in ids) + decoder.flush()
        assert streamed == tokenizer.decode(ids)


class TestEnds:
    def test_bos_where_asked(self, byte_tokenizer: Tokenizer) -> None:
        ids = byte_tokenizer.encode("a", add_bos=True, parse_special=True)
        assert ids == [byte_tokenizer.bos_id, *plain_ids(byte_tokenizer, "a")]

    def test_bos_in_the_text_is_not_doubled(self, byte_tokenizer: Tokenizer) -> None:
        ids = byte_tokenizer.encode("<s>a", add_bos=True, parse_special=True)
        assert ids == [byte_tokenizer.bos_id, *plain_ids(byte_tokenizer, "a")]

    def test_customs_of_each_kind(self, byte_level: Vocabulary, by_words: Vocabulary) -> None:
        assert not Tokenizer(byte_level).add_bos
        assert Tokenizer(replace(byte_level, pre_tokenizer="llama-bpe")).add_bos
        assert Tokenizer(replace(byte_level, pre_tokenizer="tekken")).add_bos
        assert Tokenizer(by_words).add_bos

    def test_the_file_has_the_last_word(self, byte_level: Vocabulary, by_words: Vocabulary) -> None:
        assert Tokenizer(replace(byte_level, add_bos=True)).add_bos
        assert not Tokenizer(replace(by_words, add_bos=False)).add_bos

    def test_no_bos_without_a_token(self, byte_level: Vocabulary) -> None:
        tokenizer = Tokenizer(replace(byte_level, special_ids={}, add_bos=True))
        assert not tokenizer.add_bos
        assert tokenizer.encode("", add_bos=True, parse_special=True) == []


class TestSpecialTokens:
    def test_control_tokens_only_when_parsed(self, byte_tokenizer: Tokenizer) -> None:
        text = "<|im_start|>a"
        start = byte_tokenizer.id_of("<|im_start|>")
        assert byte_tokenizer.encode(text, add_bos=False, parse_special=True)[0] == start
        assert start not in plain_ids(byte_tokenizer, text)

    def test_user_defined_tokens_always(self, byte_tokenizer: Tokenizer) -> None:
        assert byte_tokenizer.id_of("<tool>") in plain_ids(byte_tokenizer, "a<tool>b")

    def test_longer_tokens_first(self, byte_level: Vocabulary) -> None:
        vocabulary = with_tokens(byte_level, "<x>", "<x><x>", kind=TokenKind.USER_DEFINED)
        tokenizer = Tokenizer(vocabulary)
        short, long = tokenizer.id_of("<x>"), tokenizer.id_of("<x><x>")
        assert plain_ids(tokenizer, "<x><x><x>") == [long, short]

    def test_control_tokens_are_not_shown(self, byte_tokenizer: Tokenizer) -> None:
        ids = byte_tokenizer.encode("<s>a<|im_end|>", add_bos=False, parse_special=True)
        assert byte_tokenizer.decode(ids) == "a"
        assert byte_tokenizer.decode(ids, show_special=True) == "<s>a<|im_end|>"

    def test_blanks_after_tokens_of_phi(self, by_words: Vocabulary) -> None:
        tokenizer = Tokenizer(replace(by_words, model_name="Phi-3 mini"))
        end = tokenizer.id_of("<|im_end|>")
        spaced = tokenizer.encode("<|im_end|> \n a", add_bos=False, parse_special=True)
        assert spaced == [end, *plain_ids(tokenizer, "a")]

    def test_prefix_space_after_each_special_token(self, by_words: Vocabulary) -> None:
        tokenizer = Tokenizer(by_words)
        ids = tokenizer.encode("a<tool>a", add_bos=False, parse_special=False)
        assert ids == [
            *plain_ids(tokenizer, "a"),
            tokenizer.id_of("<tool>"),
            *plain_ids(tokenizer, "a"),
        ]


class TestOddities:
    def test_bytes_that_were_not_utf8(self, tokenizer: Tokenizer) -> None:
        text = b"a\xff\xe4b".decode("utf-8", "surrogateescape")
        assert plain_ids(tokenizer, text) == plain_ids(tokenizer, "a\ufffd\ufffdb")

    def test_surrogate_pairs_are_characters(self, tokenizer: Tokenizer) -> None:
        assert plain_ids(tokenizer, "\ud83d\ude42") == plain_ids(tokenizer, "\U0001f642")

    def test_ids_beyond_the_vocabulary_have_no_text(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.decode([tokenizer.vocab_size, tokenizer.vocab_size + 9]) == ""

    def test_unused_tokens_have_no_text(self, byte_level: Vocabulary) -> None:
        tokenizer = Tokenizer(with_tokens(byte_level, "[PAD9]", kind=TokenKind.UNUSED))
        assert tokenizer.decode([tokenizer.vocab_size - 1]) == ""

    def test_tokens_cut_inside_a_character(self, byte_level: Vocabulary) -> None:
        broken = b"\xe4\xbd".decode("utf-8", "surrogateescape")
        tokenizer = Tokenizer(with_tokens(byte_level, broken))
        assert plain_ids(tokenizer, "Hello") == plain_ids(Tokenizer(byte_level), "Hello")
        assert tokenizer.token_bytes(tokenizer.vocab_size - 1) == b"\xe4\xbd"

    def test_merges_without_their_tokens_are_ignored(self, byte_level: Vocabulary) -> None:
        merges = ["a zzz", "nothing", "", *byte_level.merges, byte_level.merges[5]]
        tokenizer = Tokenizer(replace(byte_level, merges=merges))
        for text in TEXTS:
            assert plain_ids(tokenizer, text) == plain_ids(Tokenizer(byte_level), text)

    def test_characters_without_token_or_byte_are_unknown(self) -> None:
        vocabulary = Vocabulary(
            "llama", tokens=["<unk>", "\u2581", "a"], kinds=[2, 1, 1], scores=[0.0] * 3,
            special_ids={"unknown": 0},
        )  # fmt: skip
        assert plain_ids(Tokenizer(vocabulary), "ab") == [1, 2, 0]

    def test_no_vocabulary(self) -> None:
        tokenizer = Tokenizer(Vocabulary("no_vocab"))
        assert tokenizer.decode([1, 20]) == " 1 20"
        assert plain_ids(tokenizer, " 1 20") == [1, 20]
        assert tokenizer.end_ids == frozenset()
        for text in ("a", "-1", "\u0663", "9" * 20):
            with pytest.raises(UsageError, match="no vocabulary"):
                tokenizer.encode(text, add_bos=True, parse_special=True)

    def test_long_text_without_blanks(self, by_words: Vocabulary) -> None:
        tokenizer = Tokenizer(by_words)
        text = "ab=" * 20_000
        assert tokenizer.decode(plain_ids(tokenizer, text)) == text


class TestPreTokenizerNames:
    def test_unknown_name_is_noted_and_falls_back(self, byte_level: Vocabulary) -> None:
        odd = Tokenizer(replace(byte_level, pre_tokenizer="martian"))
        default = Tokenizer(replace(byte_level, pre_tokenizer="default"))
        assert len(odd.notes) == 1
        assert "'martian'" in odd.notes[0]
        assert "'default'" in odd.notes[0]
        for text in TEXTS:
            assert plain_ids(odd, text) == plain_ids(default, text)

    def test_missing_name_is_noted(self, byte_level: Vocabulary) -> None:
        assert "'default'" in Tokenizer(replace(byte_level, pre_tokenizer=None)).notes[0]

    def test_sentence_piece_needs_none(self, by_words: Vocabulary) -> None:
        assert Tokenizer(replace(by_words, pre_tokenizer="martian")).notes == ()

    @pytest.mark.parametrize(
        ("alias", "name"),
        [
            ("llama3", "llama-bpe"), ("llama-v3", "llama-bpe"), ("deepseek-r1-qwen", "qwen2"),
            ("refact", "smollm"), ("command-r", "starcoder"), ("olmo", "gpt-2"),
            ("phi-2", "gpt-2"), ("llama4", "gpt-4o"), ("glm4", "chatglm-bpe"),
        ],
    )  # fmt: skip
    def test_aliases(self, alias: str, name: str) -> None:
        first, second = find_pre_tokenizer(alias), find_pre_tokenizer(name)
        assert first is not None
        assert second is not None
        assert first.patterns == second.patterns
